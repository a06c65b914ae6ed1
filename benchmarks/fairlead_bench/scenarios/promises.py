"""The cost of each kind of acknowledgement, and what it is worth if the leader is killed.

A matrix: acks 0, 1 and all; one, two and three replicas; `min.insync.replicas` 1 and 2. For each
cell, throughput and latency of a cluster without faults. Then one broker leads a topic of each
cell, all of them are written to, and the broker gets `kill -9` and is restarted, several times. In
the end another client reads everything back, and acknowledged records that are missing are counted.

With acks=0 there are no acknowledgements: what the client has passed to the connection counts as
acknowledged.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.loads.load_process import Sample, run_load
from fairlead_bench.loads.promise_load import load_history
from fairlead_bench.peers.cluster import BROKERS, Cluster
from fairlead_bench.peers.cluster_state import (
    ask_metadata,
    wait_until_all_say,
    wait_until_in_sync,
    wait_until_serving,
)
from fairlead_bench.project import child_environment
from fairlead_bench.report.results import Results
from fairlead_bench.scenarios.promise_cells import ACKS, CELLS, Cell
from fairlead_bench.scenarios.replicated import Maker
from fairlead_cli.drill.checker import Findings, check
from fairlead_cli.drill.reader import read_back

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS: Final = 3
RECORD_SIZE: Final = 1000
LATENCY_RATE: Final = 1000
# Rate for each of five topics at once.
KILL_RATE: Final = 500
ADMIN_TIMEOUT_S: Final = 60
# The producers write for this time before a kill, and for this time without the killed broker.
STEADY_S: Final = 2.0
AWAY_S: Final = 1.5
END_TIMEOUT_S: Final = 120


@dataclass(frozen=True, slots=True)
class PromiseSizes:
    """How many records are measured for each cell."""

    produce_records: int
    latency_s: int
    kills: int


FULL: Final = PromiseSizes(200_000, 5, 10)
QUICK: Final = PromiseSizes(30_000, 2, 3)


def choose_sizes(*, is_quick: bool, kills: int | None) -> PromiseSizes:
    sizes = QUICK if is_quick else FULL
    return replace(sizes, kills=kills) if kills else sizes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a cell's records."""

    acknowledged: int
    refused: int
    """The producer got an error."""
    lost: int
    """Acknowledged, but not found."""
    survived: int
    """Not acknowledged, but found."""
    doubled: int
    """Found twice: librdkafka repeats, without counting it, what a replaced leader refuses."""
    foreign: int
    """Damaged, or never sent."""


def build_outcome(findings: Findings, *, refused: int) -> Outcome:
    """Count what was found: acknowledged records, duplicates, damaged ones, and the rest."""
    kept = findings.acknowledged - findings.lost
    survived = findings.found - findings.duplicated - findings.foreign - kept
    return Outcome(
        findings.acknowledged,
        refused,
        findings.lost,
        survived,
        findings.duplicated,
        findings.foreign,
    )


class PromisesRun:
    """All cells on all peers, one peer after the other."""

    def __init__(
        self,
        makers: Mapping[str, Maker],
        sizes: PromiseSizes,
        results: Results,
        *,
        say: Callable[[str], None],
        settle: Callable[[], None],
        cells: tuple[Cell, ...] = CELLS,
    ) -> None:
        self._makers, self._sizes, self._results = makers, sizes, results
        self._say, self._settle, self._cells = say, settle, cells

    def measure(self, folder: Path) -> None:
        for peer, make in self._makers.items():
            cluster = make(folder / f"{peer}-promises")
            try:
                cluster.start()
                wait_until_serving(cluster)
                bench = PromisesBench(cluster, self._sizes)
                for number, cell in enumerate(self._cells, start=1):
                    self._say(f"{peer}: {number}/{len(self._cells)} {cell.title}")
                    self._results.samples[peer, f"{cell.key}_produce"].append(bench.produce(cell))
                    self._settle()
                    self._results.samples[peer, f"{cell.key}_latency"].append(bench.latency(cell))
                for acks in ACKS:
                    cells = [cell for cell in self._cells if cell.acks == acks]
                    if cells:
                        self._measure_kills(peer, bench, cells)
            finally:
                cluster.stop()

    def _measure_kills(self, peer: str, bench: "PromisesBench", cells: list[Cell]) -> None:
        outcomes = bench.kill_among(cells, say=lambda text: self._say(f"{peer}: {text}"))
        for cell, outcome in outcomes.items():
            self._say(f"{peer}: {cell.title}: {outcome}")
            for what in ("lost", "refused", "survived", "doubled"):
                count = getattr(outcome, what)
                self._results.values[peer, f"{cell.key}_{what}"] = [count / self._sizes.kills]
            if outcome.foreign:
                raise RuntimeError(f"{peer}: {cell.title}: what is there was never sent")


class PromisesBench:
    """One cluster, cell by cell."""

    def __init__(self, cluster: Cluster, sizes: PromiseSizes) -> None:
        self.cluster = cluster
        self._sizes = sizes
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})

    def produce(self, cell: Cell) -> Sample:
        """Send as fast as the client can."""
        return self._run(cell, "produce", count=self._sizes.produce_records)

    def latency(self, cell: Cell) -> Sample:
        """Send at a fixed rate; measure from when each record was due."""
        return self._run(cell, "latency", rate=LATENCY_RATE, duration_s=self._sizes.latency_s)

    def _run(self, cell: Cell, mode: str, **arguments: object) -> Sample:
        topic = f"{mode}-{cell.key}"
        self._create(topic, cell, range(PARTITIONS))
        target = {
            "mode": mode,
            "topic": topic,
            "bootstrap": self.cluster.bootstrap,
            "size": RECORD_SIZE,
            "acks": cell.acks,
        }
        sample = run_load("rdkafka_load", target | arguments, pids=self.cluster.pids)
        self._admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)
        return sample

    def _create(self, topic: str, cell: Cell, leaders: range) -> None:
        """Create one partition for each of these leaders, by the index of the broker."""
        assignment = [
            [self.cluster.broker_id((leader + place) % BROKERS) for place in range(cell.replicas)]
            for leader in leaders
        ]
        config = {"min.insync.replicas": str(cell.min_in_sync), "file.delete.delay.ms": "0"}
        new = NewTopic(topic, len(leaders), replica_assignment=assignment, config=config)
        self._admin.create_topics([new])[topic].result(ADMIN_TIMEOUT_S)
        wait_until_in_sync(self.cluster, partitions=len(leaders), topics=[topic])

    def kill_among(self, cells: list[Cell], *, say: Callable[[str], None]) -> dict[Cell, Outcome]:
        """Kill the broker that leads a topic of each of these cells, while all are written to."""
        # Never the broker that is the active controller, too: other scenarios do that.
        controller = self.cluster.controller_index()
        victim = next(index for index in range(BROKERS) if index != controller)
        topics = {f"kill-{cell.key}": cell for cell in cells}
        for topic, cell in topics.items():
            self._create(topic, cell, range(victim, victim + 1))
        with writing(self.cluster, list(topics), cells[0].acks):
            for kill in range(self._sizes.kills):
                time.sleep(STEADY_S)
                say(f"acks={cells[0].acks}: kill {kill + 1}/{self._sizes.kills}")
                self.cluster.kill_broker(victim)
                time.sleep(AWAY_S)
                self.cluster.start_broker(victim)
                wait_until_in_sync(self.cluster, partitions=len(topics), topics=list(topics))
                self._lead_again(victim, list(topics))
        return {cell: self._judge(topic) for topic, cell in topics.items()}

    def _lead_again(self, victim: int, topics: list[str]) -> None:
        leaders = ask_metadata(self.cluster.ports[victim], topics).leaders
        wanted = dict.fromkeys(leaders, self.cluster.broker_id(victim))
        if leaders != wanted:
            self._admin.elect_leaders(ElectionType.PREFERRED).result(ADMIN_TIMEOUT_S)
        wait_until_all_say(
            self.cluster,
            lambda reply: reply.leaders == wanted,
            what="the broker that was killed leads again",
            topics=topics,
        )

    def _judge(self, topic: str) -> Outcome:
        history = load_history(self.cluster.data, topic)
        findings = check(history, read_back(self.cluster.bootstrap, topic, 1))
        return build_outcome(findings, refused=history.refused)


@contextmanager
def writing(cluster: Cluster, topics: list[str], acks: str) -> "Iterator[None]":
    """Write to all of these topics during the block, and stop cleanly."""
    arguments = {
        "bootstrap": cluster.bootstrap,
        "topics": topics,
        "acks": acks,
        "rate": KILL_RATE,
        "directory": str(cluster.data),
    }
    environment = child_environment()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead_bench.loads.promise_load", json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"acks={acks}: the first records were not written")
        yield
        process.stdin.close()
        if process.wait(END_TIMEOUT_S):
            raise RuntimeError(f"acks={acks}: the load ended with {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()
