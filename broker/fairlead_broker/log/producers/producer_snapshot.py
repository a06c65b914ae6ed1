"""`<offset>.snapshot`: the producers of a log as they were when its end was at that offset.

Layout (big-endian): version i16 = 1, crc u32 (CRC-32C of everything behind it), count i32, then 46
bytes a producer: producer_id i64, epoch i16, last_sequence i32, last_offset i64, offset_delta i32,
timestamp i64, coordinator_epoch i32, first offset of the open transaction i64 (-1 none). Only the
last batch of each producer is kept, as in Kafka, so that its tools read the file. The timestamp is
that of the batch, or of a marker that followed it.
"""

import struct
from collections.abc import Iterable
from typing import Final

import google_crc32c

from fairlead_broker.log.producers.producer_state import (
    NO_OFFSET,
    SEQUENCE_MASK,
    ProducedBatch,
    ProducerEntry,
)

SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
CRC_END: Final = 6
"""The CRC covers the file from here: version and the CRC itself are left out."""
SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
NO_SEQUENCE: Final = -1


class CorruptSnapshotError(ValueError):
    """The file is no intact snapshot; the state has to come from an older one and the log."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    packed = [_pack_entry(entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", SNAPSHOT_VERSION, google_crc32c.value(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Return the producers of a snapshot. CorruptSnapshotError if anything contradicts."""
    if len(content) < SNAPSHOT_HEADER.size:
        raise CorruptSnapshotError(f"{len(content)} bytes are no snapshot")
    version, crc, count = SNAPSHOT_HEADER.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version} instead of {SNAPSHOT_VERSION}")
    actual = google_crc32c.value(content[CRC_END:])
    if actual != crc:
        raise CorruptSnapshotError(f"CRC {actual:#010x}, the file says {crc:#010x}")
    body = content[SNAPSHOT_HEADER.size :]
    if count < 0 or len(body) != count * SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"{count} producers in {len(body)} bytes")
    return [_unpack_entry(fields) for fields in SNAPSHOT_ENTRY.iter_unpack(body)]


def _pack_entry(entry: ProducerEntry) -> bytes:
    last = (
        entry.batches[-1]
        if entry.batches
        else ProducedBatch(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, NO_OFFSET, -1)
    )
    return SNAPSHOT_ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.first_offset,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _unpack_entry(fields: tuple[int, int, int, int, int, int, int, int]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp = fields[:6]
    coordinator_epoch, transaction_first_offset = fields[6:]
    entry = ProducerEntry(producer_id, epoch)
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.transaction_first_offset = transaction_first_offset
    if last_offset >= 0 and last_sequence >= 0:
        entry.batches.append(
            ProducedBatch(
                (last_sequence - offset_delta) & SEQUENCE_MASK,
                last_sequence,
                last_offset - offset_delta,
                last_offset,
                timestamp,
            )
        )
    return entry
