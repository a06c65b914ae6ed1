"""Retention on running brokers: what goes while it is read, who is told, what room it leaves."""

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from live_broker import FrameClient
from waiting import wait_until

from fairlead_broker.log.files.file_names import RETENTION_SUFFIX
from fairlead_wire.errors import ErrorCode
from fairlead_wire.header import decode_response
from fairlead_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from fairlead_wire.records import decode_batch, iter_batches

DEADLINE_S = 60.0
TOPIC = "t"
VALUE_BYTES = 1000
SEGMENT_BYTES = 1 << 20
RETENTION_BYTES = 2 * SEGMENT_BYTES
FETCH_VERSION = 11
HOUR_MS = 3_600_000
READ_EVERY_S = 5.0
"""A broker gives a connection up that has taken nothing for 30 s."""


class Story:
    """Two brokers that look for old segments ten times a second, and a topic that both hold."""

    def __init__(self, cluster: Any, **config: str) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        settings = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "100"}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(TOPIC, 1, 2, config=settings)
        self.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        self.sent = 0
        named = {"batch.size": 16_384, "linger.ms": 5}
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"} | named)

    def produce(self, count: int, *, timestamp_ms: int = 0) -> None:
        """Send numbers, which both brokers acknowledge."""
        failed: list[Any] = []
        for number in range(self.sent, self.sent + count):
            self.producer.produce(
                TOPIC,
                value_of(number),
                partition=0,
                timestamp=timestamp_ms or int(time.time() * 1000),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            self.producer.poll(0)
        assert self.producer.flush(DEADLINE_S) == 0
        assert failed == []
        self.sent += count

    def set_retention_ms(self, value: int) -> None:
        entry = ConfigEntry("retention.ms", str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)

    def offset(self, spec: Any) -> int:
        asked = TopicPartition(TOPIC, 0)
        return int(self.admin.list_offsets({asked: spec})[asked].result(DEADLINE_S).offset)

    def log_start(self) -> int:
        return self.offset(OffsetSpec.earliest())

    def connect(self, **options: Any) -> FrameClient:
        """Connect to the leader."""
        leader = (
            self.admin.list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC].partitions[0].leader
        )
        _, _, port = self.cluster.brokers[leader].address.rpartition(":")
        return FrameClient(int(port), **options)

    def folders(self) -> list[Path]:
        return [broker.data / f"{TOPIC}-0" for broker in self.cluster.brokers]

    def has_freed(self, bytes_max: int) -> bool:
        """Return whether both brokers hold the log from its start on, in at most so many bytes."""
        first = f"{self.log_start():020}.log"
        for folder in self.folders():
            logs = sorted(folder.glob("*.log*"))
            if logs[0].name != first or any(log.suffix != ".log" for log in logs):
                return False
            try:
                size = sum(log.stat().st_size for log in logs)
            except FileNotFoundError:  # renamed meanwhile
                return False
            if size > bytes_max:
                return False
        return True

    def unlinked_descriptors(self) -> list[str]:
        """Return names of files that a broker holds open: the disk does not have their room yet."""
        found = []
        for broker in self.cluster.brokers:
            for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
                try:
                    target = str(descriptor.readlink())
                except FileNotFoundError:
                    continue
                if target.startswith(str(broker.data)) and target.endswith("(deleted)"):
                    found.append(Path(target).name)
        return found


@pytest.fixture
def begin(make_cluster: Callable[..., Any]) -> Callable[..., Story]:
    settings = {
        "log.retention.check.interval.ms": "100",
        # So that a large reply does not leave for the kernel as a whole.
        "socket.send.buffer.bytes": "65536",
    }
    return lambda **config: Story(
        make_cluster(brokers=2, settings=settings, is_patient=True), **config
    )


def value_of(number: int) -> bytes:
    return (b"%d " % number).ljust(VALUE_BYTES, b"x")


def fetch(offset: int) -> FetchRequest:
    """Ask for a segment at most, from an offset on."""
    asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=SEGMENT_BYTES)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=SEGMENT_BYTES,
        topics=[FetchTopic(TOPIC, partitions=[asked])],
    )


def partition_of(response: Any) -> PartitionData:
    return response.responses[0].partitions[0]  # type: ignore[no-any-return]


def values(data: PartitionData) -> list[bytes]:
    records = memoryview(data.records or b"")  # type: ignore[arg-type]
    batches = [position for position, _ in iter_batches(records)]
    return [bytes(r.value or b"") for at in batches for r in decode_batch(records, at)]


def subscriber(story: Story, offset: int, **settings: Any) -> Consumer:
    named = {"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": story.cluster.bootstrap} | named | settings)
    consumer.assign([TopicPartition(TOPIC, 0, offset)])
    return consumer


def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + 2 * DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        for message in consumer.consume(count - len(found), timeout=0.5):
            assert message.error() is None, message.error()
            found.append(message.value())
    return found


def wait_while_reading_slowly(
    client: FrameClient, condition: Callable[[], bool], received: bytearray
) -> None:
    """Take a little of a reply now and then until the condition holds."""
    read_s = time.monotonic()

    def is_met() -> bool:
        nonlocal read_s
        if time.monotonic() - read_s > READ_EVERY_S:
            received.extend(client.receive_exactly(16_384))
            read_s = time.monotonic()
        return condition()

    wait_until(is_met, "the old segments never went")


def test_by_size_segments_go_while_they_are_read_and_the_disk_has_their_room(
    begin: Callable[..., Story],
) -> None:
    story = begin(retention_bytes=str(RETENTION_BYTES))
    story.produce(1_500)
    assert story.log_start() == 0
    consumer = subscriber(story, 0)
    with story.connect(receive_buffer=4096) as slow:
        slow.send(fetch(0), FETCH_VERSION)
        (size,) = struct.unpack(">i", slow.receive_exactly(4))
        received = bytearray()
        assert size > SEGMENT_BYTES // 2
        # Who keeps up reads every record, though all but the last two segments go.
        number = 0
        while number < 8 * 1_024:
            assert read(consumer, story.sent - number) == [
                value_of(each) for each in range(number, story.sent)
            ]
            number = story.sent
            story.produce(500)
        wait_while_reading_slowly(
            slow, lambda: story.has_freed(RETENTION_BYTES + SEGMENT_BYTES), received
        )
        start = story.log_start()
        assert start > 4 * 1_024
        # The reply that is half sent has kept its file, and nobody else has kept any.
        wait_until(
            lambda: story.unlinked_descriptors() == [f"{0:020}.log{RETENTION_SUFFIX} (deleted)"]
        )
        received += slow.receive_exactly(size - len(received))
        _, response = decode_response(memoryview(received), FetchRequest.API_KEY, FETCH_VERSION)
        found = values(partition_of(response))
        assert found == [value_of(each) for each in range(len(found))]
        assert len(found) > 500
        wait_until(lambda: not story.unlinked_descriptors(), "a file is kept open")

        behind = partition_of(slow.call(fetch(start - 1), FETCH_VERSION))
        assert ErrorCode(behind.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
        first = partition_of(slow.call(fetch(start), FETCH_VERSION))
        assert (ErrorCode(first.error_code), first.log_start_offset) == (ErrorCode.NONE, start)
        assert values(first)[0] == value_of(start)
    consumer.close()

    late = subscriber(story, 0, **{"auto.offset.reset": "earliest"})
    left = [value_of(each) for each in range(start, story.sent)]
    assert read(late, len(left)) == left
    late.close()


def test_by_time_old_segments_go_and_an_idle_log_empties(begin: Callable[..., Story]) -> None:
    story = begin(retention_ms="-1")
    now_ms = int(time.time() * 1000)
    story.produce(3_000, timestamp_ms=now_ms - HOUR_MS)
    # Begins in a segment of old records, which stay with it.
    story.produce(1_500, timestamp_ms=now_ms)
    consumer = subscriber(story, story.sent)
    story.set_retention_ms(HOUR_MS // 2)
    wait_until(lambda: story.log_start() > 0, "the old segments never went")
    wait_until(lambda: story.has_freed(3 * SEGMENT_BYTES))
    start = story.log_start()
    assert 1_500 < start <= 3_000
    with story.connect() as client:
        behind = partition_of(client.call(fetch(start - 1), FETCH_VERSION))
        assert ErrorCode(behind.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert values(partition_of(client.call(fetch(start), FETCH_VERSION)))[0] == value_of(start)

    # When the newest record is too old, the segment that is written to goes as well.
    story.set_retention_ms(1)
    wait_until(lambda: story.log_start() == story.sent, "the log never emptied")
    wait_until(lambda: story.has_freed(0), "the disk never got its room back")
    wait_until(lambda: not story.unlinked_descriptors(), "a file is kept open")
    # Who stood at the end is behind nothing, and goes on.
    story.set_retention_ms(-1)
    end = story.sent
    story.produce(100)
    assert read(consumer, 100) == [value_of(each) for each in range(end, end + 100)]
    consumer.close()
