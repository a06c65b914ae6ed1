"""Records that were just written, and all after a restart, are sent without a read from the disk.

A kernel may take pages away from whoever has memory to spare: DAMON does so with what looks idle to
it. It counts those that it has to read again. So a round in which brokers went to the disk is put
down to the kernel where that count has risen, and another one has to do without. What is a broker's
fault shows in every round.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from resident_pages import evict_file

DEADLINE_S = 60.0
ROUNDS = 5
TOPIC = "t"
PARTITIONS = 3
COUNTED_EVERY_S = 1.1
"""A broker brings the count up to date once a second, on the loop that answers who asks for it."""


class Story:
    """A cluster that holds one topic on all of its brokers, a producer, and a consumer."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.sent = 0
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(
            TOPIC, PARTITIONS, len(cluster.brokers), config={"segment.bytes": str(1 << 20)}
        )
        admin.create_topics([topic])[TOPIC].result(DEADLINE_S)

    def produce(self, count: int, *, size: int) -> None:
        """Send records that all brokers acknowledge."""
        for _ in range(count):
            self.producer.produce(TOPIC, b"x" * size, partition=self.sent % PARTITIONS)
            self.producer.poll(0)
            self.sent += 1
        assert self.producer.flush(DEADLINE_S) == 0

    def subscriber(self) -> Consumer:
        """Return a consumer of all records from the first on."""
        settings = {"group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap} | settings)
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        return consumer

    def cold_reads(self) -> int:
        """Return how many reads found pages missing, of all brokers since their start."""
        time.sleep(COUNTED_EVERY_S)
        return sum(count_cold_reads(broker) for broker in self.cluster.brokers)

    def segments(self) -> list[Path]:
        return sorted(self.cluster.brokers[0].data.glob(f"{TOPIC}-*/*.log"))


def check_no_round_needs_the_disk(count_reads: Callable[[], int]) -> None:
    """Play rounds, which count reads from the disk, until one has needed none."""
    for _ in range(ROUNDS):
        refaulted = count_refaults()
        reads = count_reads()
        if not reads:
            return
        assert count_refaults() > refaulted, f"{reads} reads, though the kernel took no page"
    pytest.fail(f"in each of {ROUNDS} rounds brokers read from the disk, in the last {reads} times")


def count_cold_reads(broker: Any) -> int:
    # A scrape may overtake what is due in the same turn of the loop: the next one does not.
    broker.get("/metrics")
    _, text = broker.get("/metrics")
    found = re.search(r"^fairlead_cold_reads_total (\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def count_refaults() -> int:
    """Return how many pages of files the kernel took from memory and has had to read again."""
    counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counts["workingset_refault_file"])


def read(consumer: Consumer, count: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while count:
        assert time.monotonic() < deadline, f"{count} records never came"
        for message in consumer.consume(count, timeout=0.5):
            assert message.error() is None, message.error()
            count -= 1


def test_a_consumer_and_followers_that_keep_up_never_wait_for_a_disk(
    make_cluster: Callable[..., Any],
) -> None:
    story = Story(make_cluster(brokers=3, is_patient=True))
    consumer = story.subscriber()

    def keep_up() -> int:
        before = story.cold_reads()
        # Replies of all kinds: copied ones, and such as go from file to socket.
        for count, size in ((1, 100), (60, 100), (60, 1_000), (60, 10_000), (6, 500_000)) * 2:
            story.produce(count, size=size)
            read(consumer, count)
        return story.cold_reads() - before

    check_no_round_needs_the_disk(keep_up)
    consumer.close()


def test_after_a_clean_restart_all_is_sent_without_a_disk(
    make_cluster: Callable[..., Any],
) -> None:
    story = Story(make_cluster())
    (broker,) = story.cluster.brokers
    story.produce(600, size=10_000)

    def read_all() -> int:
        before = story.cold_reads()
        consumer = story.subscriber()
        read(consumer, story.sent)
        consumer.close()
        return story.cold_reads() - before

    def restart_and_read_all() -> int:
        assert broker.stop() == 0
        broker.start()
        return read_all()

    check_no_round_needs_the_disk(restart_and_read_all)
    # A count that never moves would prove nothing.
    for segment in story.segments():
        evict_file(segment)
    assert read_all() > 0
