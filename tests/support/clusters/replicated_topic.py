"""One topic on a cluster of real brokers: its leaders, and what producers and consumers see."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from live_broker import FrameClient, batch
from waiting import wait_until

from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

DEADLINE_S = 60.0
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

    def create_with(
        self, config: dict[str, str], partitions: int = 1, *, replication_factor: int = 3
    ) -> None:
        topic = NewTopic(TOPIC, partitions, replication_factor, config=config)
        self.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        self.until(lambda: self.leader() >= 0)

    def record(self, index: int = 0) -> Any:
        return self._ask(lambda metadata: metadata.topics[TOPIC].partitions[index])

    def live_brokers(self) -> set[int]:
        """Those that clients are told of."""
        return set(self._ask(lambda metadata: metadata.brokers))

    def _ask(self, find: Callable[[Any], Any]) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return find(self.admin.list_topics(TOPIC, timeout=1))
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
        """Read the first numbers."""
        return [int(value.split()[0]) for value in self.consume_values(count, partition=partition)]

    def consume_values(self, count: int, *, partition: int = 0) -> list[bytes]:
        """Read the first records."""
        settings = {"group.id": "none", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, **settings})
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < count and time.monotonic() < deadline:
            for message in consumer.consume(count, timeout=0.5):
                if message.error() is None:
                    values.append(message.value())
        consumer.close()
        return values

    def until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition)

    def log_bytes(self, broker: Any, index: int = 0) -> bytes:
        logs = sorted((broker.data / f"{TOPIC}-{index}").glob("*.log"))
        return b"".join(log.read_bytes() for log in logs)

    def check_nothing_is_lost(self) -> None:
        """Check that all numbers were acknowledged, and are there once and in order."""
        self.flush()
        assert self.refused == []
        assert self.acknowledged == self.sent
        assert self.consume(len(self.sent)) == self.sent


def latest_offset(client: FrameClient) -> int:
    """Return the offset up to which consumers may read."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topics = [ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    answer = client.call(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
    return int(answer.topics[0].partitions[0].offset)


def produce_request(*, acks: int) -> ProduceRequest:
    data = PartitionProduceData(0, bytearray(batch(b"by hand")))
    return ProduceRequest(None, acks, 5_000, [TopicProduceData(name=TOPIC, partition_data=[data])])


def code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)
