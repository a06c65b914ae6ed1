"""The traffic of the topics of this broker: counted by topic, summed on request.

Handlers add to the counters of a partition's topic, to which the partition has a reference. When
the last replica of a topic leaves this broker, its counts are added to one sum of all such topics,
so that totals never fall.

For plans of where partitions go, handlers also add to two integers of the partition. A walk over
all partitions, every few seconds, computes averages from them, with a half-life of five minutes.
The averages begin again each time that this broker becomes leader, so they have no traffic of an
earlier time as leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

HALF_LIFE_MS: Final = 300_000
KNOWN_AFTER_MS: Final = 30_000
"""An average over a shorter time is not used."""


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
        """Accepted partitions of produce requests."""
        self.bytes_in = 0
        self.messages_in = 0
        """Produced records, counted by their offsets."""
        self.failed_produces = 0
        self.fetches = 0
        """Answered partitions of consumers' fetches."""
        self.bytes_out = 0
        """Bytes sent to consumers; bytes for followers are counted elsewhere."""
        self.failed_fetches = 0

    def add(self, other: TopicTraffic) -> None:
        """Add all of `other`."""
        for name in TopicTraffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """All topics that have a replica here. Bounded by the number of topics in the cluster."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.elsewhere = TopicTraffic()
        """Traffic of topics that have left this broker, and of requests for topics not here."""

    def of(self, topic: str) -> TopicTraffic:
        """Return the counters of a topic, for a replica of it that is opened here."""
        traffic = self.topics.get(topic)
        if traffic is None:
            traffic = self.topics[topic] = TopicTraffic()
        return traffic

    def find(self, topic: str | None) -> TopicTraffic:
        """Return the counters for a request that names `topic`, which may not exist."""
        return self.elsewhere if topic is None else self.topics.get(topic, self.elsewhere)

    def keep_only(self, topics: Iterable[str]) -> None:
        """Forget topics without a replica here, but keep their counts in the totals."""
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
    """Bytes a second from producers."""
    bytes_out: float
    """Bytes a second to consumers."""


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
        """Add the counts since the last call to the averages."""
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
        """The averages; None while their time is too short, or while this broker does not lead."""
        if self._since_ms < 0 or self._at_ms - self._since_ms < KNOWN_AFTER_MS:
            return None
        return FlowRates(self._average_in / self._weight, self._average_out / self._weight)
