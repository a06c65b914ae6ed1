"""`<offset>.snapshot`: the producers of a log when its end was at that offset.

Layout (big-endian): version i16 = 1, crc u32 (CRC-32C of everything after it), count i32, then 46
bytes an entry: producer_id i64, epoch i16, last_sequence i32, last_offset i64, offset_delta i32,
timestamp i64, coordinator_epoch i32, first offset of the open transaction i64 (-1 none). The
timestamp is that of the last batch, or of a marker that followed it.

Kafka keeps one entry with the last batch of each producer. But a client may have several batches in
flight, and sends them again if it gets no answer. A leader that has started from Kafka's snapshot
takes all of them but the last for a gap. So here each remembered batch of a recently active
producer has an entry, and the last batch comes last. Kafka, its tools and older releases read one
entry for each producer, and keep that last one.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import google_crc32c

from fairlead_broker.limits import RETRIED_WITHIN_MS
from fairlead_broker.log.producers.producer_state import (
    NO_OFFSET,
    SEQUENCE_MASK,
    WINDOW_BATCHES,
    ProducedBatch,
    ProducerEntry,
)

SNAPSHOT_VERSION: Final = 1
SNAPSHOT_HEADER: Final = struct.Struct(">hIi")
CRC_END: Final = 6
"""The CRC covers the file from here, without the version and the CRC itself."""
SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
NO_SEQUENCE: Final = -1
_NO_BATCH: Final = ProducedBatch(NO_SEQUENCE, NO_SEQUENCE, NO_OFFSET, NO_OFFSET, -1)


class CorruptSnapshotError(ValueError):
    """The file is not an intact snapshot: an older one and the log have to give the state."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    entries = list(entries)
    newest_ms = max((entry.last_active_ms for entry in entries), default=0)
    packed: list[bytes] = []
    for entry in entries:
        is_idle = newest_ms - entry.last_active_ms > RETRIED_WITHIN_MS
        packed += _pack(entry, is_idle=is_idle)
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", SNAPSHOT_VERSION, google_crc32c.value(body)) + body


def decode_snapshot(content: bytes) -> list[ProducerEntry]:
    """Return the producers of a snapshot. CorruptSnapshotError if it is damaged."""
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
        raise CorruptSnapshotError(f"{count} entries in {len(body)} bytes")
    producers: dict[int, ProducerEntry] = {}
    for fields in SNAPSHOT_ENTRY.iter_unpack(body):
        entry = _unpack_entry(fields)
        before = producers.pop(entry.producer_id, None)
        if before is not None and before.epoch == entry.epoch:
            entry.batches[:0] = before.batches
            del entry.batches[:-WINDOW_BATCHES]
        producers[entry.producer_id] = entry
    return list(producers.values())


def _pack(entry: ProducerEntry, *, is_idle: bool) -> Iterator[bytes]:
    batches = entry.batches or [_NO_BATCH]
    for batch in batches[-1:] if is_idle else batches:
        yield SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.first_offset,
            entry.last_timestamp if batch is batches[-1] else batch.timestamp,
            entry.coordinator_epoch,
            # All entries have it: a reader that keeps one entry must know the open transaction.
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
