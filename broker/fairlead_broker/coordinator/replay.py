"""Replays the log of a coordinator's partition: the newest value of each key.

Pure, and fast: a million records must not take longer than a failover may. Each record's key is
used as a dictionary key without decoding, so that the state machine only decodes what is left at
the end. The steps are generators that yield to other work; their memory grows only with the number
of different keys. A batch that is damaged is an error. Records of a transaction count once it is
committed (`replayed_transactions`); control batches of other kinds are skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.coordinator.replayed_transactions import ReplayedTransactions
from fairlead_broker.log.producers.end_marker import decode_end
from fairlead_wire.compression import decompress
from fairlead_wire.errors import KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import (
    BATCH_HEADER_SIZE,
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_batch,
)
from fairlead_wire.records import DECOMPRESSED_MAX, ControlType, iter_batches
from fairlead_wire.zigzag import VARLONG_SIZE_MAX, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS_PER_STEP: Final = 1_000
_OF_A_TRANSACTION: Final = TRANSACTIONAL_MASK | CONTROL_MASK
_MARKER_KEY: Final = b"\0\x08\0\0\0"
_MARKER_TAIL_SIZE: Final = 14
"""The end of the only record of a marker: offset delta 0, a key of 4 bytes in version 0 whose last
one is the lower byte of the type, a value of 6 bytes, no headers."""
_MARKER_SIZES: Final = range(78, 88)
"""Sizes of its batch: the time delta is 0, or longer once compaction has set a delete horizon."""
_MARKER_TYPES: Final = {int(each): each for each in ControlType}


class Replay:
    """`read` takes every piece of the log in order, in steps; then `newest` has the result."""

    def __init__(self) -> None:
        self.records_count = 0
        self.next_offset = 0
        """Offset after the last batch read."""
        self.newest: dict[bytes, bytes] = {}
        """By key; a record without a key counts as one with an empty key."""
        self.transactions = ReplayedTransactions()

    def read(self, data: bytes) -> Iterator[None]:
        """Read whole batches of the log in steps. RemoteProtocolError if one is damaged."""
        for position, header in iter_batches(data):
            try:
                check_batch(data, position, header, remaining=len(data) - position)
            except KafkaError as error:
                raise RemoteProtocolError(error.message) from error
            if header.attributes & _OF_A_TRANSACTION or self.transactions.open:
                yield from self._read_among_transactions(data, position, header)
            else:
                yield from self._read_records(data, position, header, self.newest, None)
            self.next_offset = header.next_offset
            yield

    def _read_among_transactions(
        self, data: bytes, position: int, header: BatchHeader
    ) -> Iterator[None]:
        """Read a batch of a transaction, or any batch while a transaction is open.

        A batch that compaction has emptied opens no transaction: its marker may be gone.
        """
        if header.is_control:
            end = _end_type(data, position, header.size)
            if end is not None:
                is_commit = end is ControlType.COMMIT
                self.transactions.end(header.producer_id, is_commit=is_commit, newest=self.newest)
            return
        found: dict[bytes, bytes] = {}
        removed: set[bytes] = set()
        yield from self._read_records(data, position, header, found, removed)
        records: dict[bytes, bytes | None] = {**dict.fromkeys(removed), **found}
        if not records:
            return
        if header.is_transactional:
            self.transactions.stage(header.producer_id, header.base_offset, records)
        else:
            self.transactions.overtake(header.base_offset, records, self.newest)

    def _read_records(
        self,
        data: bytes,
        position: int,
        header: BatchHeader,
        newest: dict[bytes, bytes],
        removed: set[bytes] | None,
    ) -> Iterator[None]:
        """Take the records of a batch into `newest`; note tombstones if that is requested."""
        start, end = position + BATCH_HEADER_SIZE, position + header.size
        body = data
        if header.codec:
            body = decompress(memoryview(data)[start:end], header.codec, max_size=DECOMPRESSED_MAX)
            start, end = 0, len(body)
        left = header.records_count
        try:
            while left > 0:
                count = min(left, RECORDS_PER_STEP)
                start = self._take_records(body, start, end, count, newest, removed=removed)
                left -= count
                yield
        except IndexError as error:
            raise RemoteProtocolError("a record is cut off") from error
        if start != end:
            raise RemoteProtocolError(f"{end - start} bytes behind the last record of a batch")

    def _take_records(  # noqa: PLR0912 (one pass, nothing called: this is what loading costs)
        self,
        body: bytes,
        position: int,
        end: int,
        count: int,
        newest: dict[bytes, bytes],
        *,
        removed: set[bytes] | None,
    ) -> int:
        """Take `count` records from `position`; return where the next one starts.

        The numbers of a record are varints, nearly always of one or two bytes: those are read in
        place, anything longer by `read_varint`.
        """
        for _ in range(count):
            low = body[position]
            if low < 128:
                record_end = position + 1 + (low >> 1)
                position += 1
            elif body[position + 1] < 128:
                record_end = position + 2 + ((low & 127 | body[position + 1] << 7) >> 1)
                position += 2
            else:
                size, position = read_varint(body, position)
                record_end = position + size
            if not position < record_end <= end:
                raise RemoteProtocolError("a record has not the size that it claims")
            position += 1  # Attributes.
            if body[position] < 128:
                position += 1
            else:
                _, position = read_varint(body, position, VARLONG_SIZE_MAX)
            while body[position] > 127:
                position += 1
            position += 1
            low = body[position]
            if low < 128 and not low & 1:
                key_end = position + 1 + (low >> 1)
                key = body[position + 1 : key_end]
            else:
                size, position = read_varint(body, position)
                key_end = position + max(size, 0)
                key = body[position:key_end] if size >= 0 else b""
            low = body[key_end]
            if low < 128 and not low & 1:
                value_end = key_end + 1 + (low >> 1)
                if value_end >= record_end:
                    raise RemoteProtocolError("a value is longer than its record")
                newest[key] = body[key_end + 1 : value_end]
            else:
                size, start = read_varint(body, key_end)
                if start + max(size, 0) >= record_end:
                    raise RemoteProtocolError("a value is longer than its record")
                if size < 0:
                    newest.pop(key, None)
                    if removed is not None:
                        removed.add(key)
                else:
                    newest[key] = body[start : start + size]
            position = record_end
        self.records_count += count
        return position


def _end_type(data: bytes, position: int, size: int) -> ControlType | None:
    """Return how the control batch at `position` ends a transaction; None if it ends none.

    Half of a log of transactions are markers, so markers in the usual form are read in place.
    """
    key = position + size - _MARKER_TAIL_SIZE
    if size in _MARKER_SIZES and data.startswith(_MARKER_KEY, key):
        return _MARKER_TYPES.get(data[key + len(_MARKER_KEY)])
    end = decode_end(data, position)
    return None if end is None else end.type
