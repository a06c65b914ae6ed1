"""Records of the simulation: 32 bytes each, with producer id, epoch, sequence, value and position.

A batch is a run of records that know their position in it. So the layers above move real bytes, in
whole batches, and an offset can be inside of a batch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECORD = struct.Struct(">qiiiBHBhi2x")
"""offset, leader epoch, sequence, value, place, kind, count, producer epoch, producer id"""
RECORD_SIZE = _RECORD.size
NO_PRODUCER = -1
PLAIN, TRANSACTIONAL, ABORT, COMMIT = 0, 0x10, 0x30, 0x130
"""The kinds are at a batch's attributes, and have the same bits."""


class Entry(NamedTuple):
    """One record. Two logs agree on an offset if their entries are equal."""

    leader_epoch: int
    sequence: int
    producer_id: int
    producer_epoch: int
    value: int
    place: int = 0
    """Its position in the batch."""
    count: int = 1  # type: ignore[assignment]  # nobody calls `count` of the tuple
    """Number of records in its batch."""
    kind: int = PLAIN
    """The kind of its batch; the value of a marker is the epoch of its coordinator."""

    @property
    def is_marker(self) -> bool:
        return self.kind in (ABORT, COMMIT)


def encode_batch(
    values: Sequence[int],
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    kind: int = PLAIN,
) -> memoryview:
    """Return a producer's batch; `sequence` is that of the first record."""
    count = len(values)
    records = [
        _RECORD.pack(
            place, 0, sequence + place, value, place, kind, count, producer_epoch, producer_id
        )
        for place, value in enumerate(values)
    ]
    return memoryview(bytearray(b"".join(records)))


def encode_entry(offset: int, entry: Entry) -> bytes:
    epoch, sequence, producer_id, producer_epoch, value, place, count, kind = entry
    return _RECORD.pack(
        offset, epoch, sequence, value, place, kind, count, producer_epoch, producer_id
    )


def decode_entries(records: bytes | memoryview) -> list[tuple[int, Entry]]:
    """Read records with their offsets."""
    return [
        (
            offset,
            Entry(epoch, sequence, producer_id, producer_epoch, value, place, count, kind),
        )
        for offset, epoch, sequence, value, place, kind, count, producer_epoch, producer_id in (
            _RECORD.iter_unpack(records)
        )
    ]
