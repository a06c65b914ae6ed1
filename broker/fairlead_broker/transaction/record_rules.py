"""Rules that every record of a transactional id keeps; checked before it is written. Pure.

A record that breaks a rule is a defect in the state machine. It could let two producers work with
one epoch, or undo a decision. So it is not written, and its operation fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.transaction.transaction_types import (
    COMPLETED,
    FENCING_EPOCH,
    IDLE,
    NO_TIME,
    NOTHING_YET,
    PREPARED,
    TransactionState,
)
from fairlead_model.invariants import violated

if TYPE_CHECKING:
    from fairlead_broker.transaction.transaction_types import TransactionMetadata

_State = TransactionState
_MAY_FOLLOW: Final = {
    _State.EMPTY: IDLE,
    _State.ONGOING: IDLE | {_State.ONGOING},
    _State.PREPARE_COMMIT: frozenset({_State.ONGOING}),
    _State.PREPARE_ABORT: IDLE | {_State.ONGOING},
    _State.COMPLETE_COMMIT: frozenset({_State.PREPARE_COMMIT}),
    _State.COMPLETE_ABORT: frozenset({_State.PREPARE_ABORT}),
}
"""The states that may precede each state, as in Kafka's `TransactionState`."""


def require_transaction_record(
    record: TransactionMetadata | None, *, before: TransactionMetadata
) -> None:
    """Require of an id's next record that it may follow the one before it.

    The state may follow (T1), and no producer epoch is given twice (T2). None, a tombstone, may
    follow only without an open transaction.
    """
    if record is None:
        if before.state not in IDLE:
            violated("an id is forgotten in state {}", before.state.title)
        return
    state = record.state
    if before.state not in _MAY_FOLLOW[state]:
        violated("{} after {}", state.title, before.state.title)
    _require_partitions(record, before)
    if state is not _State.EMPTY and record.start_ms == NO_TIME:
        violated("{} of a transaction that never began", state.title)
    _require_epoch(record, before)


def _require_partitions(record: TransactionMetadata, before: TransactionMetadata) -> None:
    state = record.state
    if state in IDLE and record.partitions:
        violated("{} with {} partitions", state.title, len(record.partitions))
    if state is _State.ONGOING and not before.partitions <= record.partitions:
        violated("a partition leaves a transaction that is open")
    if state in PREPARED and record.partitions != before.partitions:
        violated("{} for other partitions than were added", state.title)


def _require_epoch(record: TransactionMetadata, before: TransactionMetadata) -> None:
    """Require that the epoch rises by at most one, and that another producer id begins at 0."""
    state = record.state
    if record.producer_id == before.producer_id:
        if not 0 <= record.producer_epoch - before.producer_epoch <= 1:
            violated("epoch {} after {}", record.producer_epoch, before.producer_epoch)
        if state in COMPLETED and before.next_producer_id not in (-1, record.producer_id):
            violated("producer {} was to be replaced", record.producer_id)
        if record.producer_epoch == FENCING_EPOCH != before.producer_epoch and (
            state not in PREPARED or record.next_producer_id < 0
        ):
            violated("{} gives the epoch that only markers carry", state.title)
        return
    if record.producer_epoch or state not in IDLE:
        violated("{} begins another producer id at {}", state.title, record.producer_epoch)
    if before is not NOTHING_YET and record.producer_id == before.previous_producer_id:
        violated("producer {} is used again", record.producer_id)
    if state in COMPLETED and record.producer_id != before.next_producer_id:
        violated("producer {} was never announced", record.producer_id)
