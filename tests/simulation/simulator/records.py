"""Records as they travel here: 32 bytes each, of producer id, epoch, sequence, value and place.

A batch is a run of records that know their place in it, so that the layers above move real bytes,
whole batches at a time, and offsets can lie inside of one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECORD = struct.Struct(">qiiqhBBi")
"""offset, leader epoch, sequence, producer id, producer epoch, place, count, value"""
RECORD_SIZE = _RECORD.size
NO_PRODUCER = -1


class Entry(NamedTuple):
    """One record. Two logs agree on an offset if their entries are equal."""

    leader_epoch: int
    sequence: int
    producer_id: int
    producer_epoch: int
    value: int
    place: int = 0
    """In its batch."""
    count: int = 1
    """Of the records in its batch."""


def encode_batch(
    values: Sequence[int], producer_id: int, producer_epoch: int, sequence: int
) -> memoryview:
    """What a producer sends; `sequence` is that of the first record."""
    records = [
        _RECORD.pack(
            place, 0, sequence + place, producer_id, producer_epoch, place, len(values), value
        )
        for place, value in enumerate(values)
    ]
    return memoryview(bytearray(b"".join(records)))


def encode_entry(offset: int, entry: Entry) -> bytes:
    epoch, sequence, producer_id, producer_epoch, value, place, count = entry
    return _RECORD.pack(offset, epoch, sequence, producer_id, producer_epoch, place, count, value)


def decode_entries(records: bytes | memoryview) -> list[tuple[int, Entry]]:
    """Read records with their offsets."""
    return [
        (offset, Entry(epoch, sequence, producer_id, producer_epoch, value, place, count))
        for offset, epoch, sequence, producer_id, producer_epoch, place, count, value in (
            _RECORD.iter_unpack(records)
        )
    ]
