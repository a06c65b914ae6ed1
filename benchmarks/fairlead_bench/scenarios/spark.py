"""Spark reads a topic: `format("fairlead")` and Spark's own connector, same Spark, same broker.

Both read from Fairlead. In the report the connector is in the column of Apache Kafka, because it
uses Kafka's client. It has the settings that are recommended to its users for throughput.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.peer import wait_until_ready
from fairlead_bench.peers.spark_connector import ensure_connector
from fairlead_bench.project import child_environment
from fairlead_bench.report.results import KAFKA, OURS, Results

GROUP: Final = "spark"
TASKS: Final = 2
SESSION_TIMEOUT_S: Final = 600
FORMATS: Final = {OURS: "fairlead", KAFKA: "kafka"}
OPTIONS: Final[dict[str, dict[str, str]]] = {
    OURS: {},
    KAFKA: {
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": str(8 << 20),
        "kafka.receive.buffer.bytes": "-1",
    },
}


@dataclass(frozen=True, slots=True)
class SparkSizes:
    """Records of each topic, reads of each in a session, sessions of each format."""

    records_1k: int
    records_100b: int
    repetitions: int
    sessions: int


FULL: Final = SparkSizes(1_000_000, 4_000_000, 3, 2)
QUICK: Final = SparkSizes(300_000, 1_000_000, 2, 1)


class SparkRun:
    """Fills two topics once and reads them in sessions of both formats in turn."""

    def __init__(self, sizes: SparkSizes, results: Results, *, say: Callable[[str], None]) -> None:
        self._sizes, self._results, self._say = sizes, results, say
        self._jars = [str(jar) for jar in ensure_connector()]

    def measure(self, folder: Path) -> None:
        peer = FairleadPeer(folder / "spark-broker")
        peer.data.mkdir(parents=True)
        counts = {"1k": (1000, self._sizes.records_1k), "100b": (100, self._sizes.records_100b)}
        try:
            peer.start()
            wait_until_ready(peer)
            for name, (size, count) in counts.items():
                self._say(f"spark: writes {name}")
                fill(peer.bootstrap, name, size=size, count=count)
            fill(peer.bootstrap, "small", size=100, count=10)
            for session in range(self._sizes.sessions):
                for subject in (OURS, KAFKA) if session % 2 else (KAFKA, OURS):
                    self._say(f"spark: session {session + 1} of {FORMATS[subject]}")
                    self._add(subject, counts, self._read(subject, peer.bootstrap, folder))
        finally:
            peer.stop()

    def _read(self, subject: str, bootstrap: str, folder: Path) -> dict[str, Any]:
        arguments = {
            "bootstrap": bootstrap,
            "format": FORMATS[subject],
            "options": OPTIONS[subject],
            "topics": {"1k": "1k", "100b": "100b"},
            "small": "small",
            "repetitions": self._sizes.repetitions,
            "tasks": TASKS,
            "folder": str(folder),
            "jars": self._jars,
        }
        done = subprocess.run(
            [sys.executable, "-m", "fairlead_bench.loads.spark_load", json.dumps(arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=SESSION_TIMEOUT_S,
            env=child_environment(),
        )
        if done.returncode:
            raise RuntimeError(f"Spark failed with {FORMATS[subject]}: {done.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    def _add(
        self, subject: str, counts: dict[str, tuple[int, int]], result: dict[str, Any]
    ) -> None:
        values = self._results.values
        for name, (size, count) in counts.items():
            for seconds, cpu_s in result["reads"][name]:
                values[subject, f"spark_{name}_cpu"].append(cpu_s / (count / 1e6))
                values[subject, f"spark_{name}_records"].append(count / 1e3 / seconds)
                values[subject, f"spark_{name}_throughput"].append(count * size / 1e6 / seconds)
        values[subject, "spark_first_row"].append(result["first_row_s"])
        values[subject, "spark_memory"].append(result["memory_mb"] / TASKS)


def fill(bootstrap: str, topic: str, *, size: int, count: int) -> None:
    """Create a topic with a partition for each task, and fill it evenly."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(topic, TASKS, 1)])[topic].result(30)
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 2,
            "linger.ms": 20,
            "batch.size": 200_000,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(str(error)),
        }
    )
    value = b"x" * size
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, b"%08d" % number, partition=number % TASKS)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    if producer.flush(60) or failures:
        raise RuntimeError(f"could not fill {topic}: {failures[:3]}")
