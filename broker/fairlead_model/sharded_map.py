"""A persistent mapping: a changed copy shares with the original all shards that did not change.

To copy one dict of all topics for each delta would cost time in proportion to the cluster. Here a
change copies the table of shards and one shard, 1/512 of the entries.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SHARD_COUNT: Final = 512


class ShardedMap(Mapping[K, V], Generic[K, V]):
    """Immutable once built; `edited` returns the next version. Iteration order is not defined."""

    __slots__ = ("_length", "_shards")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._shards: tuple[dict[K, V], ...] = _EMPTY_SHARDS
        self._length = 0
        if entries:
            grown: ShardedMap[K, V] = self.edited(entries)
            self._shards, self._length = grown._shards, grown._length

    def __getitem__(self, key: K) -> V:
        return self._shards[hash(key) % _SHARD_COUNT][key]

    def __contains__(self, key: object) -> bool:
        return key in self._shards[hash(key) % _SHARD_COUNT]

    def __iter__(self) -> Iterator[K]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return self._length

    def edited(self, changes: Mapping[K, V | None]) -> "ShardedMap[K, V]":
        """Return a copy with the changes applied; None removes a key, absent or not."""
        if not changes:
            return self
        shards = list(self._shards)
        owned: set[int] = set()
        length = self._length
        for key, value in changes.items():
            number = hash(key) % _SHARD_COUNT
            if number not in owned:
                owned.add(number)
                shards[number] = dict(shards[number])
            shard = shards[number]
            length -= len(shard)
            if value is None:
                shard.pop(key, None)
            else:
                shard[key] = value
            length += len(shard)
        edited: ShardedMap[K, V] = ShardedMap()
        edited._shards, edited._length = tuple(shards), length
        return edited


_EMPTY_SHARDS: Final[tuple[dict, ...]] = ({},) * _SHARD_COUNT  # type: ignore[type-arg]
