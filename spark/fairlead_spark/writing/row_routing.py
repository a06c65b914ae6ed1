"""The topic and the partition of each row of a write.

It is the partition that the row names; else the one that Java's producer chooses for its key; else,
without a key, one partition for a while and then the next, so that a batch has more than one record
(KIP-480). All decisions are made by columns, not row by row.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairlead_spark.errors import SinkError
from fairlead_spark.writing.key_partitions import partitions_for_keys

STICKY_BYTES: Final = 16 * 1024
"""Bytes of records without a key for one partition, before the next partition gets them."""


class TopicPartitions(NamedTuple):
    """The number of a topic's partitions, and those that can be written to now."""

    total: int
    available: Sequence[int]


class RowRouter:
    """Remembers the present partition for records without a key."""

    def __init__(self, partitions_of: Callable[[str, int], TopicPartitions]) -> None:
        """`partitions_of(topic, least)` returns a topic's partitions.

        It looks them up again if they are fewer than `least`.
        """
        self._partitions_of = partitions_of
        self._written: dict[str, int] = {}

    def route(
        self, topic: str, keys: pa.BinaryArray | None, partitions: pa.Array | None, sizes: Any
    ) -> Any:
        """Return the partition of each of a topic's rows; SinkError if it does not exist."""
        count = len(sizes)
        chosen = np.full(count, -1, dtype=np.int64)
        if partitions is not None:
            chosen = pc.fill_null(partitions, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        known = self._partitions_of(topic, int(chosen.max(initial=-1)) + 1)
        if int(chosen.max(initial=-1)) >= known.total:
            raise SinkError(
                f"a row cannot be written to {topic}-{chosen.max()}: the topic has "
                f"{known.total} partitions"
            )
        is_open = chosen < 0
        if keys is not None and is_open.any():
            has_key = keys.is_valid().to_numpy(zero_copy_only=False)
            by_key = is_open & has_key
            if by_key.any():
                chosen = np.where(by_key, partitions_for_keys(keys, known.total), chosen)
            is_open &= ~has_key
        if is_open.any():
            chosen[is_open] = self._spread(topic, known, sizes[is_open])
        return chosen

    def _spread(self, topic: str, known: TopicPartitions, sizes: Any) -> Any:
        turns = np.array(known.available or range(known.total), dtype=np.int64)
        # Otherwise many tasks with few rows would all begin with the same partition.
        before = self._written.setdefault(topic, secrets.randbelow(known.total) * STICKY_BYTES)
        written = before + np.cumsum(sizes)
        self._written[topic] = int(written[-1])
        return turns[((written - sizes) // STICKY_BYTES) % len(turns)]


def split_by_topic(topics: pa.Array) -> list[tuple[str, Any]]:
    """Return each topic in a column, with its rows in order. SinkError for a null."""
    if topics.null_count:
        raise SinkError("a row has a null topic: fill the column, or set the option 'topic'")
    named = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
    names = named.dictionary.to_pylist()
    indices = named.indices.to_numpy()
    if len(names) == 1:
        return [(names[0], np.arange(len(indices)))]
    rows = ((name, np.flatnonzero(indices == index)) for index, name in enumerate(names))
    return [(name, found) for name, found in rows if len(found)]
