"""Which partition of the internal topic keeps a group, and so which broker coordinates it.

Pure. Clients never compute this. But all brokers, Kafka's too, have to agree on it, because the
records of a group are in that one partition.
"""

from __future__ import annotations

import sys
from array import array
from operator import mul
from typing import Final

_UTF_16: Final = "utf-16-le"
_ROW_UNITS: Final = 512
"""Code units of a long text that are computed at a time."""
_ROW_BYTES: Final = 2 * _ROW_UNITS
_LANES: Final = _ROW_UNITS // 4
"""Numbers of 64 bits in a row, each of four code units."""
_UNIT_OF_EACH: Final = int.from_bytes(b"\xff\xff\0\0\0\0\0\0" * _LANES, "little")
_HASH_OF_EACH: Final = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * _LANES, "little")
_POWERS: Final = [pow(31, power, 1 << 32) for power in range(_ROW_UNITS)]
_LANE_POWERS: Final = _POWERS[-4::-4]
_ROW_POWER: Final = pow(31, _ROW_UNITS, 1 << 32)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31-polynomial over UTF-16 code units, as a signed int32.

    A request may contain thousands of names of up to 32 KiB, so no Python loop runs over their
    characters.
    """
    data = text.encode(_UTF_16, "surrogatepass")
    value = _hash_of_long(data) if len(data) > _ROW_BYTES else _hash_of_short(data)
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def _hash_of_short(data: bytes) -> int:
    units = array("H", data)
    if sys.byteorder == "big":
        units.byteswap()
    units.reverse()
    value: int = sum(map(mul, units, _POWERS))
    return value & 0xFFFF_FFFF


def _hash_of_long(data: bytes) -> int:
    """Return the hash of many code units, some six times as fast.

    Each row is one large integer, whose lanes of 64 bits are computed at the same time. No lane
    overflows into the next one: a hash and a power of 31 have 32 bits, four units need far less.
    """
    # Zeros in front do not change a hash.
    data = b"\0" * (-len(data) % _ROW_BYTES) + data
    lanes = 0
    for start in range(0, len(data), _ROW_BYTES):
        row = int.from_bytes(data[start : start + _ROW_BYTES], "little")
        hashes = (
            (row & _UNIT_OF_EACH) * 29_791
            + (row >> 16 & _UNIT_OF_EACH) * 961
            + (row >> 32 & _UNIT_OF_EACH) * 31
            + (row >> 48 & _UNIT_OF_EACH)
        )
        lanes = (lanes * _ROW_POWER + hashes) & _HASH_OF_EACH
    each = array("Q", lanes.to_bytes(_ROW_BYTES, sys.byteorder))
    if sys.byteorder == "big":
        each.reverse()
    value: int = sum(map(mul, each, _LANE_POWERS))
    return value & 0xFFFF_FFFF


def coordinator_partition(key: str, partition_count: int) -> int:
    """Return the partition that holds the state of a group (or of a transactional id)."""
    return (java_hash(key) & 0x7FFF_FFFF) % partition_count
