"""What a log remembers of producers: the window that tells a retry from a gap, and transactions.

For each producer it keeps the epoch and the last five batches (a client has at most five in
flight). A batch is accepted if it continues the sequence. If it repeats a remembered batch exactly,
it is a retry whose answer was lost: the log answers with the original offsets, and does not append
it. All others are refused. A producer that the log does not know may start with any sequence: its
records may just have been deleted.

A transaction is open from its first batch to its marker. `first_unstable_offset` is the beginning
of the first transaction that is open, or whose end is not committed yet: `read_committed` consumers
may read up to there (Kafka's `ProducerStateManager`).

The memory is bounded: `PRODUCERS_PER_LOG_MAX` idle producers, of which the least recently active
is forgotten first, and `producer.id.expiration.ms` of silence. If a broker's logs have too many
together, `keep_idle` drops those of the largest logs. A producer with an open transaction is never
forgotten, because the last stable offset could then pass the transaction. So as many of these are
allowed, and more are refused.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from fairlead_broker.limits import PRODUCERS_PER_LOG_MAX
from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_2, EndMarker
from fairlead_broker.log.producers.unreplicated_transactions import (
    EndedTransaction,
    UnreplicatedTransactions,
)
from fairlead_broker.log.producers.verification import NO_SEQUENCE, VerificationGuard, Verifications
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import TRANSACTIONAL_MASK, BatchHeader

WINDOW_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFFFFFF
NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
LAST_EPOCH: Final = 2**15 - 1
"""Only a coordinator uses this epoch, to end a transaction of a producer id without epochs left."""


class ProducedBatch(NamedTuple):
    """One remembered batch with its offsets, which may outlive its segment."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer. `batches` is oldest first and never longer than the window.

    `last_timestamp` is that of its newest batch or marker, `coordinator_epoch` of its newest
    marker. A transaction is open while `transaction_first_offset` is an offset.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_active_ms",
        "last_timestamp",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducedBatch] = []
        self.last_active_ms = 0
        self.last_timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.transaction_first_offset = NO_OFFSET

    def take_epoch(self, epoch: int) -> None:
        """Enter an epoch; drop batches of another epoch, which has other sequences."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerState:
    """All producers of one log.

    Idle producers are ordered by activity, the least recent first. Producers with an open
    transaction are in the order in which it was opened. A producer is in one of the two tables.
    """

    __slots__ = ("_idle", "_open", "_unreplicated", "_verifications", "first_unstable_offset")

    def __init__(self) -> None:
        self._idle: OrderedDict[int, ProducerEntry] = OrderedDict()
        self._open: OrderedDict[int, ProducerEntry] = OrderedDict()
        self._unreplicated = UnreplicatedTransactions()
        self._verifications = Verifications()
        self.first_unstable_offset: int | None = None

    def __len__(self) -> int:
        return len(self._idle) + len(self._open)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return chain(self._idle.values(), self._open.values())

    @property
    def unreplicated(self) -> list[EndedTransaction]:
        """Ended transactions that still hold back the LSO; see `UnreplicatedTransactions`."""
        return list(self._unreplicated)

    @property
    def has_seen_markers(self) -> bool:
        """True if a transaction of a known producer has ended in this log."""
        return any(entry.coordinator_epoch != NO_COORDINATOR_EPOCH for entry in self)

    @property
    def has_transactions(self) -> bool:
        """True if a transaction is open, or one of a known producer has ended in this log."""
        return bool(self._open or self._unreplicated) or self.has_seen_markers

    @property
    def oldest_open(self) -> ProducerEntry | None:
        """The producer whose transaction has been open longest."""
        return next(iter(self._open.values()), None)

    @property
    def oldest_open_ms(self) -> int | None:
        """When the producer of the oldest open transaction wrote last, in record time."""
        entry = self.oldest_open
        return None if entry is None else entry.last_timestamp

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._idle.get(producer_id) or self._open.get(producer_id)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset up to which records are committed and transactions have ended."""
        self._unreplicated.forget_below(high_watermark)
        self._note_unstable()
        first_unstable = self.first_unstable_offset
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    def find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> ProducedBatch | None:
        """Return the remembered batch that this one repeats; None if it may be appended.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for an epoch that was superseded,
        OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, or a repeat from before the window,
        INVALID_TXN_STATE while the producer has an open transaction: the batch is not part of it.
        """
        entry = self._idle.get(producer_id)
        if entry is not None:
            if epoch == entry.epoch:
                batches = entry.batches
                last = batches[-1].last_sequence if batches else NO_SEQUENCE
                if first_sequence == (last + 1) & SEQUENCE_MASK:
                    return None
            return _continues_or_repeats(entry, epoch, first_sequence, last_sequence)
        entry = self._open.get(producer_id)
        if entry is None:
            return None
        repeated = _continues_or_repeats(entry, epoch, first_sequence, last_sequence)
        if repeated is None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open, and the batch is not part of it",
            )
        return repeated

    def begin_verification(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        *,
        supports_epoch_bump: bool,
    ) -> VerificationGuard | None:
        """Return the guard for appending a first batch, once its coordinator has agreed.

        None if a transaction of this producer and epoch is open here, or if the batch's sequence
        was here before, so it is not a first batch. The coordinator need not be asked then, and the
        append accepts or refuses the batch. A guard would let the next transaction begin with that
        sequence. KafkaError INVALID_PRODUCER_EPOCH for an epoch that was superseded.
        """
        entry = self.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise _superseded(entry, epoch)
            if epoch == entry.epoch and (
                entry.transaction_first_offset >= 0 or _was_here(entry, first_sequence)
            ):
                return None
        return self._verifications.begin(
            producer_id, epoch, first_sequence, supports_epoch_bump=supports_epoch_bump
        )

    def check_transactional(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        guard: VerificationGuard | None,
        *,
        is_from_coordinator: bool,
    ) -> ProducedBatch | None:
        """Do the same as `find_duplicate` for a batch of a transaction.

        INVALID_TXN_STATE unless the batch belongs to an open transaction, or `guard` shows that its
        coordinator knows the transaction. A group coordinator's batches have no sequences.
        NOT_ENOUGH_REPLICAS, after which every client tries again, if too many transactions are
        open.
        """
        entry = self.get(producer_id)
        if entry is not None and not is_from_coordinator:
            repeated = _repeated(entry, epoch, first_sequence, last_sequence)
            if repeated is not None:
                return repeated
        is_open = entry is not None and entry.transaction_first_offset >= 0
        if entry is not None and epoch < entry.epoch:
            raise _superseded(entry, epoch)
        if not is_open and len(self._open) >= PRODUCERS_PER_LOG_MAX:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self._open)} transactions are open, which is as many as may be",
            )
        if entry is None or not is_open or epoch != entry.epoch:
            verification = self._verifications.check(producer_id, guard)
            if not is_from_coordinator and (
                first_sequence > verification.lowest_sequence
                or (entry is None and first_sequence != 0 and verification.supports_epoch_bump)
            ):
                raise _out_of_order(producer_id, epoch, first_sequence, NO_SEQUENCE)
        if entry is not None and not is_from_coordinator:
            _continues_or_repeats(entry, epoch, first_sequence, last_sequence)
        return None

    def check_marker(self, marker: EndMarker) -> None:
        """Refuse a marker that is older than the state of its producer.

        KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED. From transaction
        version 2 on each transaction ends in its own epoch: a transaction that is open in the
        marker's epoch is a later one (KIP-1228). If none is open, the marker is a repetition.
        """
        entry = self.get(marker.producer_id)
        if entry is None:
            return
        epoch = marker.producer_epoch
        is_too_old = epoch < entry.epoch or (
            epoch == entry.epoch
            and marker.transaction_version >= TRANSACTION_VERSION_2
            and entry.transaction_first_offset >= 0
            and epoch != LAST_EPOCH
        )
        if is_too_old:
            raise _superseded(entry, epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {entry.producer_id}: coordinator epoch {marker.coordinator_epoch} is"
                f" below {entry.coordinator_epoch}",
            )

    def transaction_of(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's open transaction; None if there is none."""
        entry = self._open.get(producer_id)
        return None if entry is None else entry.transaction_first_offset

    def maybe_cut_to(self, end_offset: int) -> bool:
        """Forget all from an offset on, where the log ends now; False if what is left is unknown.

        Nothing has changed then. It is unknown after markers, whose offsets are not kept, and if
        the log has lost all batches of a producer that are remembered. The window of the others
        gets shorter: a client has had answers to all older batches before it sent the newest one.
        """
        if self._open or self._unreplicated:
            return False
        for entry in self._idle.values():
            has_markers = entry.coordinator_epoch != NO_COORDINATOR_EPOCH
            if has_markers or not entry.batches or entry.batches[0].last_offset >= end_offset:
                return False
        for entry in self._idle.values():
            batches = entry.batches
            while batches[-1].last_offset >= end_offset:
                del batches[-1]
                entry.last_timestamp = batches[-1].timestamp
        return True

    def first_open_beside(self, producer_id: int) -> int | None:
        """Return the lowest first offset of open transactions of other producers."""
        for entry in self._open.values():
            if entry.producer_id != producer_id:
                return entry.transaction_first_offset
        return None

    def record(self, producer_id: int, epoch: int, batch: ProducedBatch, now_ms: int) -> None:
        """Remember a batch that was appended, outside of transactions."""
        entry = self._idle.get(producer_id)
        if entry is None:
            entry = self._open.get(producer_id)
            if entry is not None:
                # No Fairlead leader accepts it (see `find_duplicate`), but this log has it.
                self._remember(entry, epoch, batch, now_ms)
                return
            entry = self._idle[producer_id] = ProducerEntry(producer_id, epoch)
            self._bound_idle()
        if entry.epoch != epoch:
            entry.take_epoch(epoch)
        batches = entry.batches
        batches.append(batch)
        if len(batches) > WINDOW_BATCHES:
            del batches[0]
        entry.last_timestamp = batch.timestamp
        entry.last_active_ms = now_ms
        self._idle.move_to_end(producer_id)

    def record_transactional(
        self, producer_id: int, epoch: int, batch: ProducedBatch, now_ms: int
    ) -> None:
        """Remember a batch of a transaction; the first batch opens the transaction."""
        entry = self._open.get(producer_id)
        if entry is None:
            entry = self._idle.pop(producer_id, None) or ProducerEntry(producer_id, epoch)
            entry.transaction_first_offset = batch.first_offset
            self._open[producer_id] = entry
            if self.first_unstable_offset is None:
                self.first_unstable_offset = batch.first_offset
        self._verifications.opened(producer_id)
        self._remember(entry, epoch, batch, now_ms)

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        *,
        offset: int,
        timestamp: int,
        now_ms: int,
    ) -> None:
        """Apply a marker that is in the log, at `offset`; it may end no transaction."""
        entry = self._open.pop(producer_id, None)
        if entry is not None:
            self._unreplicated.add(entry.transaction_first_offset, offset)
            entry.transaction_first_offset = NO_OFFSET
            self._note_unstable()
        else:
            entry = self._idle.pop(producer_id, None) or ProducerEntry(producer_id, epoch)
        entry.take_epoch(epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.last_active_ms = now_ms
        self._idle[producer_id] = entry
        self._bound_idle()
        self._verifications.ended(producer_id, epoch)

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Apply a data batch that is already in the log, without checks: a leader appended it."""
        if header.producer_id < 0:
            return
        batch = ProducedBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        # A batch without records, from compaction, opens no transaction: its marker may be gone.
        if header.attributes & TRANSACTIONAL_MASK and header.records_count:
            self.record_transactional(header.producer_id, header.producer_epoch, batch, now_ms)
        else:
            self.record(header.producer_id, header.producer_epoch, batch, now_ms)

    def restore(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        """Replace everything by the content of a snapshot; expiration counts from now."""
        self._idle.clear()
        self._open.clear()
        self._unreplicated.clear()
        opened = []
        for entry in entries:
            entry.last_active_ms = now_ms
            if entry.transaction_first_offset >= 0:
                opened.append(entry)
            else:
                self._idle[entry.producer_id] = entry
                self._bound_idle()
        opened.sort(key=lambda entry: entry.transaction_first_offset)
        for entry in opened:
            self._open[entry.producer_id] = entry
        self._note_unstable()

    def add_unreplicated(self, ended: Iterable[EndedTransaction]) -> None:
        """Add ended transactions, which no snapshot has, to those that are known."""
        merged = sorted({*ended, *self._unreplicated}, key=lambda each: each.marker_offset)
        self._unreplicated.clear()
        for each in merged:
            self._unreplicated.add(*each)
        self._note_unstable()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget idle producers that were silent for too long; return how many."""
        silent_since = now_ms - expiration_ms
        expired = 0
        while self._idle:
            entry = next(iter(self._idle.values()))
            if entry.last_active_ms > silent_since:
                break
            del self._idle[entry.producer_id]
            expired += 1
        self._verifications.expire(now_ms, expiration_ms)
        return expired

    @property
    def idle_count(self) -> int:
        """How many producers have no transaction open."""
        return len(self._idle)

    @property
    def verification_count(self) -> int:
        """How many producers wait for a verification, or have opened no transaction since one."""
        return len(self._verifications)

    def keep_verifications(self, count: int) -> int:
        """Forget the oldest verifications but `count`; return how many were forgotten."""
        return self._verifications.keep(count)

    def keep_idle(self, count: int) -> int:
        """Forget the least recently active idle producers but `count`; return how many."""
        forgotten = max(0, len(self._idle) - count)
        for _ in range(forgotten):
            self._idle.popitem(last=False)
        return forgotten

    def _remember(
        self, entry: ProducerEntry, epoch: int, batch: ProducedBatch, now_ms: int
    ) -> None:
        if entry.epoch != epoch:
            entry.take_epoch(epoch)
        batches = entry.batches
        if batch.first_sequence >= 0:
            batches.append(batch)
            if len(batches) > WINDOW_BATCHES:
                del batches[0]
        entry.last_timestamp = batch.timestamp
        entry.last_active_ms = now_ms

    def _bound_idle(self) -> None:
        if len(self._idle) > PRODUCERS_PER_LOG_MAX:
            self._idle.popitem(last=False)

    def _note_unstable(self) -> None:
        """Compute again where the first transaction begins that is open or not committed."""
        entry = next(iter(self._open.values()), None)
        first = self._unreplicated.first_offset
        if entry is not None and (first is None or entry.transaction_first_offset < first):
            first = entry.transaction_first_offset
        self.first_unstable_offset = first


def _was_here(entry: ProducerEntry, sequence: int) -> bool:
    """Tell whether a sequence is not after the last one; sequences wrap from 2**31 - 1 to 0."""
    batches = entry.batches
    if not batches:
        return False
    return (batches[-1].last_sequence - sequence) & SEQUENCE_MASK <= SEQUENCE_MASK >> 1


def _repeated(
    entry: ProducerEntry, epoch: int, first_sequence: int, last_sequence: int
) -> ProducedBatch | None:
    if epoch == entry.epoch:
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
    return None


def _continues_or_repeats(
    entry: ProducerEntry, epoch: int, first_sequence: int, last_sequence: int
) -> ProducedBatch | None:
    if epoch != entry.epoch:
        _check_new_epoch(entry, epoch, first_sequence)
        return None
    batches = entry.batches
    last = batches[-1].last_sequence if batches else NO_SEQUENCE
    if first_sequence == (last + 1) & SEQUENCE_MASK:
        return None
    repeated = _repeated(entry, epoch, first_sequence, last_sequence)
    if repeated is None:
        raise _out_of_order(entry.producer_id, epoch, first_sequence, last)
    return repeated


def _check_new_epoch(entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
    if epoch < entry.epoch:
        raise _superseded(entry, epoch)
    if first_sequence != 0:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {entry.producer_id}: new epoch {epoch} starts with {first_sequence}",
        )


def _superseded(entry: ProducerEntry, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {entry.producer_id}: epoch {epoch} is superseded by {entry.epoch}",
    )


def _out_of_order(producer_id: int, epoch: int, first_sequence: int, last: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} epoch {epoch}: sequence {first_sequence} after {last}",
    )
