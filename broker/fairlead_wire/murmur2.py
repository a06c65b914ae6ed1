"""The hash with which Java clients choose a partition for a key."""

from typing import Final

SEED: Final = 0x9747B28C

_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the MurmurHash2 of 32 bits, unsigned, with Kafka's seed."""
    hashed = SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * _MULTIPLIER & _MASK
        word ^= word >> _SHIFT
        word = word * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    rest = data[whole:]
    if rest:
        hashed ^= int.from_bytes(rest, "little")
        hashed = hashed * _MULTIPLIER & _MASK
    hashed ^= hashed >> 13
    hashed = hashed * _MULTIPLIER & _MASK
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """Return the partition that Java's default partitioner picks for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions_count
