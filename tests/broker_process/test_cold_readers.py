"""Who reads what has long left the memory moves the latency of nobody who reads and writes now."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from cold_reader import FETCH_VERSION, MIB, ColdReader, fetch
from confluent_kafka.admin import AdminClient, NewTopic
from live_broker import FrameClient, batch
from resident_pages import evict_file

from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

DEADLINE_S = 60.0
OLD, NEW = "old", "new"
OLD_BATCHES = 256
"""Of a MiB each, about."""
WRITE_EVERY_S = 0.002
TURN_S = 1.0
TURNS_MIN, TURNS_MAX = 5, 20
RATIO_MAX = 2.5
LOOP_SHARE_MAX = 0.1
"""Of what is read from the disk: batch headers, which a fetch finds its records by."""


class Story:
    """A broker with a quarter of a GiB of old records, and a topic for new ones."""

    def __init__(self, cluster: Any) -> None:
        (self.broker,) = cluster.brokers
        _, _, port = self.broker.address.rpartition(":")
        self.port = int(port)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        # Sealed segments: where records are is found by their indexes and headers.
        old_topic = NewTopic(OLD, 1, 1, config={"segment.bytes": str(16 * MIB)})
        for future in admin.create_topics([old_topic, NewTopic(NEW, 1, 1)]).values():
            future.result(DEADLINE_S)
        old = batch(b"x" * (MIB - 1_000))
        with FrameClient(self.port) as client:
            for _ in range(OLD_BATCHES):
                write(client, OLD, old)

    def evict_old(self) -> None:
        for segment in (self.broker.data / f"{OLD}-0").glob("*.log"):
            evict_file(segment)

    def measure_p99(self) -> float:
        """Return how long a new record takes to be written and read, but for one in a hundred."""
        record = batch(b"y" * 100)
        durations: list[float] = []
        end = time.monotonic() + TURN_S
        with FrameClient(self.port) as client:
            while (began := time.monotonic()) < end:
                offset = write(client, NEW, record)
                client.send(fetch(NEW, offset), FETCH_VERSION)
                assert len(client.receive_frame()) > len(record)
                took = time.monotonic() - began
                durations.append(took)
                time.sleep(max(0.0, WRITE_EVERY_S - took))
        durations.sort()
        return durations[len(durations) * 99 // 100]

    def bytes_from_disk(self) -> tuple[int, int]:
        """Return what the thread of the event loop has had read, and all threads together."""
        tasks = Path(f"/proc/{self.broker.pid}/task")
        loop = read_bytes(tasks / str(self.broker.pid))
        return loop, sum(read_bytes(task) for task in tasks.iterdir())


def write(client: FrameClient, topic: str, data: bytes) -> int:
    partition = PartitionProduceData(0, bytearray(data))
    topics = [TopicProduceData(topic, partition_data=[partition])]
    answer = client.call(ProduceRequest(None, 1, 5_000, topics), 9)
    answered = answer.responses[0].partition_responses[0]
    assert answered.error_code == 0
    return int(answered.base_offset)


def read_bytes(task: Path) -> int:
    """Return what one thread has caused to be read from disks (proc_pid_io(5))."""
    counts = dict(line.split(": ") for line in (task / "io").read_text().splitlines())
    return int(counts["read_bytes"])


def test_a_reader_of_cold_data_moves_neither_the_p99_of_others_nor_the_loop_to_the_disk(
    make_cluster: Callable[..., Any],
) -> None:
    story = Story(make_cluster())
    reader = ColdReader(story.port, OLD, OLD_BATCHES)
    ratios: list[float] = []
    loop_bytes = all_bytes = 0
    # By turns, so that what else the machine does meets both. More turns where that is much.
    while len(ratios) < TURNS_MIN or (median(ratios) > RATIO_MAX and len(ratios) < TURNS_MAX):
        alone = story.measure_p99()
        loop_before, all_before = story.bytes_from_disk()
        # None of what it reads is in memory.
        story.evict_old()
        with reader.reading():
            beside = story.measure_p99()
        loop_after, all_after = story.bytes_from_disk()
        loop_bytes += loop_after - loop_before
        all_bytes += all_after - all_before
        ratios.append(beside / alone)
    assert reader.end() == 0
    assert all_bytes > len(ratios) * 20 * MIB, "it was cold"
    assert loop_bytes < LOOP_SHARE_MAX * all_bytes
    assert median(ratios) <= RATIO_MAX, ratios
