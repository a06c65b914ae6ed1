"""What the log of a coordinator's partition says: the newest value of each key.

Pure, and fast: a million records must not take longer than a failover may. Each record's key is the
key of a dictionary as it stands, so that only what is left at the end is ever decoded. The steps
are generators which give way every so often; they hold nothing but what the log holds under
different keys. Records that make no sense (anybody may produce to the topic) are counted and
passed over; a batch that is damaged is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.group.group_offsets import GroupOffsets, TopicOffsets, is_plain_value
from fairlead_broker.group.records import (
    Key,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from fairlead_wire.compression import decompress
from fairlead_wire.errors import KafkaError, RemoteProtocolError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE, BatchHeader, check_batch
from fairlead_wire.records import DECOMPRESSED_MAX, iter_batches
from fairlead_wire.zigzag import VARLONG_SIZE_MAX, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS_PER_STEP: Final = 1_000


class Replay:
    """`read` every piece of the log in order, then `finish`; both in steps."""

    def __init__(self) -> None:
        self.records_count = 0
        self.unreadable_count = 0
        """Records without a key, or whose key or value is damaged."""
        self.unknown_count = 0
        """Records of a kind that this broker does not keep."""
        self.next_offset = 0
        """Behind the last batch read."""
        self.offsets: dict[str, GroupOffsets] = {}
        self.group_values: dict[str, bytes] = {}
        self._latest: dict[bytes, bytes] = {}

    def read(self, data: bytes) -> Iterator[None]:
        """Whole batches, as the log has them. RemoteProtocolError where one is damaged."""
        for position, header in iter_batches(data):
            try:
                check_batch(data, position, header, remaining=len(data) - position)
            except KafkaError as error:
                raise RemoteProtocolError(error.message) from error
            if not header.is_control:
                yield from self._read_records(data, position, header)
            self.next_offset = header.next_offset
            yield

    def _read_records(self, data: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        start, end = position + BATCH_HEADER_SIZE, position + header.size
        body = data
        if header.codec:
            body = decompress(memoryview(data)[start:end], header.codec, max_size=DECOMPRESSED_MAX)
            start, end = 0, len(body)
        left = header.records_count
        try:
            while left > 0:
                count = min(left, RECORDS_PER_STEP)
                start = self._take_records(body, start, end, count)
                left -= count
                yield
        except IndexError as error:
            raise RemoteProtocolError("a record is cut off") from error
        if start != end:
            raise RemoteProtocolError(f"{end - start} bytes behind the last record of a batch")

    def _take_records(  # noqa: PLR0912 (one pass, nothing called: this is what loading costs)
        self, body: bytes, position: int, end: int, count: int
    ) -> int:
        """`count` records from `position`; where the next one starts.

        The numbers of a record are varints, nearly always of one or two bytes: those are read in
        place, anything longer by `read_varint`.
        """
        latest = self._latest
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
                latest[key] = body[key_end + 1 : value_end]
            else:
                size, start = read_varint(body, key_end)
                if start + max(size, 0) >= record_end:
                    raise RemoteProtocolError("a value is longer than its record")
                if size < 0:
                    latest.pop(key, None)
                else:
                    latest[key] = body[start : start + size]
            position = record_end
        self.records_count += count
        return position

    def finish(self) -> Iterator[None]:
        """Decode what is left: `offsets` and `group_values` by group id."""
        latest, self._latest = self._latest, {}
        topics: dict[bytes, TopicOffsets] = {}
        while latest:
            for _ in range(min(len(latest), RECORDS_PER_STEP)):
                key, value = latest.popitem()
                prefix = key[:-4]
                topic = topics.get(prefix)
                if topic is not None:
                    if is_plain_value(value) or self._is_offset_value(value):
                        topic.values[int.from_bytes(key[-4:], "big", signed=True)] = value
                    continue
                decoded = self._decode_key(key)
                if decoded is None:
                    continue
                if isinstance(decoded, OffsetKey):
                    if self._is_offset_value(value):
                        topic = self._topic(decoded)
                        topic.values[decoded.partition] = value
                        if key[:2] == b"\0\1":
                            # Only keys of our own version: the same prefix then means the same.
                            topics[prefix] = topic
                elif self._is_group_value(value):
                    self.group_values[decoded.group_id] = value
            yield

    def _topic(self, key: OffsetKey) -> TopicOffsets:
        group = self.offsets.get(key.group_id)
        if group is None:
            group = self.offsets[key.group_id] = GroupOffsets(key.group_id)
        return group.topic(key.topic)

    def _decode_key(self, key: bytes) -> Key | None:
        try:
            decoded = decode_key(key)
        except ValueError:
            self.unreadable_count += 1
            return None
        if decoded is None:
            self.unknown_count += 1
        return decoded

    def _is_offset_value(self, value: bytes) -> bool:
        try:
            decode_offset_value(value)
        except ValueError:
            self.unreadable_count += 1
            return False
        return True

    def _is_group_value(self, value: bytes) -> bool:
        try:
            decode_group_value(value)
        except ValueError:
            self.unreadable_count += 1
            return False
        return True
