"""Which partition of the internal topic keeps a group, and so which broker coordinates it.

Pure. Clients never compute this. But all brokers, Kafka's too, have to agree on it, because the
records of a group are in that one partition.
"""

from __future__ import annotations

import sys
from array import array
from operator import mul
from typing import Final

_UTF_16: Final = f"utf-16-{sys.byteorder[0]}e"
_POWERS: Final = [1]
"""Powers of 31 as int32, as many as the longest text so far has code units."""


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31-polynomial over UTF-16 code units, as a signed int32.

    A request may contain thousands of names of up to 32 KiB, so no Python loop runs over their
    characters.
    """
    units = array("H", text.encode(_UTF_16, "surrogatepass"))
    units.reverse()
    while len(_POWERS) < len(units):
        _POWERS.append(_POWERS[-1] * 31 & 0xFFFF_FFFF)
    value: int = sum(map(mul, units, _POWERS)) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def coordinator_partition(key: str, partition_count: int) -> int:
    """Return the partition that holds the state of a group (or of a transactional id)."""
    return (java_hash(key) & 0x7FFF_FFFF) % partition_count
