"""The effect of the number of a topic's partitions on one producer: throughput, latency, memory.

Three brokers, three replicas, at least two of them in sync, acks=all. The same load goes to topics
of one, ten, a hundred and a thousand partitions. `benchmarks/scale.py` measures how long a failover
of so many partitions takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.loads.load_process import Sample, run_load
from fairlead_bench.peers.cluster import Cluster
from fairlead_bench.peers.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.report.metrics import PARTITION_COUNTS
from fairlead_bench.report.results import Results
from fairlead_bench.scenarios.replicated import (
    ADMIN_TIMEOUT_S,
    MIN_IN_SYNC,
    RATE,
    RECORD_SIZE,
    REPLICAS,
    Maker,
)

GROUP: Final = "partitions"


@dataclass(frozen=True, slots=True)
class CountSizes:
    """How many records each load sends."""

    repetitions: int
    produce_records: int
    latency_s: int


FULL: Final = CountSizes(3, 300_000, 8)
QUICK: Final = CountSizes(1, 100_000, 3)


class CountsRun:
    """All numbers of partitions on all peers, one peer after the other."""

    def __init__(
        self,
        makers: Mapping[str, Maker],
        sizes: CountSizes,
        results: Results,
        *,
        say: Callable[[str], None],
        settle: Callable[[], None],
    ) -> None:
        self._makers, self._sizes, self._results = makers, sizes, results
        self._say, self._settle = say, settle

    def measure(self, folder: Path) -> None:
        for peer, make in self._makers.items():
            cluster = make(folder / f"{peer}-partitions")
            try:
                cluster.start()
                wait_until_serving(cluster)
                for repetition in range(self._sizes.repetitions):
                    for count in PARTITION_COUNTS:
                        self._say(f"{peer}: {repetition + 1}: {count} partitions")
                        self._measure_count(peer, cluster, count)
            finally:
                cluster.stop()

    def _measure_count(self, peer: str, cluster: Cluster, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        topic = f"partitions-{count}"
        config = {"min.insync.replicas": str(MIN_IN_SYNC), "file.delete.delay.ms": "0"}
        new = NewTopic(topic, count, REPLICAS, config=config)
        admin.create_topics([new])[topic].result(ADMIN_TIMEOUT_S)
        wait_until_in_sync(cluster, partitions=count, topics=[topic])

        def run(mode: str, **arguments: object) -> Sample:
            target = {
                "mode": mode,
                "topic": topic,
                "bootstrap": cluster.bootstrap,
                "size": RECORD_SIZE,
                "acks": "all",
            }
            return run_load("rdkafka_load", target | arguments, pids=cluster.pids)

        produced = run("produce", count=self._sizes.produce_records)
        self._results.samples[peer, f"{topic}_produce"].append(produced)
        self._settle()
        latency = run("latency", rate=RATE, duration_s=self._sizes.latency_s)
        self._results.samples[peer, f"{topic}_latency"].append(latency)
        admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)
