"""Turn the bytes of one fetch into visible records: check, decompress and filter batches.

Control batches are never shown. The broker sends a read_committed reader the aborted transactions
(producer id, first offset). Their batches are dropped until the marker that ends each transaction.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from fairlead_spark import limits
from fairlead_spark.errors import SourceError
from fairlead_spark.reading.record_columns import BatchBody
from fairlead_wire.compression import Codec, decompress
from fairlead_wire.errors import KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import (
    BATCH_HEADER_SIZE,
    BatchHeader,
    TimestampType,
    check_batch,
)
from fairlead_wire.records import ControlType, decode_batch, decode_end_of_transaction, iter_batches

# Decompressed batches are joined up to this size, then decoded: Arrow has positions of 32 bits.
GROUP_BYTES: Final = 16 * 1024 * 1024


@dataclass
class BodyGroup:
    """Bodies of batches in one contiguous buffer."""

    data: bytes | bytearray
    bodies: list[BatchBody] = field(default_factory=list)


@dataclass
class FetchedRecords:
    """The result of a fetch: at least one batch, each with its position after `position`."""

    where: str
    buffer: bytearray
    position: int
    batches: list[tuple[int, BatchHeader]]
    aborted: Sequence[Any]
    is_crc_checked: bool = True

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return self.batches[-1][1].next_offset

    def groups(self, start: int, until: int) -> Iterator[BodyGroup]:
        """Yield bodies of the batches that overlap `[start, until)`; SourceError if damaged."""
        packed = BodyGroup(b"")
        plain = BodyGroup(self.buffer)
        pieces: list[bytes] = []
        size = 0
        for position, header in self._visible(start, until):
            body_at, end = self.position + position + BATCH_HEADER_SIZE, self.position + position
            end += header.size
            if header.codec == Codec.NONE:
                if pieces:
                    yield BodyGroup(b"".join(pieces), packed.bodies)
                    packed, pieces, size = BodyGroup(b""), [], 0
                plain.bodies.append(_body(header, body_at, end))
                continue
            if plain.bodies:
                yield plain
                plain = BodyGroup(self.buffer)
            piece = self._unpack(header, body_at, end)
            packed.bodies.append(_body(header, size, size + len(piece)))
            pieces.append(piece)
            size += len(piece)
            if size >= GROUP_BYTES:
                yield BodyGroup(b"".join(pieces), packed.bodies)
                packed, pieces, size = BodyGroup(b""), [], 0
        if pieces:
            yield BodyGroup(b"".join(pieces), packed.bodies)
        if plain.bodies:
            yield plain

    def _visible(self, start: int, until: int) -> Iterator[tuple[int, BatchHeader]]:
        waiting = sorted(self.aborted, key=lambda each: each.first_offset, reverse=True)
        aborting: set[int] = set()
        view = memoryview(self.buffer)[self.position :]
        for position, header in self.batches:
            while waiting and waiting[-1].first_offset <= header.last_offset:
                aborting.add(waiting.pop().producer_id)
            if header.base_offset >= until:
                return
            self._check(view, position, header)
            if header.is_control:
                if header.producer_id in aborting and self._is_abort(view, position, header):
                    aborting.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborting:
                continue
            elif header.last_offset >= start:
                yield position, header

    def _is_abort(self, view: memoryview, position: int, header: BatchHeader) -> bool:
        try:
            marker = decode_end_of_transaction(decode_batch(view, position)[0])
        except (IndexError, RemoteProtocolError) as error:
            raise self.damaged(header.base_offset, f"a control batch: {error}") from error
        return marker is not None and marker.type is ControlType.ABORT

    def _check(self, view: memoryview, position: int, header: BatchHeader) -> None:
        if not self.is_crc_checked:
            return
        try:
            check_batch(view, position, header, remaining=len(view) - position)
        except KafkaError as error:
            raise self.damaged(header.base_offset, error.message) from error

    def _unpack(self, header: BatchHeader, start: int, end: int) -> bytes:
        packed = memoryview(self.buffer)[start:end]
        try:
            return decompress(packed, header.codec, max_size=limits.DECOMPRESSED_BYTES_MAX)
        except RemoteProtocolError as error:
            raise self.damaged(header.base_offset, str(error)) from error

    def damaged(self, offset: int, reason: str) -> SourceError:
        """Return the error for a batch that cannot be read."""
        return SourceError(
            f"{self.where}: the batch at offset {offset} is damaged ({reason}); another replica "
            "may hold a good copy. To go on behind it, start the query anew with startingOffsets "
            "after that batch"
        )


def find_batches(
    where: str,
    buffer: bytearray,
    records: memoryview,
    aborted: Sequence[Any],
    *,
    is_crc_checked: bool,
) -> FetchedRecords | None:
    """Return the batches in `records`, a part of `buffer`, without an incomplete last one.

    None if there is no complete batch.
    """
    try:
        batches = list(iter_batches(records))
    except RemoteProtocolError as error:
        raise SourceError(f"{where}: the broker sent what is no record batch: {error}") from error
    if not batches:
        return None
    position = _position_in(buffer, records)
    return FetchedRecords(where, buffer, position, batches, aborted, is_crc_checked)


def _position_in(buffer: bytearray, view: memoryview) -> int:
    """Return where a view of a buffer begins in it, from its address: memoryview has no offset."""
    start = np.frombuffer(buffer, dtype=np.uint8).ctypes.data
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data) - int(start)


def _body(header: BatchHeader, start: int, end: int) -> BatchBody:
    is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return BatchBody(
        start,
        end,
        header.records_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if is_appended else None,
    )
