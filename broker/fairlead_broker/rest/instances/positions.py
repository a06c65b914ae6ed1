"""The position of an instance in each partition that it has. Pure.

The records of a read count as received when the client sends the next read. Only then may they be
committed automatically, so the records of an answer that was lost are read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TopicPartition: TypeAlias = "tuple[str, int]"


class Position:
    """A position in one partition; `offset` is the next to read, None while it is looked up."""

    __slots__ = ("committed", "is_reset", "offset", "received")

    def __init__(self) -> None:
        self.offset: int | None = None
        self.received: int | None = None
        """The client has received all records before this offset."""
        self.committed: int | None = None
        """The offset that this instance has committed, or found as the committed one."""
        self.is_reset = False
        """True if the log does not have the offset: `auto.offset.reset` says where to go on."""

    def start(self, offset: int, *, committed: int | None = None) -> None:
        """Begin at an offset that was looked up, or that the client has chosen."""
        self.offset = self.received = offset
        self.committed = committed
        self.is_reset = False

    def reset(self) -> None:
        """Have the position looked up by `auto.offset.reset`."""
        self.offset = None
        self.is_reset = True


class Positions:
    """The partitions that an instance reads, in the order in which it reads them."""

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, Position] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._positions

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._positions)

    def get(self, partition: TopicPartition) -> Position | None:
        """Return the position in a partition, None if the instance does not have it."""
        return self._positions.get(partition)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin with partitions whose offsets are to be looked up."""
        for partition in partitions:
            self._positions.setdefault(partition, Position())

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions."""
        for partition in partitions:
            self._positions.pop(partition, None)

    def clear(self) -> None:
        """Forget all partitions."""
        self._positions.clear()

    def readable(self) -> list[tuple[TopicPartition, Position, int]]:
        """Return the partitions that can be read, with their offsets, the next one first."""
        return [
            (partition, position, position.offset)
            for partition, position in self._positions.items()
            if position.offset is not None
        ]

    def unknown(self) -> list[TopicPartition]:
        """Return the partitions whose offsets are to be looked up."""
        return [key for key, position in self._positions.items() if position.offset is None]

    def served(self, partition: TopicPartition) -> None:
        """Put a partition whose records were read behind the others."""
        position = self._positions.pop(partition, None)
        if position is not None:
            self._positions[partition] = position

    def receive(self) -> None:
        """Note that the client has received all that was read."""
        for position in self._positions.values():
            if position.offset is not None:
                position.received = position.offset

    def uncommitted(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return received offsets that are not committed, of `partitions` or of all."""
        found = {}
        for key in self._positions if partitions is None else partitions:
            position = self._positions.get(key)
            if (
                position is not None
                and position.received is not None
                and position.received != position.committed
            ):
                found[key] = position.received
        return found

    def read(self) -> dict[TopicPartition, int]:
        """Return the offset after the last record that was read of each partition."""
        return {key: offset for key, _, offset in self.readable()}

    def note_committed(self, offsets: dict[TopicPartition, int]) -> None:
        """Note offsets that have been committed."""
        for key, offset in offsets.items():
            position = self._positions.get(key)
            if position is not None:
                position.committed = offset
