"""Measures one fault: the affected partitions, and when each effect was first seen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fairlead_cli.drill.commits import measure_commits
from fairlead_cli.drill.probe import first_answer_after, longest_gap_after
from fairlead_cli.drill.timings import to_ms
from fairlead_cli.drill.watch import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_cli.drill.probe import Answer, PartitionProbe
    from fairlead_cli.drill.timings import RunTimings
    from fairlead_cli.drill.watch import ClusterWatch
    from fairlead_cli.drill.workload import Workload


@dataclass
class Observation:
    """Call `begin` right before the fault, `look` often after it, `end` when all is well again."""

    run: RunTimings
    watch: ClusterWatch
    probes: list[PartitionProbe]
    workload: Workload
    broker_ids: set[int]
    fault_at: float = 0.0
    epochs: dict[int, int] = field(default_factory=dict)
    """Leader epochs of the partitions that the faulty brokers led."""
    leaders: dict[int, int] = field(default_factory=dict)
    """Which faulty broker led each of these partitions."""
    hit: set[int] = field(default_factory=set)
    """Partitions that must wait for the controller: a faulty broker leads them or is in sync."""
    left: set[int] = field(default_factory=set)
    """Followed partitions whose ISR was seen without the faulty brokers."""

    @property
    def followed(self) -> set[int]:
        """Partitions that the faulty brokers follow in sync, and other brokers lead."""
        return self.hit - self.epochs.keys()

    @property
    def is_recovered(self) -> bool:
        """Whether every affected partition has acknowledged something new."""
        return not self.hit or self.run.recovery_ms is not None

    def begin(self) -> None:
        """Start the observation; the fault comes next."""
        led = self.watch.led_by(self.broker_ids)
        self.epochs = {number: self.watch.partitions[number].leader_epoch for number in led}
        self.leaders = {number: self.watch.partitions[number].leader for number in led}
        self.hit = {
            number
            for number, view in self.watch.partitions.items()
            if self.broker_ids & {view.leader, *view.isr}
        }
        self.run.partitions_led = len(led)
        self.run.partitions_hit = len(self.hit)
        self.workload.mark()
        self.fault_at = time.monotonic()

    def look(self) -> None:
        """Note the effects that are seen for the first time."""
        run = self.run
        if run.detection_ms is None:
            run.detection_ms = self._find_detection()
        if not self.hit:
            return
        if run.left_isr_ms is None:
            self._note_departures()
        if run.election_ms is None and self.epochs:
            run.election_ms = self._find_election()
        if run.recovery_ms is None:
            run.recovery_ms = self._find_recovery()
        if run.client_recovery_ms is None:
            run.client_recovery_ms = self._find_client_recovery()

    def end(self, healed_at: float | None = None) -> None:
        """Set the longest gap over all partitions, and how long commits took.

        `healed_at` is when the fault was undone; None if it was over at once.
        """
        now = time.monotonic()
        self._measure_commits(now if healed_at is None else healed_at)
        gap, partition = max(
            (longest_gap_after(probe.answers, self.fault_at, now), probe.partition)
            for probe in self.probes
        )
        self.run.longest_gap_ms = to_ms(gap.length)
        self.run.longest_gap_began_ms = to_ms(gap.began - self.fault_at)
        self.run.longest_gap_partition = partition

    def _measure_commits(self, until: float) -> None:
        times = measure_commits(
            self._answers(self.hit or range(len(self.probes))), self.fault_at, until
        )
        self.run.commit_before_p99_ms = times.before_p99_ms
        self.run.commit_p99_ms = times.p99_ms
        followed = measure_commits(self._answers(self.followed), self.fault_at, until)
        self.run.fast_again_ms = followed.fast_again_ms

    def _answers(self, partitions: Iterable[int]) -> list[Answer]:
        return [answer for number in partitions for answer in self.probes[number].answers]

    def _note_departures(self) -> None:
        """Note the partitions whose ISR is without the faulty brokers for the first time."""
        for number in self.followed - self.left:
            if self.broker_ids.isdisjoint(self.watch.partitions[number].isr):
                self.left.add(number)
        if self.followed and self.left == self.followed:
            self.run.left_isr_ms = to_ms(time.monotonic() - self.fault_at)

    def _find_detection(self) -> int | None:
        if self.watch.controller is None:
            return None
        signs = [self._find_signs(broker_id) for broker_id in self.broker_ids]
        if not signs or not all(signs):
            return None
        return to_ms(max(min(times) for times in signs) - self.fault_at)

    def _find_signs(self, broker_id: int) -> list[float]:
        """Return the times at which the controller was seen to know of a broker's fault.

        Controller and brokers are asked repeatedly, so a new leader is often seen before the
        controller's own answer. It proves the same: the controller elects only after it knows.
        """
        signs = [
            view.seen_at
            for number, leader in self.leaders.items()
            if leader == broker_id
            and (view := self.watch.partitions[number]).leader_epoch > self.epochs[number]
        ]
        fenced_at = self.watch.fenced_at.get(broker_id)
        if fenced_at is not None and fenced_at >= self.fault_at:
            signs.append(fenced_at)
        return signs

    def _find_election(self) -> int | None:
        views = {number: self.watch.partitions[number] for number in self.epochs}
        for number, view in views.items():
            if view.leader_epoch <= self.epochs[number] or view.leader == NO_LEADER:
                return None
        return to_ms(max(view.seen_at for view in views.values()) - self.fault_at)

    def _find_recovery(self) -> int | None:
        answers = (self.probes[number].answers for number in self.hit)
        firsts = [first_answer_after(given, self.fault_at) for given in answers]
        known = [first for first in firsts if first is not None]
        return to_ms(max(known)) if len(known) == len(firsts) else None

    def _find_client_recovery(self) -> int | None:
        seen = self.workload.first_after_mark()
        if not self.hit <= seen.keys():
            return None
        return to_ms(max(seen[number] for number in self.hit) - self.fault_at)
