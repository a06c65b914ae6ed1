"""How long applications wait when the broker that leads their partitions is killed.

Small applications, one for each client library and the drills' probe, write to their own topics at
once: six partitions of three replicas, `min.insync.replicas=2`, acks=all. Repeatedly one broker
gets kill -9 and is restarted once all applications have recovered. At the end everything is read
back. The peers run one after the other, because an idle peer would also use the processor.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.loads.failover_client import (
    PARTITIONS,
    FailoverClient,
    runnable_names,
    stop_all,
)
from fairlead_bench.loads.failover_times import percentile, waited_ms
from fairlead_bench.peers.cluster import BROKERS, Cluster, wait_for
from fairlead_bench.peers.cluster_state import (
    wait_until_all_say,
    wait_until_in_sync,
    wait_until_serving,
)
from fairlead_bench.report.results import Results
from fairlead_bench.scenarios.replicated import MIN_IN_SYNC, Maker
from fairlead_cli.drill.checker import Findings, check
from fairlead_cli.drill.reader import read_back

GROUP: Final = "failover"
RUNS: Final = 5
RUNS_QUICK: Final = 2
ADMIN_TIMEOUT_S: Final = 60
# A client may back off for half a minute, and on a busy machine Java takes as long to start.
WAIT_TIMEOUT_S: Final = 300
POLL_S: Final = 0.05
# All applications write for this time before a fault.
STEADY_S: Final = 2.0


class FailoverRun:
    """All kills of all peers."""

    def __init__(
        self,
        makers: Mapping[str, Maker],
        results: Results,
        *,
        runs: int,
        say: Callable[[str], None],
    ) -> None:
        self._makers, self._results, self._runs, self._say = makers, results, runs, say
        self._names = runnable_names(say)

    def measure(self, folder: Path) -> None:
        for peer, make in self._makers.items():
            cluster = make(folder / f"{peer}-failover")
            try:
                cluster.start()
                wait_until_serving(cluster)
                self._measure_peer(peer, cluster)
            finally:
                cluster.stop()

    def _measure_peer(self, peer: str, cluster: Cluster) -> None:
        bench = FailoverBench(cluster, self._names)
        waits_ms: dict[str, list[float]] = {name: [] for name in self._names}
        try:
            bench.start_clients()
            for run in range(self._runs):
                found = bench.kill_and_heal(run)
                for name, wait_ms in found.items():
                    waits_ms[name].append(wait_ms)
                text = ", ".join(f"{name} {wait_ms:,.0f} ms" for name, wait_ms in found.items())
                self._say(f"{peer}: kill {run + 1}/{self._runs}: {text}")
        finally:
            bench.stop_clients()
        values = self._results.values
        for name, waits in waits_ms.items():
            values[peer, f"failover_{name}"] = waits
            values[peer, f"failover_{name}_p99"] = [percentile(waits, 0.99)]
        wrong: Counter[str] = Counter()
        for name, findings in bench.judge().items():
            failures = bench.failures_of(name)
            wrong["lost"] += findings.lost
            wrong["damaged"] += findings.duplicated + findings.reordered + findings.misplaced
            wrong["damaged"] += findings.foreign
            wrong["errors"] += len(failures)
            self._say(
                f"{peer}: {name}: {findings.acknowledged:,} acknowledged, {findings.lost} lost, "
                f"{len(failures)} errors {dict(Counter(failures))} {findings.examples[:3]}"
            )
        for what in ("lost", "damaged", "errors"):
            values[peer, f"failover_{what}"] = [float(wrong[what])]


class FailoverBench:
    """One cluster and the applications that write to it."""

    def __init__(self, cluster: Cluster, names: tuple[str, ...]) -> None:
        self.cluster = cluster
        self._topics = {name: f"failover-{name}" for name in names}
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        self._clients: list[FailoverClient] = []

    def start_clients(self) -> None:
        """Create topics that all brokers lead in turn, and start an application on each."""
        ids = [self.cluster.broker_id(index) for index in range(BROKERS)]
        assignment = [
            [ids[(partition + place) % BROKERS] for place in range(BROKERS)]
            for partition in range(PARTITIONS)
        ]
        config = {"min.insync.replicas": str(MIN_IN_SYNC)}
        for topic in self._topics.values():
            new = NewTopic(topic, PARTITIONS, replica_assignment=assignment, config=config)
            self._admin.create_topics([new])[topic].result(ADMIN_TIMEOUT_S)
        self._wait_until_in_sync()
        for name, topic in self._topics.items():
            output = self.cluster.data / f"{name}.out"
            self._clients.append(FailoverClient(name, self.cluster.bootstrap, topic, output))
        self._wait_until_all_write("at first")

    def stop_clients(self) -> None:
        stop_all(self._clients)

    def kill_and_heal(self, run: int) -> dict[str, float]:
        """Return the milliseconds that each application waited, once all is as before."""
        time.sleep(STEADY_S)
        index = self._victim(run)
        affected = set(range(index, PARTITIONS, BROKERS))
        marks = self._mark()
        fault_ns = time.monotonic_ns()
        self.cluster.kill_broker(index)
        waits_ms = self._wait_until_written("after a kill", affected, marks, fault_ns)
        self.cluster.start_broker(index)
        self._wait_until_in_sync()
        self._elect_preferred()
        self._wait_until_all_write("to the broker that is back")
        return waits_ms

    def _victim(self, run: int) -> int:
        """Return the next broker in turn, but not one that is the active controller, too."""
        controller = self.cluster.controller_index()
        indexes = [index for index in range(BROKERS) if index != controller]
        return indexes[run % len(indexes)]

    def _wait_until_all_write(self, when: str) -> None:
        """Wait until every application writes to each of its partitions again."""
        everything = set(range(PARTITIONS))
        self._wait_until_written(when, everything, self._mark(), time.monotonic_ns())

    def _wait_until_written(
        self, when: str, partitions: set[int], marks: list[int], since_ns: int
    ) -> dict[str, float]:
        """Wait until all records that the applications passed on since then are acknowledged on
        each of these partitions; return the milliseconds by application."""
        waits_ms: dict[str, float] = {}

        def is_written() -> bool:
            for client, mark in zip(self._clients, marks, strict=True):
                client.check()
                wait_ms = waited_ms(client.telling.since(mark), partitions, since_ns)
                if wait_ms is not None:
                    waits_ms[client.name] = wait_ms
            return len(waits_ms) == len(self._clients)

        try:
            wait_for("all acknowledgements", is_written, WAIT_TIMEOUT_S, POLL_S)
        except TimeoutError as error:
            missing = [client.name for client in self._clients if client.name not in waits_ms]
            text = f"{self.cluster.name}: {', '.join(missing)} cannot write {when}: {error}"
            raise TimeoutError(text) from error
        return {client.name: waits_ms[client.name] for client in self._clients}

    def _mark(self) -> list[int]:
        """Return how many acknowledgements each application has reported so far."""
        return [len(client.telling.acknowledgements) for client in self._clients]

    def _wait_until_in_sync(self) -> None:
        topics = list(self._topics.values())
        wait_until_in_sync(self.cluster, partitions=PARTITIONS * len(topics), topics=topics)

    def _elect_preferred(self) -> None:
        self._admin.elect_leaders(ElectionType.PREFERRED).result(ADMIN_TIMEOUT_S)
        wanted = {
            (topic, partition): self.cluster.broker_id(partition % BROKERS)
            for topic in self._topics.values()
            for partition in range(PARTITIONS)
        }
        wait_until_all_say(
            self.cluster,
            lambda reply: reply.leaders == wanted,
            what="everybody leads what is his",
            topics=list(self._topics.values()),
        )

    def failures_of(self, name: str) -> list[str]:
        """Return the errors that an application got."""
        return next(each.telling.failures for each in self._clients if each.name == name)

    def judge(self) -> dict[str, Findings]:
        """Compare sent and found records by application. The applications have ended."""
        return {
            client.name: check(
                client.telling.history(),
                read_back(self.cluster.bootstrap, client.topic, PARTITIONS),
            )
            for client in self._clients
        }
