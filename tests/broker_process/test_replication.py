"""Three real brokers and a controller: what is acknowledged stays, whoever dies or returns."""

import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from live_broker import FrameClient, batch

from fairlead_model.session_protocol import SESSION_TIMEOUT_MS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

DEADLINE_S = 30.0
TOPIC = "t"


class Story:
    """A cluster with one topic, and who leads and is in sync."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.sent: list[int] = []
        self.acknowledged: list[int] = []
        self.refused: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )

    def create(self, partitions: int = 1, **config: str) -> None:
        self.create_with({"min.insync.replicas": "2"} | config, partitions)

    def create_with(self, config: dict[str, str], partitions: int = 1) -> None:
        topic = NewTopic(TOPIC, partitions, 3, config=config)
        self.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        self.until(lambda: self.leader() >= 0)

    def record(self, index: int = 0) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                topics = self.admin.list_topics(TOPIC, timeout=1).topics
                return topics[TOPIC].partitions[index]
            except (KafkaException, KeyError):
                # It asked a broker that is dead or frozen, and would ask that one again.
                assert time.monotonic() < deadline, "no broker knows the topic"
                self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})

    def leader(self, index: int = 0) -> int:
        return int(self.record(index).leader)

    def isr(self, index: int = 0) -> set[int]:
        return set(self.record(index).isrs)

    def produce(self, count: int, *, partition: int = 0, size: int = 100) -> None:
        """Send numbers in order; they are acknowledged by and by."""
        for _ in range(count):
            number = len(self.sent)
            self.sent.append(number)
            value = b"%d " % number + b"x" * size
            while True:
                try:
                    self.producer.produce(
                        TOPIC, value, partition=partition, on_delivery=self._on_delivery(number)
                    )
                    break
                except BufferError:
                    self.producer.poll(0.01)
            self.producer.poll(0)

    def _on_delivery(self, number: int) -> Callable[[Any, Any], None]:
        def note(error: Any, _: Any) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.refused.append(error.name())

        return note

    def flush(self) -> None:
        assert self.producer.flush(DEADLINE_S) == 0

    def consume(self, count: int, *, partition: int = 0) -> list[int]:
        settings = {"group.id": "none", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, **settings})
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        numbers: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(numbers) < count and time.monotonic() < deadline:
            for message in consumer.consume(count, timeout=0.5):
                if message.error() is None:
                    numbers.append(int(message.value().split()[0]))
        consumer.close()
        return numbers

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "the condition never came true"
            time.sleep(0.02)

    def log_bytes(self, broker: Any, index: int = 0) -> bytes:
        logs = sorted((broker.data / f"{TOPIC}-{index}").glob("*.log"))
        return b"".join(log.read_bytes() for log in logs)

    def check_nothing_is_lost(self) -> None:
        """Every number was acknowledged, and is there once and in order."""
        self.flush()
        assert self.refused == []
        assert self.acknowledged == self.sent
        assert self.consume(len(self.sent)) == self.sent


@pytest.fixture
def story(make_cluster: Callable[..., Any]) -> Iterator[Story]:
    yield Story(make_cluster(brokers=3))


def test_a_killed_leader_loses_nothing_and_returns_in_sync(story: Story) -> None:
    story.create()
    story.produce(2_000)
    leader = story.cluster.brokers[story.leader()]
    leader.kill()
    story.produce(2_000)
    story.until(lambda: story.leader() not in (-1, leader.node_id))
    story.check_nothing_is_lost()
    leader.start()
    story.until(lambda: story.isr() == {0, 1, 2})
    logs = [story.log_bytes(broker) for broker in story.cluster.brokers]
    assert logs[0] == logs[1] == logs[2]


def test_a_follower_that_returns_with_an_empty_disk_is_not_in_sync_before_it_has_all(
    story: Story,
) -> None:
    story.create()
    story.produce(500)
    story.flush()
    follower = story.cluster.brokers[(story.leader() + 1) % 3]
    follower.kill()
    shutil.rmtree(follower.data)
    follower.start()
    story.until(lambda: story.isr() == {0, 1, 2})
    leader = story.cluster.brokers[story.leader()]
    assert story.log_bytes(follower) == story.log_bytes(leader)
    story.produce(100)
    story.check_nothing_is_lost()


def test_a_stopped_leader_makes_room_and_no_client_notices(story: Story) -> None:
    story.create()
    story.produce(500)
    leader = story.cluster.brokers[story.leader()]
    assert leader.stop() == 0
    story.produce(500)
    story.until(lambda: story.leader() not in (-1, leader.node_id))
    story.check_nothing_is_lost()
    leader.start()
    story.until(lambda: story.isr() == {0, 1, 2})


@pytest.mark.parametrize("place", ["topic", "settings of the brokers"])
def test_too_few_in_sync_replicas_refuse_acks_all(
    make_cluster: Callable[..., Any], place: str
) -> None:
    minimum = {"min.insync.replicas": "2"}
    story = Story(make_cluster(brokers=3, settings={} if place == "topic" else minimum))
    story.create_with(minimum if place == "topic" else {})
    story.produce(10)
    story.flush()
    leader = story.leader()
    for broker in story.cluster.brokers:
        if broker.node_id != leader:
            broker.kill()
    story.until(lambda: story.isr() == {leader})
    with FrameClient(int(story.cluster.brokers[leader].address.split(":")[1])) as client:
        answer = client.call(produce_request(acks=-1), 9)
        assert code_of(answer) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert code_of(client.call(produce_request(acks=1), 9)) is ErrorCode.NONE
    for broker in story.cluster.brokers:
        if broker.node_id != leader:
            broker.begin()
    for broker in story.cluster.brokers:
        if broker.node_id != leader:
            broker.wait_ready()
    story.until(lambda: story.isr() == {0, 1, 2})
    story.produce(10)
    story.flush()
    assert story.refused == []


def produce_request(*, acks: int) -> ProduceRequest:
    data = PartitionProduceData(0, bytearray(batch(b"by hand")))
    return ProduceRequest(None, acks, 5_000, [TopicProduceData(name=TOPIC, partition_data=[data])])


def code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_a_leader_that_was_stopped_and_wakes_acknowledges_nothing_alone(story: Story) -> None:
    story.create()
    story.produce(10)
    story.flush()
    frozen = story.cluster.brokers[story.leader()]
    with FrameClient(int(frozen.address.split(":")[1])) as client:
        assert code_of(client.call(produce_request(acks=1), 9)) is ErrorCode.NONE
        os.kill(frozen.pid, signal.SIGSTOP)
        stopped_s = time.monotonic()
        try:
            # Waits in the socket until the broker wakes.
            client.send(produce_request(acks=1), 9)
            story.until(lambda: story.leader() not in (-1, frozen.node_id))
            # The controller counts from the last heartbeat, the broker from the stop.
            story.until(lambda: time.monotonic() - stopped_s > 1.1 * SESSION_TIMEOUT_MS / 1000)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        _, answer = client.receive(ProduceRequest.API_KEY, 9)
        assert code_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    story.produce(10)
    story.flush()
    story.until(lambda: story.isr() == {0, 1, 2})
    logs = [story.log_bytes(broker) for broker in story.cluster.brokers]
    assert logs[0] == logs[1] == logs[2]


def test_a_partition_that_cannot_be_written_goes_offline_alone(story: Story) -> None:
    story.create(partitions=3)
    leader_id = story.leader(0)
    broker = story.cluster.brokers[leader_id]
    others = [index for index in (1, 2) if story.leader(index) == leader_id]
    story.produce(1_000, size=1_000)
    story.flush()
    # No file of this process may grow beyond what partition 0 has now: the others are smaller.
    size = len(story.log_bytes(broker, 0))
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, size))
    story.produce(100, size=1_000)
    story.until(lambda: story.leader(0) not in (-1, leader_id))
    story.check_nothing_is_lost()
    assert leader_id not in story.isr(0)
    assert broker.is_running
    for index in others:
        assert story.leader(index) == leader_id
    assert all(leader_id in story.isr(index) for index in (1, 2))


def test_nobody_follows_without_the_clusters_secret(story: Story) -> None:
    story.create()
    internal = story.cluster.brokers[0].ready["internal"]
    host, _, port = internal.rpartition(":")
    with FrameClient(int(port)) as stranger:
        stranger.send(produce_request(acks=1), 9)
        assert stranger.is_closed_by_peer()
    with socket.create_connection((host, int(port))) as raw:
        raw.settimeout(DEADLINE_S)
        raw.sendall((100_000).to_bytes(4, "big") + b"\0" * 1000)
        assert raw.recv(1) == b""
