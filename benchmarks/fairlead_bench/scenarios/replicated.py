"""The replicated loads: three brokers, three replicas, at least two of them in sync, acks=all.

The same for both peers, alternating, as in the loads on one broker. CPU and memory are the sums of
all processes: three brokers and the controllers.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.loads.load_process import Sample, run_load
from fairlead_bench.loads.process_usage import read_memory_mb
from fairlead_bench.peers.cluster import Cluster
from fairlead_bench.peers.cluster_state import ask_metadata, wait_until_in_sync, wait_until_serving
from fairlead_bench.report.results import Results
from fairlead_bench.scenarios.startup import PARTITIONS_A_TOPIC, TOPICS, fill_partitions

GROUP: Final = "replicated"
PARTITIONS: Final = 6
REPLICAS: Final = 3
MIN_IN_SYNC: Final = 2
ADMIN_TIMEOUT_S: Final = 60
IDLE_S: Final = 3.0
RECORD_SIZE: Final = 1000
RATE: Final = 1000
TRANSACTIONAL_RATE: Final = 10_000
TRANSFORM_RATE: Final = 5_000
COMMIT_MS: Final = 100
SHORT_COMMIT_MS: Final = 10

Maker = Callable[[Path], Cluster]


@dataclass(frozen=True, slots=True)
class ReplicatedSizes:
    """How many records each load sends."""

    repetitions: int
    restarts: int
    produce_records: int
    latency_s: int


FULL: Final = ReplicatedSizes(3, 2, 600_000, 8)
QUICK: Final = ReplicatedSizes(1, 1, 200_000, 3)


def choose_sizes(*, is_quick: bool, repetitions: int | None) -> ReplicatedSizes:
    sizes = QUICK if is_quick else FULL
    return replace(sizes, repetitions=repetitions) if repetitions else sizes


class ReplicatedBench:
    """One cluster under load."""

    def __init__(self, cluster: Cluster, sizes: ReplicatedSizes) -> None:
        self.cluster = cluster
        self._sizes = sizes
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})

    def create_topic(self, purpose: str) -> str:
        """Create a new topic, with all replicas in sync."""
        name = f"{purpose}-{time.monotonic_ns()}"
        config = {"min.insync.replicas": str(MIN_IN_SYNC), "file.delete.delay.ms": "0"}
        topic = NewTopic(name, PARTITIONS, REPLICAS, config=config)
        self._admin.create_topics([topic])[name].result(ADMIN_TIMEOUT_S)
        wait_until_in_sync(self.cluster, partitions=PARTITIONS, topics=[name])
        return name

    def delete_topics(self) -> None:
        names = {topic for topic, _ in ask_metadata(self.cluster.ports[0]).leaders}
        ours = [name for name in names if not name.startswith("__")]
        if ours:
            for future in self._admin.delete_topics(ours).values():
                future.result(ADMIN_TIMEOUT_S)

    def _run(
        self, mode: str, topic: str, *, module: str = "rdkafka_load", **arguments: object
    ) -> Sample:
        target = {
            "mode": mode,
            "topic": topic,
            "bootstrap": self.cluster.bootstrap,
            "size": RECORD_SIZE,
            "acks": "all",
        }
        return run_load(module, target | arguments, pids=self.cluster.pids)

    def produce(self) -> Sample:
        topic = self.create_topic("replicated-produce")
        return self._run("produce", topic, count=self._sizes.produce_records)

    def latency(self) -> Sample:
        topic = self.create_topic("replicated-latency")
        return self._run("latency", topic, rate=RATE, duration_s=self._sizes.latency_s)

    def transactions(self) -> Sample:
        return self._run_transactions(COMMIT_MS)

    def short_transactions(self) -> Sample:
        return self._run_transactions(SHORT_COMMIT_MS)

    def _run_transactions(self, interval_ms: int) -> Sample:
        return self._run(
            "transactions",
            self.create_topic("transactions"),
            module="transaction_load",
            rate=TRANSACTIONAL_RATE,
            interval_ms=interval_ms,
            duration_s=self._sizes.latency_s,
        )

    def transform(self) -> Sample:
        """Consume, transform, produce, with the offsets in the same transaction."""
        return self._run(
            "transform",
            self.create_topic("transform-source"),
            module="transaction_load",
            target=self.create_topic("transform-target"),
            partitions=PARTITIONS,
            rate=TRANSFORM_RATE,
            interval_ms=COMMIT_MS,
            duration_s=self._sizes.latency_s,
        )

    def read_memory_mb(self, field: str) -> float:
        return sum(read_memory_mb(pid, field) for pid in self.cluster.pids)


LOADS: Final[dict[str, Callable[[ReplicatedBench], Sample]]] = {
    "replicated_produce": ReplicatedBench.produce,
    "replicated_latency": ReplicatedBench.latency,
    "transactions": ReplicatedBench.transactions,
    "short_transactions": ReplicatedBench.short_transactions,
    "transform": ReplicatedBench.transform,
}


class ReplicatedRun:
    """Restarts first, with each peer alone; then the loads, with alternating peers."""

    def __init__(
        self,
        makers: Mapping[str, Maker],
        sizes: ReplicatedSizes,
        results: Results,
        *,
        say: Callable[[str], None],
        settle: Callable[[], None],
    ) -> None:
        self._makers, self._sizes, self._results = makers, sizes, results
        self._say, self._settle = say, settle

    def measure(self, folder: Path) -> None:
        for name, make in self._makers.items():
            self._say(
                f"{name}: restarts of three brokers with {TOPICS * PARTITIONS_A_TOPIC} partitions"
            )
            data = folder / f"{name}-replicated-start"
            self._results.values[name, "replicated_start"] = self._time_restarts(make(data))
            shutil.rmtree(data, ignore_errors=True)
        with ExitStack() as stack:
            benches = {}
            for name, make in self._makers.items():
                cluster = make(folder / f"{name}-replicated")
                stack.callback(cluster.stop)
                cluster.start()
                wait_until_serving(cluster)
                benches[name] = ReplicatedBench(cluster, self._sizes)
            time.sleep(IDLE_S)
            for name, bench in benches.items():
                idle_mb = bench.read_memory_mb("VmRSS")
                self._results.values[name, "replicated_memory_idle"].append(idle_mb)
            # The first round does not count: Kafka's compiler has to see the code first.
            for repetition in range(-1, self._sizes.repetitions):
                self._measure_round(benches, repetition)
            for name, bench in benches.items():
                peak_mb = bench.read_memory_mb("VmHWM")
                self._results.values[name, "replicated_memory_loaded"].append(peak_mb)
                # No broker died, so a fenced broker was only slow.
                fenced = bench.cluster.fencings()
                for line in fenced:
                    self._say(f"{name}: {line}")
                self._results.values[name, "replicated_fencings"].append(len(fenced))

    def _measure_round(self, benches: dict[str, ReplicatedBench], repetition: int) -> None:
        order = list(benches) if repetition % 2 else list(reversed(benches))
        what = "warm-up" if repetition < 0 else f"{repetition + 1}/{self._sizes.repetitions}"
        for load, run in LOADS.items():
            for name in order:
                self._say(f"{what} {load} {name}")
                sample = run(benches[name])
                self._settle()
                if repetition >= 0:
                    self._results.samples[name, load].append(sample)
        for bench in benches.values():
            bench.delete_topics()

    def _time_restarts(self, cluster: Cluster) -> list[float]:
        """Return the seconds from the start of all processes until every broker knows all leaders.

        All were stopped cleanly and at once before.
        """
        partitions, seconds = TOPICS * PARTITIONS_A_TOPIC, []
        try:
            cluster.start()
            wait_until_serving(cluster)
            fill_partitions(cluster.bootstrap, REPLICAS)
            wait_until_in_sync(cluster, partitions=partitions)
            for _ in range(self._sizes.restarts):
                cluster.stop()
                started_s = time.monotonic()
                cluster.start()
                wait_until_serving(cluster, partitions=partitions)
                seconds.append(time.monotonic() - started_s)
        finally:
            cluster.stop()
        return seconds
