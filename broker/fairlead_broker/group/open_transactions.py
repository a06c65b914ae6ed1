"""What open transactions have staged for one group: offsets that count once they are committed.

Pure. An offset that a producer commits in a transaction is a record like any other, and it waits
for the transaction's end (KIP-98, Kafka's `OffsetMetadataManager`). Of several records of one key
the last one counts, wherever the ends of the transactions are: compaction keeps that record, so any
other order would change with a compaction (R22, G22). Hence a staged offset that a later record has
overtaken is worth nothing, but its partition is unstable all the same until the transaction ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.limits import STAGED_OFFSET_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

TopicPartition = tuple[str, int]


class StagedOffset(NamedTuple):
    """An offset in an open transaction, as the value of its record.

    `batch_offset`, the base offset of its batch, orders it among the records of others. `value` is
    None once a later record of the same key is committed.
    """

    batch_offset: int
    value: bytes | None


def _staged_bytes(staged: StagedOffset) -> int:
    return STAGED_OFFSET_BYTES + (0 if staged.value is None else len(staged.value))


class OpenTransactions:
    """By producer and partition; producers and partitions without a staged offset are not here.

    `held_bytes` is what they take, about.
    """

    __slots__ = ("_by_producer", "_producers", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._by_producer: dict[int, dict[TopicPartition, StagedOffset]] = {}
        self._producers: dict[TopicPartition, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self._producers

    def __iter__(self) -> Iterator[TopicPartition]:
        """Each partition that is unstable."""
        return iter(self._producers)

    @property
    def producer_ids(self) -> list[int]:
        return list(self._by_producer)

    def values_of(self, topic: str) -> Iterator[tuple[int, bytes | None]]:
        """Yield partition and value of each staged offset of a topic."""
        for staged in self._by_producer.values():
            for (name, partition), (_, value) in staged.items():
                if name == topic:
                    yield partition, value

    def stage(self, producer_id: int, place: TopicPartition, staged: StagedOffset) -> None:
        """Keep an offset until its transaction ends; it replaces an earlier one of the producer."""
        by_place = self._by_producer.setdefault(producer_id, {})
        replaced = by_place.get(place)
        self.held_bytes += _staged_bytes(staged)
        if replaced is not None:
            self.held_bytes -= _staged_bytes(replaced)
        by_place[place] = staged
        producers = self._producers.setdefault(place, [])
        if producer_id not in producers:
            producers.append(producer_id)

    def overtake(self, place: TopicPartition, batch_offset: int | None = None) -> None:
        """Note that a record of a partition counts: what is staged before it does no more.

        It is behind everything that is staged, or in the batch at `batch_offset`.
        """
        for producer_id in self._producers.get(place, ()):
            staged = self._by_producer[producer_id]
            if batch_offset is None or staged[place].batch_offset < batch_offset:
                self.held_bytes -= _staged_bytes(staged[place])
                staged[place] = staged[place]._replace(value=None)
                self.held_bytes += _staged_bytes(staged[place])

    def forget(self, place: TopicPartition) -> None:
        """Drop what is staged for a partition: a tombstone is behind it."""
        for producer_id in self._producers.pop(place, ()):
            staged = self._by_producer[producer_id]
            self.held_bytes -= _staged_bytes(staged.pop(place))
            if not staged:
                del self._by_producer[producer_id]

    def end(self, producer_id: int) -> dict[TopicPartition, StagedOffset]:
        """End a producer's transaction, and return what it had staged."""
        ended = self._by_producer.pop(producer_id, {})
        for place, staged in ended.items():
            self.held_bytes -= _staged_bytes(staged)
            producers = self._producers[place]
            producers.remove(producer_id)
            if not producers:
                del self._producers[place]
        return ended
