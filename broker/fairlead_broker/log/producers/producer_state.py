"""What a log remembers of producers: the window that tells a retry from a gap, and transactions.

Kept per producer: epoch and the last five batches (a client has at most five in flight). A batch
continues the sequence, or repeats a remembered batch exactly (a retry whose answer was lost:
answered with the original offsets, not appended), or is refused. A producer that the log does not
know may start with any sequence: its records may just have been deleted.

A transaction is open from its first batch to its marker. `first_unstable_offset` is where the
first begins that is open, or whose end is not committed yet: up to there readers of committed
records may read (Kafka's `ProducerStateManager`).

The memory is bounded: `PRODUCERS_PER_LOG_MAX` idle producers, least recently active first out, and
`producer.id.expiration.ms` of silence; where a broker's logs have too many together, `keep_idle`
takes those of the largest. One with an open transaction is never forgotten, for that
would let the last stable offset pass it; so as many of these are allowed, and more are refused.
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
"""Only a coordinator uses it, to end a transaction of a producer id that has no epoch left."""


class ProducedBatch(NamedTuple):
    """One remembered batch; offsets are those it was given, they outlive its segment."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer. `batches` is oldest first and never longer than the window.

    `last_timestamp` is that of its newest batch or marker, `coordinator_epoch` of its newest
    marker. A transaction is open while `transaction_first_offset` is one.
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
        """Enter an epoch; batches of another say nothing about its sequences."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerState:
    """All producers of one log.

    Idle ones are least recently active first, those with an open transaction in the order in which
    they were opened. A producer is in one of the two.
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
        """Ended transactions that hold the last stable offset; see `UnreplicatedTransactions`."""
        return list(self._unreplicated)

    @property
    def has_seen_markers(self) -> bool:
        """True if a transaction of a producer that is known ended in this log."""
        return any(entry.coordinator_epoch != NO_COORDINATOR_EPOCH for entry in self)

    @property
    def oldest_open(self) -> ProducerEntry | None:
        """The producer whose transaction has been open for longest."""
        return next(iter(self._open.values()), None)

    @property
    def oldest_open_ms(self) -> int | None:
        """When the producer of the oldest open transaction wrote last, in record time."""
        entry = self.oldest_open
        return None if entry is None else entry.last_timestamp

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._idle.get(producer_id) or self._open.get(producer_id)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the end of what is committed and decided."""
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
        INVALID_TXN_STATE while the producer has a transaction open, which this is no part of.
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
        """Return what a first batch has to be appended with, once its coordinator has agreed.

        None if a transaction of this producer and epoch is open here, or if the batch is no first
        one: its sequence was here before. Nothing has to be asked then, and the append says what it
        is; a guard would make the next transaction begin with that sequence.
        KafkaError INVALID_PRODUCER_EPOCH for an epoch that was superseded.
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
        """Do as `find_duplicate` for a batch of a transaction.

        It belongs to an open transaction, or `guard` shows that its coordinator knows of it: else
        INVALID_TXN_STATE. A group coordinator's batches have no sequences. NOT_ENOUGH_REPLICAS,
        which every client answers with a retry, where too many transactions are open.
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
        """Refuse a marker that is older than what is known.

        KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED. From transaction
        version 2 on each transaction ends in an epoch of its own: one that is open in the marker's
        epoch is a later one (KIP-1228). With none open the marker repeats one that was written.
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

    def lies_below(self, offset: int) -> bool:
        """Tell whether all that is known comes from below an offset: so it was known there, too.

        Of markers nobody knows where they are, so there must have been none.
        """
        if self._open or self._unreplicated:
            return False
        return all(
            entry.coordinator_epoch == NO_COORDINATOR_EPOCH
            and entry.batches
            and entry.batches[-1].last_offset < offset
            for entry in self._idle.values()
        )

    def first_open_beside(self, producer_id: int) -> int | None:
        """Return the lowest first offset of the open transactions of others."""
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
                # No leader takes it (see `find_duplicate`), but whoever made this log did.
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
        """Remember a batch of a transaction, which it opens if it is the first."""
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
        """Take in a marker that is in the log, at `offset`; it may end nothing."""
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
        """Take in a data batch that is already in the log: no test, the leader made it."""
        if header.producer_id < 0:
            return
        batch = ProducedBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        # What compaction has emptied opens nothing: its marker may be gone.
        if header.attributes & TRANSACTIONAL_MASK and header.records_count:
            self.record_transactional(header.producer_id, header.producer_epoch, batch, now_ms)
        else:
            self.record(header.producer_id, header.producer_epoch, batch, now_ms)

    def restore(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        """Replace everything with what a snapshot holds; silence counts from now."""
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
        """Let ended transactions count that no snapshot tells of, besides those that are known."""
        merged = sorted({*ended, *self._unreplicated}, key=lambda each: each.marker_offset)
        self._unreplicated.clear()
        for each in merged:
            self._unreplicated.add(*each)
        self._note_unstable()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget who was silent for too long; answers how many."""
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
        """How many producers a coordinator was asked about, and have opened nothing since."""
        return len(self._verifications)

    def keep_verifications(self, count: int) -> int:
        """Forget those of before but for so many, oldest first; answers how many."""
        return self._verifications.keep(count)

    def keep_idle(self, count: int) -> int:
        """Forget idle producers but for so many, least recently active first; answers how many."""
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
        """Work out anew where the first transaction begins that is open or not committed."""
        entry = next(iter(self._open.values()), None)
        first = self._unreplicated.first_offset
        if entry is not None and (first is None or entry.transaction_first_offset < first):
            first = entry.transaction_first_offset
        self.first_unstable_offset = first


def _was_here(entry: ProducerEntry, sequence: int) -> bool:
    """Tell whether a sequence is not after the last one; they wrap from 2**31 - 1 to 0."""
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
