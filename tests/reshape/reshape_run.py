"""One run: three brokers become five and then three again under load and kills."""

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from numbered_load import Delivery, NumberedLoad, Place
from numbered_reader import NumberedReader, Progress
from reshaped_cluster import ReshapedCluster
from watched_thread import WatchedThread

QUIET_S: Final = 10.0
"""Duration of the measurement of latencies before anything moves."""
IN_SHAPE_S: Final = 3.0
"""Shortest duration of the load with each number of brokers; no limit depends on it."""


class Phase(NamedTuple):
    """A part of a run, with times of the monotonic clock."""

    name: str
    begun_s: float
    ended_s: float


@dataclass
class Verdict:
    """The result of one run."""

    phases: list[Phase]
    deliveries: list[Delivery]
    kills: Counter[str]
    records_count: int = 0
    false_alarms: int = 0
    """How often a client reported a truncated log although it was whole."""
    findings: list[str] = field(default_factory=list)
    """Everything that is wrong; empty if the run has passed."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report."""
        for phase in self.phases:
            took_s = phase.ended_s - phase.begun_s
            latencies = self._latencies_of(phase)
            p50, p99 = (f"{percentile(latencies, share) * 1000:.1f}" for share in (0.5, 0.99))
            yield f"{phase.name}: {took_s:.0f} s, p50 {p50} ms, p99 {p99} ms"
        killed = ", ".join(f"{count} times {who}" for who, count in sorted(self.kills.items()))
        yield f"killed: {killed or 'nobody'}"
        wrong = "; ".join(self.findings) or "none lost, none twice, none out of order, no error"
        alarms = f" ({self.false_alarms} false alarms)" if self.false_alarms else ""
        yield f"{self.records_count} records: {wrong}{alarms}"

    def _latencies_of(self, phase: Phase) -> list[float]:
        return sorted(
            each.latency_s
            for each in self.deliveries
            if phase.begun_s <= each.sent_s < phase.ended_s
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile; nan if the list is empty."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else math.nan


class Killer:
    """Kills a broker or the controller every few seconds, one at a time, and restarts it."""

    def __init__(
        self, cluster: ReshapedCluster, chance: random.Random, say: Callable[[str], None]
    ) -> None:
        self.kills: Counter[str] = Counter()
        self._cluster, self._chance, self._say = cluster, chance, say

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Kill during the block; what is down at its end is restarted."""
        ending = threading.Event()

        def work() -> None:
            ending.wait(self._chance.uniform(*self._cluster.first_kill_s))
            while not ending.is_set():
                self._kill_one(ending)
                ending.wait(self._chance.uniform(*self._cluster.kills_apart_s))

        thread = WatchedThread(work)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _kill_one(self, ending: threading.Event) -> None:
        victim = self._chance.choice(self._cluster.victims())
        self._say(f"kill {victim}")
        self._cluster.kill(victim)
        self.kills["controller" if victim == "controller" else "brokers"] += 1
        ending.wait(self._chance.uniform(*self._cluster.held_down_s))
        self._cluster.bring_back(victim)


@dataclass
class ReshapeRun:
    """Call `run` once, with three brokers that have the records preloaded by `load`."""

    cluster: ReshapedCluster
    load: NumberedLoad
    places: Sequence[Place]
    seed: int
    is_killing: bool
    say: Callable[[str], None]
    expect: Callable[[], Progress] = Progress
    """Makes the `Progress` with which a reader checks its records."""

    def run(self) -> Verdict:
        killer = Killer(self.cluster, random.Random(self.seed), self.say)
        phases: list[Phase] = []

        @contextmanager
        def phase(name: str, *, is_moving: bool) -> Iterator[None]:
            self.say(name)
            begun_s = time.monotonic()
            if is_moving and self.is_killing:
                with killer.at_work():
                    yield
            else:
                yield
            phases.append(Phase(name, begun_s, time.monotonic()))

        live = NumberedReader(self.cluster.bootstrap, self.places, self.expect())
        live.start(self.load.acknowledged)
        self.load.start()
        try:
            time.sleep(IN_SHAPE_S)
            with phase("before", is_moving=False):
                time.sleep(QUIET_S)
            self.cluster.add_brokers()
            with phase("3 → 5", is_moving=True):
                self.cluster.fill_new_brokers()
            time.sleep(IN_SHAPE_S)
            with phase("5 → 3", is_moving=True):
                self.cluster.empty_new_brokers()
            self.cluster.remove_new_brokers()
            time.sleep(IN_SHAPE_S)
        finally:
            self.load.finish()
            live.finish(self.load.acknowledged)
        whole = NumberedReader(self.cluster.bootstrap, self.places, self.expect())
        whole.start({})
        whole.finish(self.load.acknowledged)
        verdict = Verdict(phases, list(self.load.deliveries), killer.kills)
        verdict.records_count = whole.progress.count
        verdict.false_alarms = live.false_alarms + whole.false_alarms
        verdict.findings += self._judge_sender()
        verdict.findings += self._judge_reader("read live", live)
        verdict.findings += self._judge_reader("read at the end", whole)
        verdict.findings += [f"left over: {each}" for each in self.cluster.leftovers()]
        self.load.deliveries.clear()
        return verdict

    def _judge_sender(self) -> list[str]:
        findings = [f"not delivered: {each}" for each in self.load.errors[:5]]
        unanswered = sum(self.load.sent.values()) - sum(self.load.acknowledged.values())
        return [*findings, f"{unanswered} not acknowledged"] if unanswered else findings

    def _judge_reader(self, what: str, reader: NumberedReader) -> list[str]:
        progress: Progress = reader.progress
        findings = [f"{what}: {each}" for each in reader.errors[:5]]
        counts = {
            "missing in between": progress.missing,
            "missing at the end": progress.shortfall(self.load.acknowledged),
            "twice or late": progress.repeated,
        }
        findings += [f"{what}: {count} {name}" for name, count in counts.items() if count]
        return findings + [f"{what}: {each}" for each in progress.examples]
