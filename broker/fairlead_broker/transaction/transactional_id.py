"""The state machine of one transactional id: requests of its producers, and their effects.

Pure. One transition is in flight at a time, and memory changes when its record is committed (T3),
so a fence that could not be written leaves nothing behind. Sources: KIP-98, KIP-360 (resuming),
KIP-890 (version 2); Kafka's `TransactionCoordinator` and `TransactionMetadata`.

Version 1 ends a transaction and keeps the epoch; only InitProducerId raises it. Version 2 raises it
with each end, and its markers carry the new one. A transaction that the coordinator ends by itself
(because it timed out, or a newer producer found it open) always ends in version 2: the epoch rises,
whatever version its producer uses. After the highest epoch the producer id changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import (
    TRANSACTION_COMPLETION_RETRY_MS,
    TRANSACTION_PARTITION_BYTES,
    TRANSACTION_PARTITIONS_MAX,
    TRANSACTIONAL_ID_OVERHEAD_BYTES,
)
from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_2, EndMarker
from fairlead_broker.transaction.ending import EndingTransaction
from fairlead_broker.transaction.record_rules import require_transaction_record
from fairlead_broker.transaction.records import encode_key, encode_value
from fairlead_broker.transaction.transaction_types import (
    CLIENT_EPOCH_MAX,
    COMPLETED,
    FENCING_EPOCH,
    IDLE,
    NEVER_TIMES_OUT_MS,
    NO_TIME,
    NOTHING_YET,
    PREPARED,
    SUCCESS,
    Effects,
    TransactionAnswer,
    TransactionMetadata,
    TransactionState,
    Transition,
)
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode
from fairlead_wire.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_broker.transaction.ending import TopicPartition
    from fairlead_broker.transaction.transaction_types import ProducerIdAndEpoch, Waiter

_State = TransactionState
_COMMITS: Final = frozenset({_State.PREPARE_COMMIT, _State.COMPLETE_COMMIT})


def memory_of_id(transactional_id: str) -> int:
    """Return how much memory an id takes without a transaction, about."""
    return TRANSACTIONAL_ID_OVERHEAD_BYTES + len(transactional_id.encode())


class TransactionalId:
    """`metadata` is the last committed record; `pending` is the transition in flight.

    `unended` are partitions of a decided transaction that have no marker yet. No record has this,
    so after a load these are all partitions. The shell sets `spare_producer_id` in advance if one
    may be needed; it stays until it is used.
    """

    __slots__ = (
        "_ending",
        "_last_producer_epoch",
        "_retry_ms",
        "coordinator_epoch",
        "metadata",
        "pending",
        "shard_index",
        "spare_producer_id",
        "transactional_id",
        "unended",
    )

    def __init__(
        self,
        transactional_id: str,
        metadata: TransactionMetadata = NOTHING_YET,
        *,
        shard_index: int,
        coordinator_epoch: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.shard_index = shard_index
        self.coordinator_epoch = coordinator_epoch
        self.pending: Transition | None = None
        self.unended: set[TopicPartition] = (
            set(metadata.partitions) if metadata.state in PREPARED else set()
        )
        self.spare_producer_id: int | None = None
        self._last_producer_epoch = NO_PRODUCER_EPOCH
        """The epoch before InitProducerId or an end raised it; no record has it."""
        self._ending: EndingTransaction | None = None
        self._retry_ms: int | None = None

    @property
    def is_unwritten(self) -> bool:
        """Whether it has no record: its first one is not committed, or its tombstone is."""
        return self.metadata is NOTHING_YET

    @property
    def is_unused(self) -> bool:
        """Whether it has no record and none is in flight."""
        return self.metadata is NOTHING_YET and self.pending is None

    @property
    def is_busy(self) -> bool:
        """Whether a record is in flight or markers are being written: most requests wait."""
        return self.pending is not None or self.metadata.state in PREPARED

    @property
    def needs_markers(self) -> bool:
        """Whether the transaction is decided and partitions need markers."""
        return self.metadata.state in PREPARED and bool(self.metadata.partitions)

    @property
    def needs_producer_id(self) -> bool:
        """Whether the next bump of the epoch would take another producer id."""
        return self.spare_producer_id is None and (
            self.metadata is NOTHING_YET or self._is_exhausted
        )

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """Partitions of the open transaction, or those of the decided one without a marker yet."""
        return self.unended if self.metadata.state in PREPARED else self.metadata.partitions

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, about, that of a transition in flight included."""
        count = len(self.metadata.partitions)
        if self.pending is not None and self.pending.metadata is not None:
            count = max(count, len(self.pending.metadata.partitions))
        return memory_of_id(self.transactional_id) + TRANSACTION_PARTITION_BYTES * count

    def added_bytes(
        self, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> int:
        """Return how much more memory it would take if a producer added these partitions."""
        if self._refusal(producer_id, producer_epoch) is not ErrorCode.NONE:
            return 0
        if self.metadata.state is _State.ONGOING:
            partitions = set(partitions) - self.metadata.partitions
        return TRANSACTION_PARTITION_BYTES * len(partitions)

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` has something to do, by the monotonic clock."""
        return self._retry_ms

    def init_producer_id(
        self,
        waiter: Waiter,
        *,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        now_ms: int,
    ) -> Effects:
        """Give a producer its id and a new epoch, which fences all before it.

        `expected` is the id and epoch that a producer has when it goes on after an error (KIP-360).
        """
        metadata = self.metadata
        if self.pending is not None:
            return _answered(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._is_own(expected):
            return _answered(waiter, ErrorCode.PRODUCER_FENCED)
        if metadata.state in PREPARED:
            return _answered(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)
        if metadata.state is _State.ONGOING:
            if expected is not None and expected.producer_epoch != metadata.producer_epoch:
                # A producer that has not begun this transaction was fenced. (Kafka compares only
                # the ids, and lets a zombie that recovers abort the transaction of the newer
                # producer.)
                return _answered(waiter, ErrorCode.PRODUCER_FENCED)
            # The producer retries, and gets its epoch when the old transaction's end is complete.
            return self._prepare(
                waiter,
                is_commit=False,
                version=TRANSACTION_VERSION_2,
                now_ms=now_ms,
                code=ErrorCode.CONCURRENT_TRANSACTIONS,
            )
        empty = metadata._replace(
            state=_State.EMPTY,
            timeout_ms=timeout_ms,
            start_ms=NO_TIME,
            update_ms=now_ms,
            previous_producer_id=metadata.producer_id,
        )
        epoch = metadata.producer_epoch
        expected_epoch = epoch if expected is None else expected.producer_epoch
        last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
        if metadata is NOTHING_YET or (expected_epoch == epoch and self._is_exhausted):
            if self.spare_producer_id is None:
                return _answered(waiter, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            empty = empty._replace(producer_id=self.spare_producer_id, producer_epoch=0)
            if metadata is NOTHING_YET:
                empty = empty._replace(previous_producer_id=empty.producer_id)
        elif expected_epoch == epoch:
            empty = empty._replace(producer_epoch=epoch + 1)
        elif expected_epoch == self._last_producer_epoch:
            # This is a retry: the answer to the first request was lost, and may be lost again.
            last_epoch = self._last_producer_epoch
            empty = empty._replace(previous_producer_id=metadata.previous_producer_id)
        else:
            return _answered(waiter, ErrorCode.PRODUCER_FENCED)
        answer = TransactionAnswer(
            producer_id=empty.producer_id, producer_epoch=empty.producer_epoch
        )
        return self._begin(empty, waiter, answer, last_producer_epoch=last_epoch)

    def _is_own(self, expected: ProducerIdAndEpoch) -> bool:
        """Whether these may be the present producer's, also around a change of the producer id."""
        metadata = self.metadata
        return (
            metadata.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id in (metadata.producer_id, metadata.next_producer_id)
            or (
                expected.producer_id == metadata.previous_producer_id
                and expected.producer_epoch >= CLIENT_EPOCH_MAX
            )
        )

    def add_partitions(
        self,
        waiter: Waiter,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        *,
        transaction_version: int,
        now_ms: int,
    ) -> Effects:
        """Make partitions part of the transaction, which begins with the first ones."""
        if self.pending is not None:
            return _answered(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)
        refusal = self._refusal(producer_id, producer_epoch)
        if refusal is not ErrorCode.NONE:
            return _answered(waiter, refusal)
        metadata = self.metadata
        is_ongoing = metadata.state is _State.ONGOING
        if is_ongoing and partitions <= metadata.partitions:
            return _answered(waiter, ErrorCode.NONE)
        together = metadata.partitions | partitions
        if len(together) > TRANSACTION_PARTITIONS_MAX:
            return _answered(waiter, ErrorCode.POLICY_VIOLATION)
        ongoing = metadata._replace(
            state=_State.ONGOING,
            partitions=together,
            start_ms=metadata.start_ms if is_ongoing else now_ms,
            update_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            client_transaction_version=transaction_version,
        )
        return self._begin(ongoing, waiter, SUCCESS)

    def verify(
        self, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Tell which partitions are part of the open transaction (KIP-890).

        A transition in flight does not matter: the leader that asks has its own guard, which the
        marker of an end removes.
        """
        refusal = self._refusal(producer_id, producer_epoch)
        if refusal is not ErrorCode.NONE:
            return dict.fromkeys(partitions, refusal)
        added = self.metadata.partitions
        return {
            each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        }

    def _refusal(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Return why a producer may not use the open transaction, or begin one."""
        metadata = self.metadata
        if self._is_next(producer_id):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if producer_id != metadata.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer_epoch != metadata.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        if metadata.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def _is_next(self, producer_id: int) -> bool:
        """Whether the producer gets this id when the end is complete."""
        return producer_id == self.metadata.next_producer_id != NO_PRODUCER_ID

    def end(
        self,
        waiter: Waiter,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        transaction_version: int,
        now_ms: int,
    ) -> Effects:
        """Commit or abort as a producer asks; answer it when the decision is durable (T4)."""
        if transaction_version >= TRANSACTION_VERSION_2:
            return self._end_raising_epoch(
                waiter, producer_id, producer_epoch, is_commit=is_commit, now_ms=now_ms
            )
        metadata = self.metadata
        code = ErrorCode.NONE
        if producer_id != metadata.producer_id:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif producer_epoch != metadata.producer_epoch:
            code = ErrorCode.PRODUCER_FENCED
        elif self.pending is not None:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif metadata.state is _State.ONGOING:
            return self._prepare(
                waiter,
                is_commit=is_commit,
                version=transaction_version,
                now_ms=now_ms,
                code=ErrorCode.NONE,
            )
        else:
            code = self._repeated(is_commit=is_commit)
        return _answered(waiter, code)

    def _end_raising_epoch(
        self,
        waiter: Waiter,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        now_ms: int,
    ) -> Effects:
        """End in version 2, in which a retry of a producer has the previous epoch."""
        metadata = self.metadata
        if self.pending is not None or self._is_next(producer_id):
            # Before id and epoch: after an overflow the producer knows newer ones (KAFKA-18660).
            return _answered(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)
        state, epoch = metadata.state, metadata.producer_epoch
        is_after_overflow = (
            state in COMPLETED
            and producer_id == metadata.previous_producer_id != metadata.producer_id
            and producer_epoch == CLIENT_EPOCH_MAX
            and epoch == 0
        )
        if producer_id != metadata.producer_id and not is_after_overflow:
            return _answered(waiter, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        # If the last end kept the epoch, the previous epoch was another producer's, which must get
        # nothing. (Kafka does not check this, and gives a fenced producer the pair of the newer
        # one.)
        has_raised_epoch = metadata.client_transaction_version >= TRANSACTION_VERSION_2
        is_repeated = is_after_overflow or (has_raised_epoch and 0 <= producer_epoch == epoch - 1)
        is_current = producer_epoch == epoch
        if is_current and state in PREPARED:
            # Its last end was answered, and it ends the next transaction before that could begin.
            return _answered(waiter, ErrorCode.CONCURRENT_TRANSACTIONS)
        may_repeat = state in PREPARED or state in COMPLETED
        if not (is_current or (is_repeated and may_repeat)):
            return _answered(waiter, ErrorCode.PRODUCER_FENCED)
        if is_repeated:
            code = self._repeated(is_commit=is_commit)
            current = TransactionAnswer(code, metadata.producer_id, epoch)
            answer = current if code is ErrorCode.NONE else TransactionAnswer(code)
            return Effects(answers=[(waiter, answer)])
        if is_commit and state is not _State.ONGOING:
            return _answered(waiter, ErrorCode.INVALID_TXN_STATE)
        return self._prepare(
            waiter,
            is_commit=is_commit,
            version=TRANSACTION_VERSION_2,
            now_ms=now_ms,
            code=ErrorCode.NONE,
        )

    def _repeated(self, *, is_commit: bool) -> ErrorCode:
        """Answer an end that may be a retry: a decision stays (T5)."""
        state = self.metadata.state
        if state is _State.EMPTY or (state in _COMMITS) != is_commit:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE if state in COMPLETED else ErrorCode.CONCURRENT_TRANSACTIONS

    def maybe_abort_timed_out(self, *, now_ms: int) -> Effects:
        """Abort a transaction that has been open for too long, and fence its producer (T6)."""
        metadata = self.metadata
        if (
            metadata.state is not _State.ONGOING
            or self.pending is not None
            or metadata.timeout_ms == NEVER_TIMES_OUT_MS
            or metadata.start_ms + metadata.timeout_ms >= now_ms
        ):
            return Effects()
        return self._prepare(
            None,
            is_commit=False,
            version=TRANSACTION_VERSION_2,
            now_ms=now_ms,
            code=ErrorCode.NONE,
        )

    def maybe_expire(self, *, now_ms: int, expiration_ms: int) -> Effects:
        """Forget an id that has not been in use for so long."""
        metadata = self.metadata
        if (
            metadata.state not in IDLE
            or metadata is NOTHING_YET
            or self.pending is not None
            or metadata.update_ms > now_ms - expiration_ms
        ):
            return Effects()
        return self._begin(None, None, SUCCESS)

    def resume(self, *, now_ms: int) -> Effects:
        """Go on after a load: write the markers of a decided transaction to all partitions (T7)."""
        return self._end_decided(now_ms=now_ms)

    def partitions_ended(
        self, ending: EndingTransaction, partitions: Collection[TopicPartition], *, now_ms: int
    ) -> Effects:
        """Note partitions that have their marker; the end is complete with the last one (T4)."""
        if ending is not self._ending:
            # These are of an earlier transaction, whose marker is the same in version 1.
            return Effects()
        self.unended.difference_update(partitions)
        if self.unended:
            return Effects()
        self._ending = None
        return self._complete(now_ms=now_ms)

    def tick(self) -> Effects:
        """Write the completion of an end again if that failed."""
        if self._retry_ms is None:
            return Effects()
        self._retry_ms = None
        return Effects(self.pending)

    def timed_out(self, transition: Transition) -> Effects:
        """Answer the waiter that the write takes too long; the record may still be committed."""
        waiter, transition.waiter = transition.waiter, None
        return _answered(waiter, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def written(
        self, transition: Transition, code: ErrorCode, *, now_ms: int, now_monotonic_ms: int
    ) -> Effects:
        """Apply a committed record and go on from there; otherwise `code` says why it failed."""
        waiter, transition.waiter = transition.waiter, None
        metadata = transition.metadata
        if code is not ErrorCode.NONE:
            if metadata is None or metadata.state not in COMPLETED:
                self.pending = None
            elif not transition.violation:
                # It stays pending: all partitions have their marker, so no other step may come
                # first.
                self._retry_ms = now_monotonic_ms + TRANSACTION_COMPLETION_RETRY_MS
            return _answered(waiter, code)
        self.pending = None
        self.metadata = NOTHING_YET if metadata is None else metadata
        self._last_producer_epoch = transition.last_producer_epoch
        if self.spare_producer_id in (self.metadata.producer_id, self.metadata.next_producer_id):
            self.spare_producer_id = None
        effects = self._end_decided(now_ms=now_ms)
        if waiter is not None:
            effects.answers.append((waiter, transition.answer))
        return effects

    @property
    def _is_exhausted(self) -> bool:
        return self.metadata.producer_epoch >= CLIENT_EPOCH_MAX

    def _prepare(
        self, waiter: Waiter | None, *, is_commit: bool, version: int, now_ms: int, code: ErrorCode
    ) -> Effects:
        """Decide the transaction, or end one that may have begun unknown to the coordinator.

        In version 2 the answer has the id and epoch that are valid once the end is complete.
        """
        metadata = self.metadata
        producer_id, epoch = metadata.producer_id, metadata.producer_epoch
        next_producer_id, last_epoch = NO_PRODUCER_ID, self._last_producer_epoch
        answer = TransactionAnswer(code)
        if version >= TRANSACTION_VERSION_2:
            last_epoch = epoch
            if self._is_exhausted:
                if self.spare_producer_id is None:
                    return _answered(waiter, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                next_producer_id = self.spare_producer_id
            # At the highest epoch of all it stays there (KAFKA-20090).
            epoch = min(epoch + 1, FENCING_EPOCH)
            if code is ErrorCode.NONE:
                answer = (
                    TransactionAnswer(code, producer_id, epoch)
                    if next_producer_id == NO_PRODUCER_ID
                    else TransactionAnswer(code, next_producer_id, 0)
                )
        prepared = metadata._replace(
            state=_State.PREPARE_COMMIT if is_commit else _State.PREPARE_ABORT,
            producer_epoch=epoch,
            start_ms=metadata.start_ms if metadata.state is _State.ONGOING else now_ms,
            update_ms=now_ms,
            previous_producer_id=producer_id,
            next_producer_id=next_producer_id,
            client_transaction_version=version,
        )
        return self._begin(prepared, waiter, answer, last_producer_epoch=last_epoch)

    def _end_decided(self, *, now_ms: int) -> Effects:
        """Have markers written if the transaction is decided; without partitions it is complete."""
        metadata = self.metadata
        if metadata.state not in PREPARED:
            return Effects()
        if not metadata.partitions:
            return self._complete(now_ms=now_ms)
        self.unended = set(metadata.partitions)
        self._ending = EndingTransaction(
            self.transactional_id,
            self.shard_index,
            EndMarker(
                metadata.producer_id,
                metadata.producer_epoch,
                self.coordinator_epoch,
                is_commit=metadata.state in _COMMITS,
                transaction_version=metadata.client_transaction_version,
            ),
            metadata.partitions,
        )
        return Effects(ending=self._ending)

    def _complete(self, *, now_ms: int) -> Effects:
        metadata = self.metadata
        is_commit = metadata.state in _COMMITS
        completed = metadata._replace(
            state=_State.COMPLETE_COMMIT if is_commit else _State.COMPLETE_ABORT,
            partitions=frozenset(),
            update_ms=now_ms,
            previous_producer_id=metadata.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
        if metadata.next_producer_id != NO_PRODUCER_ID:
            completed = completed._replace(producer_id=metadata.next_producer_id, producer_epoch=0)
        return self._begin(completed, None, SUCCESS)

    def _begin(
        self,
        metadata: TransactionMetadata | None,
        waiter: Waiter | None,
        answer: TransactionAnswer,
        *,
        last_producer_epoch: int | None = None,
    ) -> Effects:
        """Begin to write a record; None for a tombstone."""
        transition = Transition(
            encode_key(self.transactional_id),
            None if metadata is None else encode_value(metadata),
            metadata,
            self._last_producer_epoch if last_producer_epoch is None else last_producer_epoch,
            waiter,
            answer,
        )
        try:
            require_transaction_record(metadata, before=self.metadata)
        except InvariantViolation as violation:
            transition.violation = str(violation)
        self.pending = transition
        return Effects(transition)


def _answered(waiter: Waiter | None, code: ErrorCode) -> Effects:
    if waiter is None:
        return Effects()
    return Effects(answers=[(waiter, TransactionAnswer(code))])
