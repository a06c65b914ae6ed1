"""The loads on one broker, and how one of them is run once on one peer."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.loads.load_process import Sample, run_load
from fairlead_bench.peers.null_broker import BATCH_RECORDS
from fairlead_bench.peers.peer import Peer, wait_until_ready

PARTITIONS: Final = 6
MEGABYTE: Final = 1 << 20
ADMIN_TIMEOUT_S: Final = 30


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many records each load sends: in the full run, or in a quick one."""

    produce_1k_records: int
    produce_100b_records: int
    consume_passes: int
    fetch_bytes: int
    requests: int
    single_requests: int
    commits: int
    latency_s: int


FULL: Final = Sizes(1_000_000, 5_000_000, 2, 6_000_000_000, 250_000, 60_000, 150_000, 8)
QUICK: Final = Sizes(400_000, 1_000_000, 2, 2_000_000_000, 100_000, 30_000, 60_000, 3)


class Bench:
    """One peer under load: its admin client and the topic that consumers read."""

    def __init__(self, peer: Peer, sizes: Sizes) -> None:
        self.peer = peer
        self._sizes = sizes
        self._admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 2})
        self._topics: list[str] = []
        self._read_topic = ""

    def create_topic(self, purpose: str, partitions: int = PARTITIONS) -> str:
        """Create a topic. Deleted files are removed at once, and their page cache with them."""
        name = f"{purpose}-{time.monotonic_ns()}"
        topic = NewTopic(name, partitions, 1, config={"file.delete.delay.ms": "0"})
        self._admin.create_topics([topic])[name].result(ADMIN_TIMEOUT_S)
        self._topics.append(name)
        wait_until_ready(self.peer, probe_topic=name, probe_partitions=partitions)
        return name

    def delete_topics(self) -> None:
        if self._topics:
            for future in self._admin.delete_topics(self._topics).values():
                future.result(ADMIN_TIMEOUT_S)
        self._topics.clear()

    def run(self, module: str, mode: str, topic: str, **arguments: object) -> Sample:
        return run_load(
            module,
            {
                "mode": mode,
                "topic": topic,
                "bootstrap": self.peer.bootstrap,
                "port": self.peer.port,
                "partitions": PARTITIONS,
                **arguments,
            },
            pids=[self.peer.broker_pid],
        )

    def produce_1k(self) -> Sample:
        topic = self.create_topic("produce-1k")
        return self.run(
            "rdkafka_load", "produce", topic, size=1000, count=self._sizes.produce_1k_records
        )

    def fill(self) -> None:
        """Write the records for readers, without timing: the same batches in each peer.

        A producer would make larger batches for a broker that answers later, and readers of larger
        batches have less to do.
        """
        self._read_topic = self.create_topic("consume-1k")
        self.run(
            "rdkafka_load",
            "produce",
            self._read_topic,
            size=1000,
            count=self._sizes.produce_1k_records,
            settings={"batch.num.messages": BATCH_RECORDS, "linger.ms": 1000},
        )
        settle()

    def consume(self) -> Sample:
        """Read what has just been written, all of which is in the page cache."""
        self.fill()
        read_files(self.peer.log_directory.glob(f"{self._read_topic}-*/*.log"))
        before = self.peer.thread_reads()
        sample = self.run(
            "rdkafka_load",
            "consume",
            self._read_topic,
            count=self._sizes.produce_1k_records,
            passes=self._sizes.consume_passes,
        )
        after = self.peer.thread_reads()
        if before is not None and after is not None:
            sample.result["thread_reads"] = after - before
        return sample

    def fetch(self) -> Sample:
        """Read the same as `consume`."""
        return self.run(
            "socket_load",
            "fetch",
            self._read_topic,
            bytes=self._sizes.fetch_bytes,
            in_flight=2,
            request_bytes=MEGABYTE,
        )

    def produce_100b(self) -> Sample:
        topic = self.create_topic("produce-100b")
        count = self._sizes.produce_100b_records
        return self.run("rdkafka_load", "produce", topic, size=100, count=count)

    def requests(self) -> Sample:
        topic = self.create_topic("requests")
        count = self._sizes.requests
        return self.run(
            "socket_load", "produce", topic, size=100, count=count, connections=64, in_flight=32
        )

    def single(self) -> Sample:
        topic = self.create_topic("single")
        settings = {"linger.ms": 0, "batch.num.messages": 1}
        count = self._sizes.single_requests
        return self.run("rdkafka_load", "produce", topic, size=100, count=count, settings=settings)

    def commits(self) -> Sample:
        """Commit offsets of many groups, with a few requests of each at once, as consumers do."""
        topic = self.create_topic("commits")
        count = self._sizes.commits
        return self.run("socket_load", "commit", topic, count=count, connections=64, in_flight=4)

    def latency(self) -> Sample:
        topic = self.create_topic("latency")
        duration_s = self._sizes.latency_s
        return self.run(
            "rdkafka_load", "latency", topic, size=100, rate=1000, duration_s=duration_s
        )


def read_files(paths: Iterable[Path]) -> None:
    """Read files into the page cache, if other loads or the machine have removed them from it."""
    buffer = bytearray(MEGABYTE)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def settle() -> None:
    """Write dirty pages to the disk, so that this does not happen during the other peer's turn."""
    os.sync()


SCENARIOS: Final[dict[str, Callable[[Bench], Sample]]] = {
    "produce_1k": Bench.produce_1k,
    "consume": Bench.consume,
    "fetch": Bench.fetch,
    "produce_100b": Bench.produce_100b,
    "requests": Bench.requests,
    "single": Bench.single,
    "commits": Bench.commits,
    "latency": Bench.latency,
}
