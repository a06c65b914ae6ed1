"""Records that no transactional id can have are not written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from transaction_driver import PRODUCER_ID, metadata

from fairlead_broker.transaction.record_rules import require_transaction_record
from fairlead_broker.transaction.transaction_types import NOTHING_YET, TransactionState
from fairlead_model.invariants import InvariantViolation

if TYPE_CHECKING:
    from fairlead_broker.transaction.transaction_types import TransactionMetadata

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
LEGAL = {
    EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
}
OPEN = {ONGOING, PREPARE_COMMIT, PREPARE_ABORT}


def partitions_in(state: TransactionState) -> tuple[int, ...]:
    return (0,) if state in OPEN else ()


@pytest.mark.parametrize("before", LEGAL)
@pytest.mark.parametrize("state", LEGAL)
def test_a_state_follows_only_what_kafka_lets_it_follow(
    state: TransactionState, before: TransactionState
) -> None:
    """T1: above all, what is decided is not undone."""
    partitions = partitions_in(before) if state in OPEN - {ONGOING} else partitions_in(state)
    record = metadata(state, 5, *partitions, start_ms=1)
    earlier = metadata(before, 5, *partitions_in(before))
    if before in LEGAL[state]:
        require_transaction_record(record, before=earlier)
    else:
        with pytest.raises(InvariantViolation):
            require_transaction_record(record, before=earlier)


@pytest.mark.parametrize("state", LEGAL)
def test_an_id_with_a_transaction_gets_no_tombstone(state: TransactionState) -> None:
    if state in OPEN:
        with pytest.raises(InvariantViolation):
            require_transaction_record(None, before=metadata(state, 5, 0))
    else:
        require_transaction_record(None, before=metadata(state))


WRONG: dict[str, tuple[TransactionMetadata, TransactionMetadata]] = {
    "an epoch falls": (metadata(EMPTY, 4), metadata(EMPTY, 5)),
    "an epoch is left out": (metadata(EMPTY, 7), metadata(EMPTY, 5)),
    "another id does not begin at 0": (
        metadata(EMPTY, 1, producer_id=9),
        metadata(EMPTY, 32_766),
    ),
    "an id comes back": (
        metadata(EMPTY, 0, producer_id=9),
        metadata(EMPTY, 32_766, previous_producer_id=9),
    ),
    "a transaction changes its id while it is open": (
        metadata(ONGOING, 0, 0, producer_id=9),
        metadata(EMPTY, 5),
    ),
    "a producer gets the epoch of fences": (metadata(EMPTY, 32_767), metadata(EMPTY, 32_766)),
    "a fence at the end has no id to follow": (
        metadata(PREPARE_ABORT, 32_767, 0),
        metadata(ONGOING, 32_766, 0),
    ),
    "an announced id is not taken": (
        metadata(COMPLETE_ABORT, 32_767),
        metadata(PREPARE_ABORT, 32_767, 0, next_producer_id=9),
    ),
    "an id is taken that was never announced": (
        metadata(COMPLETE_ABORT, 0, producer_id=9),
        metadata(PREPARE_ABORT, 32_767, 0, next_producer_id=8),
    ),
    "a partition leaves": (metadata(ONGOING, 5, 1), metadata(ONGOING, 5, 0, 1)),
    "other partitions are ended": (metadata(PREPARE_COMMIT, 5, 0), metadata(ONGOING, 5, 0, 1)),
    "an idle id has partitions": (metadata(EMPTY, 5, 0), metadata(EMPTY, 5)),
    "a transaction never began": (metadata(ONGOING, 5, 0, start_ms=-1), metadata(EMPTY, 5)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_record_that_would_break_a_promise_is_refused(name: str) -> None:
    """T2: an epoch is given once, among the rest."""
    record, before = WRONG[name]
    with pytest.raises(InvariantViolation):
        require_transaction_record(record, before=before)


@pytest.mark.parametrize(
    ("record", "before"),
    [
        (metadata(EMPTY, 0), NOTHING_YET),
        (metadata(EMPTY, 6), metadata(COMPLETE_COMMIT, 5)),
        (metadata(EMPTY, 0, producer_id=9), metadata(COMPLETE_COMMIT, 32_766)),
        (
            metadata(PREPARE_ABORT, 32_767, 0, next_producer_id=9),
            metadata(ONGOING, 32_766, 0),
        ),
        (
            metadata(COMPLETE_ABORT, 0, producer_id=9, previous_producer_id=PRODUCER_ID),
            metadata(PREPARE_ABORT, 32_767, 0, next_producer_id=9),
        ),
    ],
)
def test_what_happens_every_day_is_written(
    record: TransactionMetadata, before: TransactionMetadata
) -> None:
    require_transaction_record(record, before=before)
