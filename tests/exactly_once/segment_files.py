"""The brokers' segment files, read without any broker: which records were committed.

The files have uncompressed record batches of format 2, as in Kafka's documentation. This module has
no high watermark: use it when nobody writes any more, and all replicas are the same.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CODEC_BITS, TRANSACTIONAL, CONTROL = 0b111, 0b10000, 0b100000
ABORT, COMMIT = 0, 1


class Record(NamedTuple):
    """One record; `key` and `value` may be null."""

    offset: int
    key: bytes | None
    value: bytes | None


class Batch(NamedTuple):
    """One batch of a segment."""

    base_offset: int
    is_transactional: bool
    is_control: bool
    producer_id: int
    producer_epoch: int
    records: list[Record]


class DamagedError(Exception):
    """A file is no valid segment; the text says where it is damaged."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it."""
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def read_records(data: bytes, at: int, base_offset: int, count: int) -> Iterator[Record]:
    for _ in range(count):
        size, at = read_varint(data, at)
        end = at + size
        at += 1  # attributes, unused
        _, at = read_varint(data, at)  # timestamp
        offset_delta, at = read_varint(data, at)
        key, at = read_bytes(data, at)
        value, at = read_bytes(data, at)
        yield Record(base_offset + offset_delta, key, value)
        at = end


def read_batches(data: bytes, name: str) -> Iterator[Batch]:
    """Yield all batches of a file. DamagedError if one is cut off or has a wrong CRC."""
    at = 0
    # Files may be longer than their content; zeros follow.
    while at + HEADER.size <= len(data) and data[at : at + HEADER.size].strip(b"\0"):
        (base, length, _, magic, crc, attributes, _, _, _, pid, epoch, _, count) = (
            HEADER.unpack_from(data, at)
        )
        end = at + 12 + length
        if magic != 2 or end > len(data) or google_crc32c.value(data[at + 21 : end]) != crc:
            raise DamagedError(f"{name}: the batch at {at}, offset {base}")
        if attributes & CODEC_BITS:
            raise DamagedError(f"{name}: the batch at offset {base} is compressed")
        records = list(read_records(data, at + HEADER.size, base, count))
        yield Batch(
            base, bool(attributes & TRANSACTIONAL), bool(attributes & CONTROL), pid, epoch, records
        )
        at = end


def read_partition(folder: Path) -> Iterator[Batch]:
    """Yield the batches of all segments of a partition's folder, in order."""
    for path in sorted(folder.glob("*.log")):
        yield from read_batches(path.read_bytes(), path.name)


@dataclass
class Transactions:
    """The records of a log, by what markers decided about them."""

    committed: list[Record] = field(default_factory=list)
    aborted: list[Record] = field(default_factory=list)
    open: dict[int, list[Record]] = field(default_factory=dict)
    """By producer: records that no marker has followed yet."""
    committed_count: int = 0
    """Transactions with records here."""
    aborted_count: int = 0
    last_offset: int = -1
    breaches: list[str] = field(default_factory=list)
    """Rules of the format or of transactions that the log breaks."""


def decide(batches: Iterator[Batch]) -> Transactions:
    """Read a log: the next marker of its producer decides about each record."""
    result = Transactions()
    epochs: dict[int, int] = {}
    for batch in batches:
        if batch.base_offset <= result.last_offset:
            result.breaches.append(f"offset {batch.base_offset} comes after {result.last_offset}")
        if batch.records:
            result.last_offset = batch.records[-1].offset
        if batch.producer_epoch < epochs.get(batch.producer_id, -1):
            result.breaches.append(f"the batch at {batch.base_offset} has an old producer epoch")
        epochs[batch.producer_id] = batch.producer_epoch
        if batch.is_control:
            _end(result, batch)
        elif batch.is_transactional:
            result.open.setdefault(batch.producer_id, []).extend(batch.records)
        else:
            result.committed += batch.records
    result.committed.sort()
    return result


def _end(result: Transactions, marker: Batch) -> None:
    """Apply a control batch: its one record has the marker's version and type as key."""
    key = marker.records[0].key or b""
    _, kind = struct.unpack(">hh", key)
    records = result.open.pop(marker.producer_id, [])
    if kind not in (ABORT, COMMIT) or not marker.is_transactional:
        result.breaches.append(f"the marker at {marker.base_offset} is of type {kind}")
    elif kind == COMMIT:
        result.committed += records
        result.committed_count += bool(records)
    else:
        result.aborted += records
        result.aborted_count += bool(records)
