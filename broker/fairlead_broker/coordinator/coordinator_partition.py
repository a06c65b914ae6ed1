"""Which partition of the internal topic keeps a group, and so which broker coordinates it.

Pure. Clients never compute this; but brokers of any make must agree on it, because the records
of a group live in that one partition.
"""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31-polynomial over UTF-16 code units, as a signed int32."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        unit = (encoded[position] << 8) | encoded[position + 1]
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def coordinator_partition(key: str, partition_count: int) -> int:
    """Return the partition that holds the state of a group (or of a transactional id)."""
    return (java_hash(key) & 0x7FFF_FFFF) % partition_count
