"""Exactly-once writes of Spark: each row is there once, whatever is killed, frozen or duplicated.

Drivers and tasks use the real `batch_decision`; brokers, Spark and its checkpoint are models. Each
rule that is broken on purpose must be detected.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from proofs import SINK_SEEDS
from sink_simulator.world import BATCHES, Options, Place, SimulationFailed, run_seed

from fairlead_spark.exactly_once import batch_decision
from fairlead_spark.exactly_once.batch_decision import (
    NO_BATCH,
    BatchWriter,
    Decision,
    EndTransactions,
    WriteDecision,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from fairlead_spark.prepared_transaction import PreparedTransaction

SEEDS = SINK_SEEDS.chosen()
FIRST_SEED = int(os.environ.get("FAIRLEAD_FIRST_SEED", "0"))
ONLY_SEED = os.environ.get("FAIRLEAD_SEED")
CHOSEN = [int(ONLY_SEED)] if ONLY_SEED else list(range(FIRST_SEED, FIRST_SEED + SEEDS))
MUTANT_SEEDS = 700
CALM = Options(has_faults=False)
TIME_OUTS = Options(has_time_outs=True)
ONCE_FAILED = (500990, 504241, 1795459613)
"""A task of an earlier batch resumed between a decision and its end, and took the same id."""
SLEEPY_SEEDS = 300
SHORT_SLEEPS = Options(sleeps=(Place.COMPUTES,))
"""Sleeps only where a second look into the log helps."""
AWAKE = Options(sleeps=())


@pytest.mark.proof
@pytest.mark.parametrize("options", [Options(), TIME_OUTS], ids=["faults", "time-outs"])
def test_each_row_is_there_once(options: Options) -> None:
    for seed in CHOSEN:
        outcome = run_seed(seed, options)
        assert options.has_time_outs or outcome.lost is None


@pytest.mark.parametrize("options", [Options(), TIME_OUTS], ids=["faults", "time-outs"])
def test_each_row_is_there_once_in_seeds_that_once_failed(options: Options) -> None:
    for seed in ONCE_FAILED:
        run_seed(seed, options)


def test_a_driver_may_be_killed_at_every_step() -> None:
    last = run_seed(1, CALM).steps
    assert last > 100
    for step in range(1, last):
        run_seed(1, replace(CALM, kill_at=step))


@pytest.mark.proof
def test_two_drivers_may_be_killed_at_any_two_steps() -> None:
    for first in range(1, run_seed(2, CALM).steps, max(1, 500 // SEEDS)):
        for behind in (1, 5, 20, 40):
            run_seed(2, replace(CALM, kill_at=first, kill_again_at=first + behind))


def test_what_timed_out_behind_its_decision_is_an_error_that_names_the_batch() -> None:
    errors = [found for seed in range(300) if (found := run_seed(seed, TIME_OUTS).lost)]
    assert len(errors) > 10
    for each in errors:
        assert re.match(r"batch \d of q was decided, but brokers had ended [12] \(", str(each))


def test_one_seed_is_one_history() -> None:
    assert run_seed(7) == run_seed(7)
    assert run_seed(7).digest != run_seed(8).digest


def test_every_kind_of_fault_happens() -> None:
    happened = {name for seed in range(40) for name in run_seed(seed, TIME_OUTS).faults}
    assert happened == {
        "a task sleeps",
        "freeze a driver",
        "freeze a task",
        "kill a driver",
        "kill a task",
        "no answer",
        "stop a query",
        "time out before one",
        "time out behind a decision",
    }


def decides_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    def decide(
        writer: BatchWriter, prepared: tuple[PreparedTransaction, ...], last: Decision | None
    ) -> Any:
        yield EndTransactions(prepared, is_commit=True)
        decision = Decision(writer.batch, writer.run, writer.since_ms, prepared)
        yield WriteDecision(decision, last)
        return decision

    patch.setattr(batch_decision, "_decide", decide)


def decides_without_a_look_at_transactions(patch: pytest.MonkeyPatch) -> None:
    def decide(
        writer: BatchWriter, prepared: tuple[PreparedTransaction, ...], last: Decision | None
    ) -> Any:
        decision = Decision(writer.batch, writer.run, writer.since_ms, prepared)
        yield WriteDecision(decision, last)
        return decision

    patch.setattr(batch_decision, "_decide", decide)


def aborts_a_batch_without_reading_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    def abort(writer: BatchWriter, prepared: Sequence[PreparedTransaction]) -> Any:
        yield EndTransactions(tuple(prepared), is_commit=False)

    patch.setattr(batch_decision, "abort_batch", abort)


def runs_a_decided_batch_again(patch: pytest.MonkeyPatch) -> None:
    """Tasks and drivers take every decision of another write for one about an earlier batch."""
    commit, abort = batch_decision.commit_batch, batch_decision.abort_batch
    must_write = batch_decision.must_write
    numbers: dict[int, int] = {}

    def raised(writer: BatchWriter) -> BatchWriter:
        return writer._replace(batch=numbers.setdefault(writer.execution, BATCHES + len(numbers)))

    def is_needed(writer: BatchWriter, last: Decision | None, given_up: Collection[str]) -> bool:
        return must_write(writer, last and replace(last, batch=NO_BATCH), given_up)

    def again(writer: BatchWriter, prepared: Sequence[PreparedTransaction], **options: Any) -> Any:
        yield from commit(raised(writer), prepared, **options)

    def abort_again(writer: BatchWriter, prepared: Sequence[PreparedTransaction]) -> Any:
        yield from abort(raised(writer), prepared)

    patch.setattr(batch_decision, "must_write", is_needed)
    patch.setattr(batch_decision, "commit_batch", again)
    patch.setattr(batch_decision, "abort_batch", abort_again)


def aborts_what_the_next_run_has_open(patch: pytest.MonkeyPatch) -> None:
    def may_abort(writer: BatchWriter, name: str, replaced: Sequence[str]) -> bool:
        match = batch_decision._TASK_ID.fullmatch(name)
        return match is not None and int(match[2]) <= writer.since_ms

    patch.setattr(BatchWriter, "may_abort", may_abort)


def aborts_what_an_older_driver_may_still_decide(patch: pytest.MonkeyPatch) -> None:
    """A driver does not write that it took over a batch that had ended."""
    patch.setattr(batch_decision, "_is_by", lambda *_: True)


def passes_over_what_is_lost(patch: pytest.MonkeyPatch) -> None:
    def finish(writer: BatchWriter, decided: Decision, *, fail_on_data_loss: bool) -> Any:
        if decided.is_ended:
            return decided
        yield EndTransactions(decided.transactions, is_commit=True)
        ended = batch_decision._noted_by(writer, decided)
        yield WriteDecision(ended, decided)
        return ended

    patch.setattr(batch_decision, "_finish", finish)


def believes_an_old_decision_when_it_finds_a_loss(patch: pytest.MonkeyPatch) -> None:
    finish = batch_decision._finish

    def without_a_second_look(*arguments: Any, **options: Any) -> Any:
        steps = finish(*arguments, **options)
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            is_look = isinstance(step, WriteDecision) and step.decision == step.behind
            answer = None if is_look else (yield step)

    patch.setattr(batch_decision, "_finish", without_a_second_look)


def notes_the_end_before_it(patch: pytest.MonkeyPatch) -> None:
    def finish(writer: BatchWriter, decided: Decision, *, fail_on_data_loss: bool) -> Any:
        if decided.is_ended:
            return decided
        ended = batch_decision._noted_by(writer, decided)
        yield WriteDecision(ended, decided)
        yield EndTransactions(decided.transactions, is_commit=True)
        return ended

    patch.setattr(batch_decision, "_finish", finish)


def tells_no_task_that_its_batch_was_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchWriter, "key", property(lambda _: object()))


def has_the_same_ids_in_each_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_decision, "TURNS", 1)


TWICE, LOST = "is there . times", "row .* is lost"
LOST_BY_US, LEFT_OPEN = "no time-out behind a decision was the cause", "is left open"
SINK_MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    decides_after_the_commit: TWICE,
    decides_without_a_look_at_transactions: LOST_BY_US,
    aborts_a_batch_without_reading_what_was_decided: LOST_BY_US,
    runs_a_decided_batch_again: TWICE,
    aborts_what_the_next_run_has_open: LOST_BY_US,
    aborts_what_an_older_driver_may_still_decide: LOST_BY_US,
    passes_over_what_is_lost: LOST,
    notes_the_end_before_it: LOST,
    tells_no_task_that_its_batch_was_given_up: LEFT_OPEN,
    has_the_same_ids_in_each_batch: LOST_BY_US,
}
"""Each with the promise that it breaks."""


@pytest.mark.parametrize("mutant", SINK_MUTANTS, ids=lambda each: each.__name__)
def test_a_mutant_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert_caught(Options(), TIME_OUTS, promise=SINK_MUTANTS[mutant])


def test_a_task_that_does_not_look_at_what_it_has_opened_is_caught() -> None:
    assert_caught(Options(looks_when_open=False))


def test_a_second_look_is_enough_for_tasks_whose_rows_were_long_in_coming(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only this look helps here: ids are the same in each batch."""
    has_the_same_ids_in_each_batch(monkeypatch)
    for seed in range(SLEEPY_SEEDS):
        run_seed(seed, SHORT_SLEEPS)
    assert_caught(replace(SHORT_SLEEPS, looks_again=False))


def test_an_old_decision_that_is_believed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = believes_an_old_decision_when_it_finds_a_loss
    assert_caught_where_turns_do_not_help(AWAKE, AWAKE, mutant, monkeypatch)


def test_a_task_that_takes_its_id_before_it_reads_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    too_early = replace(AWAKE, reads_first=False)
    assert_caught_where_turns_do_not_help(AWAKE, too_early, lambda _: None, monkeypatch)


def assert_caught_where_turns_do_not_help(
    sound: Options,
    broken: Options,
    mutant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that the rule matters without turns, which would also prevent the failure."""
    for seed in range(MUTANT_SEEDS):
        with monkeypatch.context() as patch:
            has_the_same_ids_in_each_batch(patch)
            if not fails(seed, sound):
                mutant(patch)
                if fails(seed, broken):
                    return
    pytest.fail("no seed catches it")


def fails(seed: int, options: Options) -> bool:
    try:
        run_seed(seed, options)
    except SimulationFailed:
        return True
    return False


def assert_caught(*options: Options, promise: str = "") -> None:
    with pytest.raises(SimulationFailed, match=f"sink seed .*{promise}"):
        for seed in range(MUTANT_SEEDS):
            for each in options:
                run_seed(seed, each)
