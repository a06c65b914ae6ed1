"""Record batches and logs for the storage tests."""

import struct
from typing import Any

from fairlead_broker.disk import Disk, RealDisk
from fairlead_broker.log.directory.log_loader import LogLoader
from fairlead_broker.log.files.deferred_files import DeferredFiles
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.log.log import Log
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BatchHeader,
    batch_crc,
    decode_batch_header,
)
from fairlead_wire.records import Record, encode_batch
from fairlead_wire.zigzag import varint

TOPIC_ID = bytes(range(16))


def batch(
    records: int = 1,
    *,
    size: int = 180,
    timestamp: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    fill: bytes = b"x",
    body: bytes | None = None,
) -> memoryview:
    """Return a batch as a producer sends it, exactly `size` bytes unless a `body` is given.

    Its records have no keys, and the last value is as long as needed. If the records do not fit,
    the body is one that leaders refuse.
    """
    if body is None:
        body = _records_of(records, size - BATCH_HEADER_SIZE, fill)
    size = BATCH_HEADER_SIZE + len(body)
    content = bytearray(
        BATCH_HEADER.pack(
            0,
            size - 12,
            -1,
            2,
            0,
            attributes,
            records - 1,
            timestamp,
            timestamp,
            *producer,
            records,
        )
        + body
    )
    struct.pack_into(">I", content, 17, batch_crc(content, 0, size))
    return memoryview(content)


def _records_of(count: int, size: int, fill: bytes) -> bytes:
    """Records that take `size` bytes together, with the timestamp of their batch."""
    body = b"".join(_record(delta, b"") for delta in range(count - 1))
    left = size - len(body)
    for value_size in range(left, max(left - 20, -1), -1):
        # A longer value may need a longer length, too, and miss by a byte.
        for is_padded in (False, True):
            last = _record(count - 1, fill * value_size, is_padded=is_padded)
            if len(last) == left:
                return body + last
    return fill * size


def _record(offset_delta: int, value: bytes, *, is_padded: bool = False) -> bytes:
    fields = b"\0\0" + varint(offset_delta) + b"\x01" + varint(len(value)) + value + b"\0"
    length = varint(len(fields))
    if is_padded:
        length = length[:-1] + bytes((length[-1] | 0x80, 0))
    return length + fields


def record_batch(*records: Record, **options: Any) -> memoryview:
    """A batch of real records."""
    return memoryview(bytearray(encode_batch(list(records), **options)))


def patched(content: memoryview, **fields: int) -> memoryview:
    """The same batch with header fields changed and, unless `crc` is given, a matching CRC."""
    header = decode_batch_header(content)._replace(**fields)
    content = memoryview(bytearray(content))
    BATCH_HEADER.pack_into(content, 0, *header)
    if "crc" not in fields:
        struct.pack_into(">I", content, 17, batch_crc(content, 0, len(content)))
    return content


def as_leader_sent(
    base_offset: int, records: int = 1, *, epoch: int = 0, size: int = 180, timestamp: int = 1_000
) -> memoryview:
    """A batch as a follower receives it."""
    body = b"\xff" * (size - BATCH_HEADER_SIZE)
    return patched(
        batch(records, timestamp=timestamp, body=body),
        base_offset=base_offset,
        partition_leader_epoch=epoch,
    )


class LogBench:
    """Creates and reopens one log on one disk."""

    def __init__(self, directory: str, disk: Disk | None = None) -> None:
        self.disk = RealDisk() if disk is None else disk
        self.deferred = DeferredFiles(self.disk)
        self.directory = directory

    @property
    def loader(self) -> LogLoader:
        return LogLoader(self.disk, ReadCache(self.disk), self.deferred)

    def create(self, now_ms: int = 0, **config: Any) -> Log:
        return self.loader.create(
            self.directory,
            topic="t",
            partition=0,
            topic_id=TOPIC_ID,
            config=LogConfig(**config),
            now_ms=now_ms,
        )

    def load(self, log_start_offset: int = 0, now_ms: int = 0, **config: Any) -> Log:
        return self.loader.load(
            self.directory,
            topic="t",
            partition=0,
            config=LogConfig(**config),
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        )


def flush(log: Log, now_ms: int = 0) -> None:
    """Do a whole flush, as the loop and a thread do it."""
    job = log.begin_flush()
    if job is not None:
        job.run()
        log.complete_flush(job, now_ms)


def append(log: Log, *batches: memoryview, epoch: int = 0, now_ms: int = 1_000) -> list[int]:
    """Append as leader; return the first offsets."""
    return [
        log.append_as_leader(content, leader_epoch=epoch, now_ms=now_ms).first_offset
        for content in batches
    ]


def read_headers(
    log: Log, offset: int, max_bytes: int = 1 << 20, *, end_offset: int | None = None
) -> list[BatchHeader]:
    """Return the batches of one read."""
    result = log.read(
        offset,
        max_bytes,
        end_offset=log.log_end_offset if end_offset is None else end_offset,
        minimum_one_batch=True,
    )
    if result.records is None:
        return []
    piece = result.records
    content = log.disk.pread(piece.file.read_fd, piece.length, piece.position)
    headers = []
    position = 0
    while position < len(content):
        header = decode_batch_header(content, position)
        assert batch_crc(content, position, header.size) == header.crc
        headers.append(header)
        position += header.size
    assert position == len(content), "a slice holds whole batches"
    return headers


def all_headers(log: Log, *, end_offset: int | None = None) -> list[BatchHeader]:
    """Return every readable batch; each read continues after the one before."""
    headers: list[BatchHeader] = []
    offset = log.log_start_offset
    while found := read_headers(log, offset, end_offset=end_offset):
        headers += found
        offset = found[-1].next_offset
    return headers
