"""What is kept of a transactional id, what is asked of it, and what follows.

Pure values, shared by the state machine (`transactional_id`), the shell that owns the log
(`coordinator`) and the handlers. Times are wall-clock milliseconds unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from fairlead_wire.errors import ErrorCode
from fairlead_wire.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from fairlead_broker.transaction.ending import EndingTransaction, TopicPartition

CLIENT_EPOCH_MAX: Final = 32_766
"""The highest epoch that a producer is given (KIP-360); at it the producer id is changed next."""
FENCING_EPOCH: Final = 32_767
"""Only markers carry it: the coordinator can fence the holder of the highest epoch (KIP-890)."""
NEVER_TIMES_OUT_MS: Final = 2**31 - 1
"""A transaction with this time-out is ended by its client alone (KIP-939)."""
NO_TIME: Final = -1


class TransactionState(IntEnum):
    """States by Kafka's numbers in the log.

    Dead and PrepareEpochFence are in no log; clients may name them in filters.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As admin clients call it: PrepareCommit."""
        return self.name.title().replace("_", "")


_State = TransactionState
PREPARED: Final = frozenset({_State.PREPARE_COMMIT, _State.PREPARE_ABORT})
"""Decided; markers are being written."""
COMPLETED: Final = frozenset({_State.COMPLETE_COMMIT, _State.COMPLETE_ABORT})
IDLE: Final = COMPLETED | {_State.EMPTY}
"""No transaction: the next one may begin, and the id may expire."""


class TransactionMetadata(NamedTuple):
    """A transactional id as a record of `__transaction_state` keeps it."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """That of the record before; another one than `producer_id` only where that was changed."""
    next_producer_id: int = NO_PRODUCER_ID
    """What takes its place when the end of this transaction is complete."""
    client_transaction_version: int = 0


NOTHING_YET: Final = TransactionMetadata(_State.EMPTY, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, 0)
"""Of an id whose first record is not committed."""


class ProducerIdAndEpoch(NamedTuple):
    """What a producer is known by."""

    producer_id: int
    producer_epoch: int


class TransactionAnswer(NamedTuple):
    """Answer to any request; the producer's new id and epoch where it gets some."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


SUCCESS: Final = TransactionAnswer()
Waiter: TypeAlias = Callable[[TransactionAnswer], None]
"""Who asked; called at most once."""


@dataclass(slots=True, eq=False)
class Transition:
    """A record that must be committed before the state that it says counts.

    The shell appends it and calls `written` of the id with this very object once the outcome is
    known. With a `violation`, the rule that it would break, it is not appended but has failed.
    """

    key: bytes
    value: bytes | None
    metadata: TransactionMetadata | None
    """None for a tombstone."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    waiter: Waiter | None = None
    answer: TransactionAnswer = SUCCESS
    """What the waiter hears once it is committed."""
    violation: str = ""


@dataclass(slots=True)
class Effects:
    """What a step of the state machine asks of the shell, in this order."""

    transition: Transition | None = None
    """To be appended."""
    ending: EndingTransaction | None = None
    """To have markers written for."""
    answers: list[tuple[Waiter, TransactionAnswer]] = field(default_factory=list)

    @property
    def is_concurrent(self) -> bool:
        """Whether nothing follows but the answer that something else has to be over first."""
        if self.transition is not None or len(self.answers) != 1:
            return False
        return self.answers[0][1].error is ErrorCode.CONCURRENT_TRANSACTIONS
