"""The state of a transactional id, the requests for it, and their effects.

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
"""The highest epoch that a producer gets (KIP-360); after it the producer id changes."""
FENCING_EPOCH: Final = 32_767
"""Only markers have it: with it the coordinator can fence the producer with the highest epoch
(KIP-890)."""
NEVER_TIMES_OUT_MS: Final = 2**31 - 1
"""Only its client ends a transaction with this time-out (KIP-939)."""
NO_TIME: Final = -1


class TransactionState(IntEnum):
    """States by Kafka's numbers in the log.

    Dead and PrepareEpochFence are never written; clients may name them in filters.
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
        """The name that admin clients use, such as PrepareCommit."""
        return self.name.title().replace("_", "")


_State = TransactionState
PREPARED: Final = frozenset({_State.PREPARE_COMMIT, _State.PREPARE_ABORT})
"""The transaction is decided; markers are being written."""
COMPLETED: Final = frozenset({_State.COMPLETE_COMMIT, _State.COMPLETE_ABORT})
IDLE: Final = COMPLETED | {_State.EMPTY}
"""No transaction is open: the next one may begin, and the id may expire."""


class TransactionMetadata(NamedTuple):
    """A transactional id as in a record of `__transaction_state`."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id of the record before; it differs from `producer_id` only after a change."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that replaces it when the end of this transaction is complete."""
    client_transaction_version: int = 0


NOTHING_YET: Final = TransactionMetadata(_State.EMPTY, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, 0)
"""State of an id whose first record is not committed."""


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer."""

    producer_id: int
    producer_epoch: int


class TransactionAnswer(NamedTuple):
    """Answer to any request, with the producer's new id and epoch if it gets them."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


SUCCESS: Final = TransactionAnswer()
Waiter: TypeAlias = Callable[[TransactionAnswer], None]
"""The caller that waits; called at most once."""


@dataclass(slots=True, eq=False)
class Transition:
    """A record that has to be committed before its state counts.

    The shell appends it and calls `written` of the id with this object once the outcome is known.
    With a `violation`, the rule that it would break, it is not appended and has failed.
    """

    key: bytes
    value: bytes | None
    metadata: TransactionMetadata | None
    """None for a tombstone."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    waiter: Waiter | None = None
    answer: TransactionAnswer = SUCCESS
    """The answer to the waiter once it is committed."""
    violation: str = ""


@dataclass(slots=True)
class Effects:
    """What a step of the state machine asks of the shell, in this order."""

    transition: Transition | None = None
    """The record to append."""
    ending: EndingTransaction | None = None
    """The transaction to write markers for."""
    answers: list[tuple[Waiter, TransactionAnswer]] = field(default_factory=list)

    @property
    def is_concurrent(self) -> bool:
        """Whether the only effect is the answer CONCURRENT_TRANSACTIONS."""
        if self.transition is not None or len(self.answers) != 1:
            return False
        return self.answers[0][1].error is ErrorCode.CONCURRENT_TRANSACTIONS
