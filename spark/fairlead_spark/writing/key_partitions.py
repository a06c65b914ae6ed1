"""The partition that Java's default partitioner picks for each key of a column."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from fairlead_wire.murmur2 import SEED, partition_for_key

_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
# For fewer keys, a numpy array costs more than single keys.
_KEYS_MIN: Final = 8


def partitions_for_keys(keys: pa.BinaryArray, count: int) -> Any:
    """Return an int64 for each key, of `count` partitions; that of a null has no meaning."""
    octets, starts, sizes = binary_spans(keys)
    with np.errstate(over="ignore"):
        hashed, left_over = _murmur2(octets, starts, sizes)
    partitions = ((hashed & _POSITIVE) % np.uint32(count)).astype(np.int64)
    for index in left_over.tolist():
        first = int(starts[index])
        key = octets[first : first + int(sizes[index])].tobytes()
        partitions[index] = partition_for_key(key, count)
    return partitions


def binary_spans(column: pa.BinaryArray) -> tuple[Any, Any, Any]:
    """Return the bytes of the cells, where each begins, and how long it is."""
    _, bounds, data = column.buffers()
    edges = np.frombuffer(bounds, dtype=np.int32, count=column.offset + len(column) + 1)
    edges = edges[column.offset :].astype(np.int64)
    octets = np.frombuffer(data or b"", dtype=np.uint8)
    return octets, edges[:-1], np.diff(edges)


def _murmur2(octets: Any, starts: Any, sizes: Any) -> tuple[Any, Any]:
    """Return hashes, and which keys have none yet: the few that are longer than all others."""
    hashed = np.uint32(SEED) ^ sizes.astype(np.uint32)
    # The four bytes at every position, so that those of a key are read at once.
    words = np.ndarray((max(len(octets) - 3, 0),), "<u4", octets, strides=(1,))
    counts = sizes >> 2
    going_on = np.flatnonzero(counts)
    word_index = 0
    while len(going_on) >= _KEYS_MIN:
        word = words[starts[going_on] + 4 * word_index].astype(np.uint32) * _MULTIPLIER
        word = (word ^ word >> np.uint32(24)) * _MULTIPLIER
        hashed[going_on] = hashed[going_on] * _MULTIPLIER ^ word
        word_index += 1
        going_on = going_on[counts[going_on] > word_index]
    _mix_rest(hashed, octets, starts + 4 * counts, sizes & 3)
    hashed ^= hashed >> np.uint32(13)
    hashed *= _MULTIPLIER
    return hashed ^ hashed >> np.uint32(15), going_on


def _mix_rest(hashed: Any, octets: Any, at: Any, sizes: Any) -> None:
    """Mix in the last one to three bytes of keys that have them."""
    some = np.flatnonzero(sizes)
    rest = np.zeros(len(some), dtype=np.uint32)
    for index in range(3):
        has = sizes[some] > index
        rest[has] |= octets[at[some[has]] + index].astype(np.uint32) << np.uint32(8 * index)
    hashed[some] = (hashed[some] ^ rest) * _MULTIPLIER
