"""Batches and records of a `.log` file, one row each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError, walk_headers
from fairlead_broker.log.files.file_slice import OpenFile
from fairlead_wire.compression import Codec
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.record_batch import BatchHeader, batch_crc
from fairlead_wire.records import decode_batch

BATCH_COLUMNS: Final = (
    "position",
    "size",
    "base_offset",
    "last_offset",
    "records",
    "leader_epoch",
    "codec",
    "timestamp_type",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
    "transactional",
    "control",
    "crc",
    "crc_valid",
)
RECORD_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
RECORDS_UNPACKED_MAX: Final = 256 << 20
"""What one compressed batch may grow to."""


def dump_batches(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield a row a batch, in file order. It ends where the layout breaks, not at a wrong CRC."""
    for position, header, batch in read_batches(path, problems):
        crc = batch_crc(batch, 0, header.size)
        if crc != header.crc:
            problems.append(
                f"position {position}: CRC is {crc:#010x}, the header says {header.crc:#010x}"
            )
        yield (
            position,
            header.size,
            header.base_offset,
            header.last_offset,
            header.records_count,
            header.partition_leader_epoch,
            codec_name(header.codec),
            header.timestamp_type.name,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.is_transactional,
            header.is_control,
            header.crc,
            crc == header.crc,
        )


def dump_records(path: Path, problems: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield a row a record; batches that cannot be unpacked are skipped and reported."""
    for position, _, batch in read_batches(path, problems):
        try:
            records = decode_batch(batch, decompressed_max=RECORDS_UNPACKED_MAX)
        except RemoteProtocolError as error:
            problems.append(f"position {position}: {error}")
            continue
        yield from records


def read_batches(path: Path, problems: list[str]) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Position, header and bytes of each batch; what ends the walk early is added to `problems`."""
    disk = RealDisk()
    file = OpenFile(disk, disk.open_read(str(path)))
    try:
        for position, header in walk_headers(disk, file.fd, 0, disk.size(file.fd)):
            yield position, header, disk.pread(file.fd, header.size, position)
    except CorruptSegmentError as error:
        problems.append(str(error))


def codec_name(codec: int) -> str:
    """Return the codec's name; a number that stands for none is shown as it is."""
    try:
        return Codec(codec).name.lower()
    except ValueError:
        return f"unknown({codec})"
