"""Who may decide, who is too late, and whose transactions are aborted. Whole histories are
simulated (`tests/simulation/test_sink_seeds.py`)."""

from typing import Any

import pytest

from fairlead_spark.errors import FencedError, SinkError, TakenOverError
from fairlead_spark.exactly_once.batch_decision import (
    DRAWS,
    TURNS,
    AbortLeftovers,
    BatchWriter,
    Decision,
    EndTransactions,
    FindLost,
    NoteGivenUp,
    ReadDecision,
    TakeOver,
    WriteDecision,
    abort_batch,
    commit_batch,
    is_of_write,
    must_write,
    name_attempt,
)
from fairlead_spark.prepared_transaction import PreparedTransaction

WRITER = BatchWriter("orders", 5, "run-b", 1000, 20)


def test_a_task_writes_what_is_not_decided() -> None:
    assert must_write(WRITER, None)
    assert must_write(WRITER, Decision(4, "run-a", 1000))
    assert not must_write(WRITER, Decision(5, "run-a", 1000))


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision(5, "run-c", 1001), "began 1 ms after this one's has written batch 5"),
        (Decision(6, "run-b", 1000), "was decided long ago, the last one is 6"),
        (Decision(4, "run-c", 1000, execution=21), "run run-c has taken the place of run-b"),
    ],
)
def test_whoever_was_replaced_is_fenced(decision: Decision, said: str) -> None:
    with pytest.raises(FencedError, match=said):
        must_write(WRITER, decision)


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("fairlead-spark.orders.1000-run-b.0.0", True),
        ("fairlead-spark.orders.1000-run-b.0.10-8", True),
        ("fairlead-spark.orders.1000-next.0.10-8", False),
        ("fairlead-spark.orders.1000-run-b.12.r345", True),
        ("fairlead-spark.orders.999-other.0.0", True),
        ("fairlead-spark.orders.1000-replaced.0.0", True),
        ("fairlead-spark.orders.1000-next.0.0", False),
        ("fairlead-spark.orders.1001-run-b.0.0", False),
        ("fairlead-spark.orders.2.1000-run-b.0.0", False),
        ("fairlead-spark.orders.driver", False),
        ("orders.1000-run-b.0.0", False),
    ],
)
def test_only_transactions_that_nobody_can_decide_are_aborted(name: str, may: bool) -> None:
    assert WRITER.may_abort(name, ("replaced",)) is may


def test_a_batch_that_was_given_up_is_not_written() -> None:
    with pytest.raises(SinkError, match="batch 5 of orders is over, while this task was still"):
        must_write(WRITER, None, ("run-a", "run-b"))
    write = WRITER._replace(write="write-b")
    assert must_write(write, None, ("run-b",))
    with pytest.raises(SinkError, match="is over"):
        must_write(write, None, ("write-b",))


def test_first_attempts_have_ids_by_turns_and_those_behind_one_of_their_own() -> None:
    turns = [Decision(number, "run-b", 1000, turn=number) for number in range(TURNS)]
    names = {name_attempt(each, 7, is_first=True) for each in turns}
    assert len(names) == TURNS
    assert name_attempt(None, 7, is_first=True) == name_attempt(turns[0], 7, is_first=True)
    after = Decision(11, "run-b", 1000, turn=TURNS)
    assert name_attempt(after, 7, is_first=True) == name_attempt(turns[0], 7, is_first=True)
    assert name_attempt(turns[3], 7, is_first=False) == "r7"


def test_ids_of_a_partition_stay_few_and_those_of_a_stage_that_is_run_again_differ() -> None:
    named = [name_attempt(None, each, is_first=True) for each in range(100_000)]
    assert len(set(named)) == DRAWS
    for tasks in (9, 18, 36, 200):
        pairs = zip(named, named[tasks:], strict=False)
        same = sum(first == again for first, again in pairs)
        assert same < 1.2 * len(named) / DRAWS


@pytest.mark.parametrize("name", ["0-0", "10-8", "r345"])
def test_each_name_of_an_attempt_makes_an_id_that_is_known_again(name: str) -> None:
    made = WRITER.task_transactional_id(3, name)
    assert WRITER.may_abort(made, ())
    assert is_of_write(made, "run-b")


def test_each_decision_and_each_batch_given_up_begins_a_turn() -> None:
    for last, turn in ((None, 1), (Decision(4, "run-b", 1000, is_ended=True, turn=6), 7)):
        for steps in (commit_batch(WRITER, []), abort_batch(WRITER, [])):
            step = next(steps)
            while not isinstance(step, WriteDecision):
                answers: dict[Any, Any] = {ReadDecision(): last, FindLost(()): []}
                step = steps.send(answers.get(step))
            assert step.decision.turn == turn
            step = steps.send(None)
            while not isinstance(step, AbortLeftovers):
                assert not isinstance(step, WriteDecision) or step.decision.turn == turn
                step = steps.send([])


def test_a_batch_that_is_given_up_is_noted_before_its_driver_looks_for_what_is_open() -> None:
    steps = abort_batch(WRITER, [PreparedTransaction("id", 1, 0)])
    kinds = [type(step) for step in steps]
    assert kinds[-3:] == [NoteGivenUp, EndTransactions, AbortLeftovers]


def test_names_may_hold_dots() -> None:
    writer = WRITER._replace(name="orders.2")
    assert writer.may_abort(writer.task_transactional_id(3, "0"), ())
    assert not WRITER.may_abort(writer.task_transactional_id(3, "0"), ())


def test_a_batch_whose_tasks_saw_a_decision_that_is_gone_is_not_decided_without_them() -> None:
    """Somebody has emptied the topic."""
    steps = commit_batch(WRITER, [PreparedTransaction("id", 1, 0)], is_decided=True)
    assert next(steps) == ReadDecision()
    assert steps.send(None) == TakeOver()
    assert steps.send(None) == ReadDecision()
    with pytest.raises(SinkError, match="does not hold that any more"):
        steps.send(None)


def test_drivers_that_take_over_from_each_other_give_up() -> None:
    steps = commit_batch(WRITER, [PreparedTransaction("id", 1, 0)])
    step = next(steps)
    with pytest.raises(SinkError, match="5 times another driver took over"):
        while True:
            if isinstance(step, WriteDecision):
                step = steps.throw(TakenOverError())
            else:
                step = steps.send([] if isinstance(step, FindLost) else None)
