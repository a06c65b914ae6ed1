"""The brokers' reports of their replicas, combined as plans need it. Pure.

Answers are added one after another, so that only one is in memory as a whole. They come from pods
whose image users choose: a malformed answer counts as none, and entries about partitions that are
not on that broker are ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from fairlead_controller.decisions.balance.cluster_facts import DiskUse, PartitionLoad
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.partition import PartitionRegistration

RATES_KNOWN_MIN: Final = 0.5
"""If the rates of a smaller share of partitions are known, bytes in and out are not judged."""
BYTES_MAX: Final = 1 << 60
"""More than any disk has, and small enough to calculate with."""


class LoadAnswerError(Exception):
    """A broker's answer is malformed; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """The reports of all brokers together, and their time."""

    measured_at: datetime
    disks: Mapping[int, DiskUse]
    loads: Mapping[tuple[str, int], PartitionLoad] = field(repr=False)
    copy_bytes_per_s: int | None = None
    """Bytes a second that the slowest broker sends to added replicas."""
    rates_known: int = 0
    """Partitions whose leaders reported their rates."""
    partitions: int = 0
    missing: Sequence[str] = ()
    """Brokers without a report, and why; sentences."""

    @property
    def is_whole(self) -> bool:
        """Whether every broker has reported its replicas."""
        return not self.missing

    @property
    def knows_rates(self) -> bool:
        """Whether bytes in and out are known well enough to judge them."""
        return self.is_whole and self.rates_known >= RATES_KNOWN_MIN * self.partitions


class LoadReading:
    """Combines answers. The leader's report counts; if it is missing, the largest replica's."""

    def __init__(self, state: ControllerState) -> None:
        self._image = state.image
        self._disks: dict[int, DiskUse] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._rates: dict[tuple[str, int], tuple[float, float]] = {}
        self._copy_rates: list[int] = []
        self._why: dict[str, str] = {}

    def add(self, answer: object) -> None:
        """Add the answer of one broker; LoadAnswerError if it is malformed."""
        if not isinstance(answer, dict) or answer.get("version") != 1:
            raise LoadAnswerError("an answer of another release")
        broker_id = _whole(answer.get("brokerId"))
        if broker_id in self._disks:
            raise LoadAnswerError(f"a second broker that calls itself {broker_id}")
        if broker_id not in self._image.brokers:
            raise LoadAnswerError(f"broker {broker_id} is not registered")
        total, free = (
            None if answer.get(name) is None else _whole(answer[name])
            for name in ("totalBytes", "freeBytes")
        )
        copy_rate = _whole(answer.get("copyBytesPerSecond"))
        topics = answer.get("topics")
        if not isinstance(topics, dict):
            raise LoadAnswerError("an answer without topics")
        rows = [
            (str(name), index, partition, row)
            for name, held in topics.items()
            for index, partition, row in self._held_rows(broker_id, str(name), held)
        ]
        for name, index, partition, row in rows:
            self._take(broker_id, (name, index), partition, row)
        self._disks[broker_id] = DiskUse(total, free)
        self._copy_rates.append(copy_rate)

    def _held_rows(
        self, broker_id: int, name: str, held: object
    ) -> list[tuple[int, PartitionRegistration, list[Any]]]:
        if not isinstance(held, list):
            raise LoadAnswerError(f"topic {name[:64]} is no list")
        found = []
        for row in held:
            if not isinstance(row, list) or len(row) not in {2, 4}:
                raise LoadAnswerError(f"a replica of topic {name[:64]} that is none")
            index = _whole(row[0])
            for each in row[1:]:
                if each is not None:
                    _whole(each)
            partition = self._image.partition(name, index)
            if partition is not None and broker_id in partition.replicas:
                found.append((index, partition, row))
        return found

    def _take(
        self, broker_id: int, at: tuple[str, int], partition: PartitionRegistration, row: list[Any]
    ) -> None:
        size = _whole(row[1])
        if partition.leader != broker_id:
            # A follower's report counts only if the leader has not answered.
            if partition.leader not in self._disks:
                self._sizes[at] = max(size, self._sizes.get(at, 0))
            return
        self._sizes[at] = size
        if len(row) == 4 and None not in row:
            self._rates[at] = (float(row[2]), float(row[3]))

    def miss(self, pod: str, why: str) -> None:
        """Note that a pod gave no proper answer."""
        self._why[pod] = why

    def finish(self, now: datetime) -> MeasuredLoad:
        """Return the result; an unknown rate becomes the mean of its topic."""
        means = self._topic_means()
        silent = sorted(self._image.brokers.keys() - self._disks.keys())
        reasons = "; ".join(f"pod {pod}: {why}" for pod, why in sorted(self._why.items())[:3])
        missing = [
            f"Broker {each} does not report what it holds ({reasons or 'it has no pod here'})."
            for each in silent
        ]
        loads, partitions = {}, 0
        for topic in self._image.topics():
            for index in range(len(topic.partitions)):
                at = (topic.name, index)
                partitions += 1
                flow_in, flow_out = self._rates.get(at) or means.get(topic.name, (0.0, 0.0))
                loads[at] = PartitionLoad(self._sizes.get(at, 0), flow_in, flow_out)
        return MeasuredLoad(
            measured_at=now,
            disks=self._disks,
            loads=loads,
            copy_bytes_per_s=min(self._copy_rates, default=None),
            rates_known=len(self._rates),
            partitions=partitions,
            missing=missing,
        )

    def _topic_means(self) -> dict[str, tuple[float, float]]:
        sums: dict[str, list[float]] = {}
        for (name, _), (flow_in, flow_out) in self._rates.items():
            total = sums.setdefault(name, [0.0, 0.0, 0.0])
            total[0] += flow_in
            total[1] += flow_out
            total[2] += 1
        return {name: (each[0] / each[2], each[1] / each[2]) for name, each in sums.items()}


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= BYTES_MAX:
        raise LoadAnswerError("an answer with a number that is none")
    return value
