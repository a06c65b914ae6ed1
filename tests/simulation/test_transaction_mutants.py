"""Mutants of transactions: the simulation must detect each rule that is broken on purpose.

Each mutant is a small change of code that keeps a promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from proofs import SIMULATED_MUTANTS
from simulator.first_seeds import seeds_to_try
from transaction_simulator.world import LONELY, Options, SimulationFailed, run_seed

from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.transaction import transactional_id
from fairlead_broker.transaction.transaction_types import (
    COMPLETED,
    PREPARED,
    Effects,
    TransactionAnswer,
)
from fairlead_broker.transaction.transactional_id import TransactionalId
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    Patch = pytest.MonkeyPatch

SEEDS_MAX = 150
pytestmark = SIMULATED_MUTANTS.marks
MUTANTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Options]] = {}


def mutant(options: Options = Options()) -> Callable[[Callable[..., None]], Any]:  # noqa: B008
    def register(change: Callable[[pytest.MonkeyPatch], None]) -> Callable[..., None]:
        MUTANTS[change.__name__] = (change, options)
        return change

    return register


@mutant()
def answers_ends_before_they_are_durable(patch: Patch) -> None:
    prepare = TransactionalId._prepare

    def answer(self: TransactionalId, waiter: Any, **details: Any) -> Effects:
        effects = prepare(self, waiter, **details)
        if waiter is not None and effects.transition is not None:
            effects.answers.append((waiter, effects.transition.answer))
            effects.transition.waiter = None
        return effects

    patch.setattr(TransactionalId, "_prepare", answer)


@mutant()
def sends_markers_before_the_decision_is_durable(patch: Patch) -> None:
    prepare = TransactionalId._prepare

    def send(self: TransactionalId, waiter: Any, **details: Any) -> Effects:
        effects = prepare(self, waiter, **details)
        transition = effects.transition
        if transition is not None and transition.metadata is not None:
            before = self.metadata
            self.metadata = transition.metadata
            if self.metadata.partitions:
                effects.ending = self._end_decided(now_ms=0).ending
            self.metadata = before
        return effects

    patch.setattr(TransactionalId, "_prepare", send)


@mutant()
def is_complete_with_the_first_marker(patch: Patch) -> None:
    ended = TransactionalId.partitions_ended

    def end_all(self: TransactionalId, ending: Any, partitions: Any, **times: int) -> Effects:
        return ended(self, ending, ending.partitions, **times)

    patch.setattr(TransactionalId, "partitions_ended", end_all)


@mutant()
def sends_no_markers_again_after_a_load(patch: Patch) -> None:
    patch.setattr(TransactionalId, "resume", lambda self, **_: Effects())


@mutant()
def takes_two_transitions_at_a_time(patch: Patch) -> None:
    end = TransactionalId.end

    def end_anyhow(self: TransactionalId, *details: Any, **more: Any) -> Effects:
        if self.metadata.state not in PREPARED:
            self.pending = None
        return end(self, *details, **more)

    patch.setattr(TransactionalId, "end", end_anyhow)


@mutant()
def puts_the_epoch_of_the_data_into_markers_of_version_2(patch: Patch) -> None:
    marker = EndMarker

    def with_old_epoch(producer_id: int, epoch: int, coordinator: int, **more: Any) -> Any:
        older = epoch - (more["transaction_version"] >= 2)
        return marker(producer_id, older, coordinator, **more)

    patch.setattr(transactional_id, "EndMarker", with_old_epoch)


@mutant()
def lets_any_epoch_add_partitions(patch: Patch) -> None:
    refusal = TransactionalId._refusal

    def lenient(self: TransactionalId, producer_id: int, producer_epoch: int) -> ErrorCode:
        return refusal(self, producer_id, self.metadata.producer_epoch)

    patch.setattr(TransactionalId, "_refusal", lenient)


@mutant()
def verifies_whatever_it_is_asked(patch: Patch) -> None:
    def verify(self: TransactionalId, *_: Any) -> dict[Any, ErrorCode]:
        return dict.fromkeys(_[-1], ErrorCode.NONE)

    patch.setattr(TransactionalId, "verify", verify)


@mutant()
def gives_the_pair_of_a_newer_producer_to_a_fenced_one(patch: Patch) -> None:
    """As Kafka does if the newer producer uses version 1."""
    end = TransactionalId._end_raising_epoch

    def ask_nothing(self: TransactionalId, *details: Any, **more: Any) -> Effects:
        metadata = self.metadata
        self.metadata = metadata._replace(client_transaction_version=2)
        effects = end(self, *details, **more)
        if self.metadata.client_transaction_version == 2:
            self.metadata = metadata
        return effects

    patch.setattr(TransactionalId, "_end_raising_epoch", ask_nothing)


@mutant()
def answers_another_end_with_success(patch: Patch) -> None:
    patch.setattr(
        TransactionalId,
        "_repeated",
        lambda self, **_: (
            ErrorCode.NONE
            if self.metadata.state in COMPLETED
            else ErrorCode.CONCURRENT_TRANSACTIONS
        ),
    )


@mutant()
def lets_nothing_time_out(patch: Patch) -> None:
    patch.setattr(TransactionalId, "maybe_abort_timed_out", lambda self, **_: Effects())


@mutant()
def fences_without_a_new_epoch(patch: Patch) -> None:
    prepare = TransactionalId._prepare

    def keep_epoch(self: TransactionalId, waiter: Any, **details: Any) -> Effects:
        if waiter is None or details["code"] is not ErrorCode.NONE:
            details["version"] = 0
        return prepare(self, waiter, **details)

    patch.setattr(TransactionalId, "_prepare", keep_epoch)


@mutant()
def never_writes_a_failed_completion_again(patch: Patch) -> None:
    patch.setattr(TransactionalId, "tick", lambda self: Effects())


@mutant()
def gives_up_a_failed_completion(patch: Patch) -> None:
    written = TransactionalId.written

    def forget(self: TransactionalId, transition: Any, code: ErrorCode, **times: int) -> Effects:
        effects = written(self, transition, code, **times)
        if code is not ErrorCode.NONE:
            self.pending = None
            self._retry_ms = None
        return effects

    patch.setattr(TransactionalId, "written", forget)


@mutant()
def answers_who_comes_second_as_who_came_first(patch: Patch) -> None:
    """InitProducerId with any expected epoch counts as a repeated request."""
    init = TransactionalId.init_producer_id

    def answer(self: TransactionalId, waiter: Any, **details: Any) -> Effects:
        expected, metadata = details["expected"], self.metadata
        if expected is not None and metadata.state in COMPLETED and self.pending is None:
            pair = TransactionAnswer(
                producer_id=metadata.producer_id, producer_epoch=metadata.producer_epoch
            )
            return Effects(answers=[(waiter, pair)])
        return init(self, waiter, **details)

    patch.setattr(TransactionalId, "init_producer_id", answer)


@mutant()
def refuses_producers_after_a_move(patch: Patch) -> None:
    """Whoever asks a coordinator that is not the first one for an epoch is fenced."""
    init = TransactionalId.init_producer_id

    def refuse(self: TransactionalId, waiter: Any, **details: Any) -> Effects:
        if self.coordinator_epoch > 1:
            return Effects(answers=[(waiter, TransactionAnswer(ErrorCode.PRODUCER_FENCED))])
        return init(self, waiter, **details)

    patch.setattr(TransactionalId, "init_producer_id", refuse)


@mutant(LONELY)
def fences_who_ends_a_transaction_while_markers_of_the_last_are_written(patch: Patch) -> None:
    end = TransactionalId._end_raising_epoch

    def fence(self: TransactionalId, waiter: Any, *pair: int, **details: Any) -> Effects:
        if self.metadata.state in PREPARED and pair[1] == self.metadata.producer_epoch:
            return Effects(answers=[(waiter, TransactionAnswer(ErrorCode.PRODUCER_FENCED))])
        return end(self, waiter, *pair, **details)

    patch.setattr(TransactionalId, "_end_raising_epoch", fence)


@mutant(LONELY)
def knows_nothing_of_the_pair_that_it_promised(patch: Patch) -> None:
    patch.setattr(TransactionalId, "_is_next", lambda self, producer_id: False)


def first_seed_that_catches(name: str) -> int | None:
    change, options = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        for seed in seeds_to_try(name, SEEDS_MAX):
            try:
                run_seed(seed, options)
            except SimulationFailed:
                return seed
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_of_transactions_is_caught(name: str) -> None:
    assert first_seed_that_catches(name) is not None
