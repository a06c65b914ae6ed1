"""What flowed through the topics of this broker: counted per topic, summed when asked.

Handlers add to the counters of a partition's topic, which the partition knows. When the last
replica of a topic leaves, its counts go into the sum of those that left, so that totals never fall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
