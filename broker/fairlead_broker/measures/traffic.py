"""What flowed through the topics of this broker: counted per topic, summed when asked.

Handlers add to the counters of a partition's topic, which the partition knows. When the last
replica of a topic leaves, its counts go into the sum of those that left, so that totals never fall.

For plans of where partitions go, handlers also add to two integers of the partition; a walk over
all partitions, some seconds apart, makes averages of them that forget half of what they know in
five minutes. They begin anew with each leadership, so that a leader that has gone leaves no traces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

HALF_LIFE_MS: Final = 300_000
KNOWN_AFTER_MS: Final = 30_000
"""An average over less says nothing."""


class TopicTraffic:
    """Counters of one topic since a replica of it came here; partitions share them."""

    __slots__ = (
        "batches_in",
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
    )

    def __init__(self) -> None:
        self.batches_in = 0
        """One for each partition of a produce request that was accepted."""
        self.bytes_in = 0
        self.messages_in = 0
        """Offsets given to produced records."""
        self.failed_produces = 0
        self.fetches = 0
        """One for each partition of a fetch of a consumer that was answered."""
        self.bytes_out = 0
        """To consumers; what goes to followers is counted elsewhere."""
        self.failed_fetches = 0

    def add(self, other: TopicTraffic) -> None:
        """Add all of `other`."""
        for name in TopicTraffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """All topics that have a replica here. Bounded by the topics that the cluster has."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.elsewhere = TopicTraffic()
        """Of topics that are gone from here, and of requests for topics that never were here."""

    def of(self, topic: str) -> TopicTraffic:
        """Return the counters of a topic, for a replica of it that is opened here."""
        traffic = self.topics.get(topic)
        if traffic is None:
            traffic = self.topics[topic] = TopicTraffic()
        return traffic

    def find(self, topic: str | None) -> TopicTraffic:
        """Return the counters for a request that names `topic`, which peers may have made up."""
        return self.elsewhere if topic is None else self.topics.get(topic, self.elsewhere)

    def keep_only(self, topics: Iterable[str]) -> None:
        """Forget topics without a replica here, but not what they add to the totals."""
        for gone in self.topics.keys() - set(topics):
            self.elsewhere.add(self.topics.pop(gone))

    def total(self) -> TopicTraffic:
        """Return the sum over everything since the process started."""
        total = TopicTraffic()
        total.add(self.elsewhere)
        for traffic in self.topics.values():
            total.add(traffic)
        return total


class FlowRates(NamedTuple):
    """Bytes a second, averaged."""

    bytes_in: float
    """What producers wrote."""
    bytes_out: float
    """What consumers were sent."""


class PartitionFlow:
    """Counters of one replica since it was opened, and averages while it leads."""

    __slots__ = (
        "_at_ms",
        "_average_in",
        "_average_out",
        "_seen_in",
        "_seen_out",
        "_since_ms",
        "_weight",
        "bytes_in",
        "bytes_out",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self._seen_in = 0
        self._seen_out = 0
        self._since_ms = -1
        self._at_ms = -1
        self._average_in = 0.0
        self._average_out = 0.0
        self._weight = 0.0

    def sample(self, now_ms: int, *, is_leader: bool) -> None:
        """Take what was counted since the last time into the averages."""
        if not is_leader:
            self._since_ms = -1
            return
        passed_ms = now_ms - self._at_ms
        if self._since_ms < 0:
            self._since_ms = now_ms
            self._average_in = self._average_out = self._weight = 0.0
        elif passed_ms > 0:
            kept = 0.5 ** (passed_ms / HALF_LIFE_MS)
            new = 1 - kept
            per_second = 1000 / passed_ms
            grown_in, grown_out = self.bytes_in - self._seen_in, self.bytes_out - self._seen_out
            self._average_in = kept * self._average_in + new * grown_in * per_second
            self._average_out = kept * self._average_out + new * grown_out * per_second
            self._weight = kept * self._weight + new
        else:
            return
        self._at_ms = now_ms
        self._seen_in, self._seen_out = self.bytes_in, self.bytes_out

    @property
    def rates(self) -> FlowRates | None:
        """The averages; None while they are known for too short a time, or nobody leads here."""
        if self._since_ms < 0 or self._at_ms - self._since_ms < KNOWN_AFTER_MS:
            return None
        return FlowRates(self._average_in / self._weight, self._average_out / self._weight)
