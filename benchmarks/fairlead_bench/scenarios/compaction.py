"""Log compaction under load: its cost, and its effect on producers.

A topic of 1 GB in which each of a million keys was written twice is compacted while another topic
gets 1,000 records a second; before that, the same load runs alone. Fairlead only: the limit applies
to the ratio of its own two figures.
"""

import contextlib
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from fairlead_bench.loads.load_process import Sample, run_load
from fairlead_bench.loads.process_usage import read_cpu, read_memory_mb
from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.peer import wait_until_ready
from fairlead_bench.report.results import Results

GROUP: Final = "compaction"
SUBJECT: Final = "fairlead"
TOPIC: Final = "prices"
LATENCY_TOPIC: Final = "latency"
RATE: Final = 1000
ADMIN_TIMEOUT_S: Final = 60
FILL_TIMEOUT_S: Final = 300
COMPACTION_TIMEOUT_S: Final = 600
POLL_S: Final = 0.1
NEVER_MS: Final = str(2**62)


@dataclass(frozen=True, slots=True)
class CompactionSizes:
    """Each key is written twice, in records of `value_bytes`."""

    keys: int
    value_bytes: int
    latency_s: int


FULL: Final = CompactionSizes(1_000_000, 470, 6)
QUICK: Final = CompactionSizes(200_000, 470, 3)


class CleanerWatch:
    """Follows a broker's compaction process: its highest memory and its CPU."""

    def __init__(self, broker_pid: int) -> None:
        self.memory_mb = 0.0
        self.cpu_s = 0.0
        self._broker_pid = broker_pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "CleanerWatch":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            for pid in self._children():
                # It may have ended since it was listed.
                with contextlib.suppress(OSError, ValueError, IndexError):
                    self.cpu_s = max(self.cpu_s, read_cpu([pid]))
                    self.memory_mb = max(self.memory_mb, read_memory_mb(pid, "VmHWM"))

    def _children(self) -> list[int]:
        tasks = Path(f"/proc/{self._broker_pid}/task")
        with contextlib.suppress(OSError):
            return [
                int(pid)
                for task in tasks.iterdir()
                for pid in (task / "children").read_text().split()
            ]
        return []


class CompactionBench:
    """One broker with a topic to compact."""

    def __init__(self, peer: FairleadPeer, sizes: CompactionSizes) -> None:
        self._peer = peer
        self._sizes = sizes
        self._admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 2})

    def measure(self, results: Results) -> None:
        """One repetition."""
        self._create(LATENCY_TOPIC, {})
        idle = self._latency()
        self._create(
            TOPIC,
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(64 << 20),
                "min.compaction.lag.ms": NEVER_MS,
            },
        )
        self._fill()
        with CleanerWatch(self._peer.broker_pid) as watch:
            self._let_compact()
            self._wait_for("fairlead_cleaner_running", 1)
            loaded = self._latency()
            is_still_running = self._peer.metric("fairlead_cleaner_running") == 1
            self._wait_for("fairlead_cleaner_runs_total", 1)
        took_s = self._peer.metric("fairlead_cleaner_last_run_seconds")
        # Everything is read twice: first the keys, then the records.
        source_bytes = self._peer.metric("fairlead_cleaner_read_bytes_total") / 2
        values = results.values
        values[SUBJECT, "compaction_idle_p99"].append(idle.result["p99"])
        if is_still_running:
            ratio = loaded.result["p99"] / idle.result["p99"]
            values[SUBJECT, "compaction_p99"].append(loaded.result["p99"])
            values[SUBJECT, "compaction_p99_ratio"].append(ratio)
        else:
            print("compaction was over before the load: its p99 is left out", file=sys.stderr)
        values[SUBJECT, "compaction_throughput"].append(source_bytes / 1e6 / took_s)
        values[SUBJECT, "compaction_cpu"].append(watch.cpu_s / (source_bytes / 1e9))
        values[SUBJECT, "compaction_memory"].append(watch.memory_mb)

    def _create(self, name: str, config: dict[str, str]) -> None:
        topic = NewTopic(name, 6 if name == LATENCY_TOPIC else 1, 1, config=config)
        self._admin.create_topics([topic])[name].result(ADMIN_TIMEOUT_S)
        wait_until_ready(self._peer, partitions=topic.num_partitions)

    def _latency(self) -> Sample:
        return run_load(
            "rdkafka_load",
            {
                "mode": "latency",
                "topic": LATENCY_TOPIC,
                "bootstrap": self._peer.bootstrap,
                "port": self._peer.port,
                "partitions": 6,
                "size": 100,
                "rate": RATE,
                "duration_s": self._sizes.latency_s,
            },
            pids=[self._peer.broker_pid],
        )

    def _fill(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._peer.bootstrap,
                "acks": 1,
                "linger.ms": 20,
                "queue.buffering.max.messages": 100_000,
            }
        )
        value = b"x" * self._sizes.value_bytes
        for at in range(2 * self._sizes.keys):
            key = b"key-%07d" % (at * 7_919 % self._sizes.keys)
            while True:
                try:
                    producer.produce(TOPIC, value, key, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush(FILL_TIMEOUT_S):
            raise RuntimeError("the topic could not be filled in time")

    def _let_compact(self) -> None:
        resource = ConfigResource(
            ResourceType.TOPIC,
            TOPIC,
            incremental_configs=[
                ConfigEntry(
                    "min.compaction.lag.ms",
                    "0",
                    incremental_operation=AlterConfigOpType.SET,
                )
            ],
        )
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(ADMIN_TIMEOUT_S)

    def _wait_for(self, name: str, least: float) -> None:
        deadline_s = time.monotonic() + COMPACTION_TIMEOUT_S
        while self._peer.metric(name) < least:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{name} never was {least}")
            time.sleep(POLL_S)


def measure_compaction(
    folder: Path, results: Results, *, is_quick: bool, repetitions: int | None
) -> None:
    """Run all repetitions, each with its own broker and log."""
    for repetition in range(repetitions or 1):
        data = folder / f"compaction-{repetition}"
        data.mkdir(parents=True)
        with FairleadPeer(data, {"log.cleaner.backoff.ms": "200"}) as peer:
            peer.start()
            wait_until_ready(peer)
            CompactionBench(peer, QUICK if is_quick else FULL).measure(results)
