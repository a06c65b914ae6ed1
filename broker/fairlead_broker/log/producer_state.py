"""What a log remembers of idempotent producers: the window that tells a retry from a gap.

Kept per producer: epoch and the last five batches (a client has at most five in flight). A batch
continues the sequence, or repeats a remembered batch exactly (a retry whose answer was lost:
answered with the original offsets, not appended), or is refused. A producer that the log does not
know may start with any sequence: its records may just have been deleted.

The memory is bounded: `PRODUCERS_PER_LOG_MAX` producers, least recently active first out, and
`producer.id.expiration.ms` of silence.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fairlead_broker.limits import PRODUCERS_PER_LOG_MAX
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import BatchHeader

WINDOW_BATCHES: Final = 5
SEQUENCE_MASK: Final = 0x7FFFFFFF
NO_OFFSET: Final = -1


class ProducedBatch(NamedTuple):
    """One remembered batch; offsets are those it was given, they outlive its segment."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer. `batches` is oldest first and never longer than the window."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_active_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducedBatch] = []
        self.last_active_ms = 0
        self.coordinator_epoch = -1
        self.transaction_first_offset = NO_OFFSET


class ProducerState:
    """All producers of one log, least recently active first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: OrderedDict[int, ProducerEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> ProducedBatch | None:
        """The remembered batch that this one repeats; None if it may be appended.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for an epoch that was superseded,
        OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, or a repeat from before the window.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if epoch != entry.epoch:
            _check_new_epoch(entry, epoch, first_sequence)
            return None
        batches = entry.batches
        last = batches[-1].last_sequence if batches else -1
        if first_sequence == (last + 1) & SEQUENCE_MASK:
            return None
        for batch in batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} epoch {epoch}: sequence {first_sequence} after {last}",
        )

    def record(self, producer_id: int, epoch: int, batch: ProducedBatch, now_ms: int) -> None:
        """Remember a batch that was appended."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
            if len(self._entries) > PRODUCERS_PER_LOG_MAX:
                self._entries.popitem(last=False)
        batches = entry.batches
        batches.append(batch)
        if len(batches) > WINDOW_BATCHES:
            del batches[0]
        entry.last_active_ms = now_ms
        self._entries.move_to_end(producer_id)

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Take in a batch that is already in the log: no test, the leader made it."""
        if header.producer_id < 0 or header.is_control:
            return
        batch = ProducedBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        self.record(header.producer_id, header.producer_epoch, batch, now_ms)

    def restore(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        """Replace everything with what a snapshot holds; silence counts from now."""
        self._entries.clear()
        for entry in entries:
            entry.last_active_ms = now_ms
            self._entries[entry.producer_id] = entry
            if len(self._entries) > PRODUCERS_PER_LOG_MAX:
                self._entries.popitem(last=False)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget who was silent for too long; answers how many."""
        silent_since = now_ms - expiration_ms
        expired = 0
        while self._entries:
            entry = next(iter(self._entries.values()))
            if entry.last_active_ms > silent_since:
                break
            del self._entries[entry.producer_id]
            expired += 1
        return expired


def _check_new_epoch(entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
    if epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {entry.producer_id}: epoch {epoch} is below {entry.epoch}",
        )
    if first_sequence != 0:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {entry.producer_id}: new epoch {epoch} starts with {first_sequence}",
        )
