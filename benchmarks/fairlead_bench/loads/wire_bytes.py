"""Kafka requests as bytes, encoded by hand and prepared once.

The load generator and the start-up probe use these instead of Fairlead's codec: they are cheaper
than encoding each time, and an error that both sides share cannot hide. Versions: Produce 9, Fetch
10, Metadata 4, OffsetCommit 2, FindCoordinator 0, DescribeQuorum 0.
"""

import struct
import time
from collections.abc import Mapping, Sequence
from typing import Final

import google_crc32c

CLIENT_ID: Final = b"fairlead-bench"
PRODUCE, FETCH, METADATA, OFFSET_COMMIT, FIND_COORDINATOR = 0, 1, 3, 8, 10
DESCRIBE_QUORUM: Final = 55
QUORUM_TOPIC: Final = b"__cluster_metadata"
NONE, REPLICA_NOT_AVAILABLE = 0, 9


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, version: int, correlation_id: int = 0) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def signed_varint(value: int) -> bytes:
    return unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def record_batch(values: list[bytes]) -> bytes:
    """Return an uncompressed batch of records without key or headers, with the present time."""
    records = bytearray()
    for index, value in enumerate(values):
        body = b"\x00\x00" + signed_varint(index) + b"\x01" + signed_varint(len(value)) + value
        records += signed_varint(len(body) + 1) + body + b"\x00"
    now_ms = time.time_ns() // 1_000_000
    checked = struct.pack(
        ">hiqqqhii", 0, len(values) - 1, now_ms, now_ms, -1, -1, -1, len(values)
    ) + bytes(records)
    crc = google_crc32c.value(checked)
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc) + checked


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int = 1) -> bytes:
    return produce_many_request({topic: [partition]}, batch, acks=acks)


def produce_many_request(
    partitions: Mapping[str, Sequence[int]],
    batch: bytes,
    *,
    acks: int = 1,
    timeout_ms: int = 30_000,
) -> bytes:
    """Return a request with the same batch for each of these partitions."""
    records = unsigned_varint(len(batch) + 1) + batch + b"\x00"
    body = bytearray()
    for topic, indexes in partitions.items():
        name = topic.encode()
        body += unsigned_varint(len(name) + 1) + name + unsigned_varint(len(indexes) + 1)
        for index in indexes:
            body += struct.pack(">i", index) + records
        body += b"\x00"
    return frame(
        header(PRODUCE, 9)
        + b"\x00"  # no tagged fields in the header
        + b"\x00"  # no transactional id
        + struct.pack(">hi", acks, timeout_ms)
        + unsigned_varint(len(partitions) + 1)
        + bytes(body)
        + b"\x00"
    )


def produce_many_errors(reply: bytes) -> dict[tuple[str, int], int]:
    """Return error codes by partition, from a Produce v9 reply without its length."""
    reader = Reader(reply, 5)  # correlation id, no tagged fields
    errors: dict[tuple[str, int], int] = {}
    for _ in range(reader.take_varint() - 1):
        name = reader.take_compact_bytes().decode()
        for _ in range(reader.take_varint() - 1):
            index, error = reader.take(">i"), reader.take(">h")
            errors[name, index] = error
            reader.position += 24  # base offset, append time, log start offset
            for _ in range(reader.take_varint() - 1):
                reader.position += 4
                reader.take_compact_bytes()
                reader.position += 1
            reader.take_compact_bytes()  # a message, or null
            reader.position += 1
        reader.position += 1
    return errors


def produce_error_position(topic: str) -> int:
    """Return the position of the error code in a framed Produce v9 reply for one partition."""
    return 4 + 4 + 1 + 1 + 1 + len(topic.encode()) + 1 + 4


def fetch_request(topic: str, partition: int, offset: int, *, max_bytes: int) -> bytes:
    name = topic.encode()
    return frame(
        header(FETCH, 10)
        + struct.pack(">iiiibiii", -1, 500, 1, max_bytes, 0, 0, -1, 1)  # without a session
        + struct.pack(">h", len(name))
        + name
        + struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
        + bytes(4)
    )


def fetch_records_position(topic: str) -> int:
    """Return the position of the records in a framed Fetch v10 reply for one partition."""
    return 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4


def metadata_request(topics: list[str] | None) -> bytes:
    """Return a request for these topics, or for all of them; it never creates one."""
    count = -1 if topics is None else len(topics)
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics or [])
    return frame(header(METADATA, 4) + struct.pack(">i", count) + names + b"\x00")


class Reader:
    """Reads one field after the other from a reply."""

    def __init__(self, reply: bytes, position: int) -> None:
        self._reply, self.position = reply, position

    def take(self, form: str) -> int:
        value: int = struct.unpack_from(form, self._reply, self.position)[0]
        self.position += struct.calcsize(form)
        return value

    def take_string(self) -> bytes:
        size = max(self.take(">h"), 0)  # Null is -1.
        self.position += size
        return self._reply[self.position - size : self.position]

    def take_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._reply[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take_compact_bytes(self) -> bytes:
        size = max(self.take_varint() - 1, 0)
        self.position += size
        return self._reply[self.position - size : self.position]


class MetadataReply:
    """The parts of a Metadata v4 reply that show whether a cluster is ready."""

    def __init__(self, reply: bytes) -> None:
        reader = Reader(reply, 8)  # correlation id, throttle time
        self.ports: dict[int, int] = {}
        """The port of each live broker."""
        for _ in range(reader.take(">i")):
            broker_id = reader.take(">i")
            reader.take_string()
            self.ports[broker_id] = reader.take(">i")
            reader.take_string()
        reader.take_string()
        reader.take(">i")
        self.leaders: dict[tuple[str, int], int] = {}
        """The leader of each partition that has one."""
        self.partitions_count = self.in_sync_count = 0
        for _ in range(reader.take(">i")):
            reader.take(">h")
            name = reader.take_string().decode()
            reader.take(">b")
            for _ in range(reader.take(">i")):
                error, index, leader = reader.take(">h"), reader.take(">i"), reader.take(">i")
                replicas_count = reader.take(">i")
                reader.position += 4 * replicas_count
                in_sync_count = reader.take(">i")
                reader.position += 4 * in_sync_count
                self.partitions_count += 1
                if leader >= 0 and error in {NONE, REPLICA_NOT_AVAILABLE}:
                    self.leaders[name, index] = leader
                    self.in_sync_count += in_sync_count == replicas_count

    @property
    def brokers_count(self) -> int:
        return len(self.ports)

    @property
    def leaders_count(self) -> int:
        return len(self.leaders)

    @property
    def summary(self) -> str:
        return (
            f"{self.brokers_count} brokers, {self.partitions_count} partitions, "
            f"{self.leaders_count} with leader, {self.in_sync_count} in sync"
        )


def short_text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def find_coordinator_request(group: str) -> bytes:
    return frame(header(FIND_COORDINATOR, 0) + short_text(group))


def offset_commit_request(group: str, topic: str, partition: int, offset: int) -> bytes:
    """Return a commit of one offset of a group without members, with typical metadata."""
    return frame(
        header(OFFSET_COMMIT, 2)
        + short_text(group)
        + struct.pack(">i", -1)
        + short_text("")
        + struct.pack(">qi", -1, 1)
        + short_text(topic)
        + struct.pack(">iiq", 1, partition, offset)
        + short_text("")
    )


def offset_commit_error_position(topic: str) -> int:
    """Return the position of the error code in its reply, from the start of the length."""
    return 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4


def describe_quorum_request() -> bytes:
    """Return a request for the leader of the quorum of Apache Kafka's controllers."""
    topic = unsigned_varint(len(QUORUM_TOPIC) + 1) + QUORUM_TOPIC
    partition = b"\x02" + struct.pack(">i", 0) + b"\x00"
    return frame(
        header(DESCRIBE_QUORUM, 0) + b"\x00" + b"\x02" + topic + partition + b"\x00" + b"\x00"
    )


def quorum_leader(reply: bytes) -> int | None:
    """Return the quorum's leader, from a reply without its length; None if there is none."""
    reader = Reader(reply, 5)  # correlation id, no tagged fields
    if reader.take(">h") or reader.take_varint() < 2:
        return None
    reader.take_compact_bytes()
    if reader.take_varint() < 2:
        return None
    reader.take(">i")
    error, leader = reader.take(">h"), reader.take(">i")
    return leader if not error and leader >= 0 else None
