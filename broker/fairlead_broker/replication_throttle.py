"""Throttles copies of partitions, so that producers and consumers keep their share.

Kafka's throttles (KIP-73) name partitions and brokers in two configs of the topic, and have a rate
at the leader's broker and one at the follower's. A replica that they do not name has a rate, too,
if a reassignment adds it (`fairlead.reassignment.throttled.rate`). Only replicas that are far
behind are throttled. Throttling a replica that is in sync, or about to be, would make producers
wait. Kafka also counts the bytes of in-sync replicas against the rate. Here it does not, so that
busy partitions do not starve their own copies.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.limits import THROTTLED_SLICE_BYTES
from fairlead_broker.replication.token_bucket import TokenBucket

if TYPE_CHECKING:
    from fairlead_broker.clock import Clock
    from fairlead_broker.fetch_sessions.follower_sessions import FollowerSession
    from fairlead_broker.replication.partition import Partition
    from fairlead_model.cluster import ClusterImage
    from fairlead_model.configs.config_values import BrokerValues

UNLIMITED: Final = (1 << 63) - 1
LEADER_RATE: Final = "leader.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
REASSIGNMENT_RATE: Final = "fairlead.reassignment.throttled.rate"
HELD_BACK_MAX_MS: Final = 1000
"""After this time the rate is checked again, because somebody may have raised it."""
_LISTS_KEPT: Final = 64


class ThrottledBroker(Protocol):
    """What the throttle needs of the broker."""

    node_id: int
    clock: Clock
    image: ClusterImage

    def running_values(self) -> BrokerValues: ...


class ReplicationThrottle:
    """The throttle of one broker. `_waiting` are sessions that are told when bytes may go again."""

    def __init__(self, broker: ThrottledBroker) -> None:
        self._broker = broker
        self._buckets: dict[str, TokenBucket] = {}
        self._waiting: dict[FollowerSession, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def allowance(self, partition: Partition, session: FollowerSession, wanted: int) -> int:
        """Return how many bytes a follower may be sent now; with 0 its session is told later."""
        bucket = self._sending(partition, session.replica_id)
        if bucket is None:
            return wanted
        delay_ms = bucket.delay_ms(self._broker.clock.monotonic_ms())
        if not delay_ms:
            return min(wanted, THROTTLED_SLICE_BYTES)
        self._waiting[session] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(delay_ms, HELD_BACK_MAX_MS) / 1000, self._wake)
        return 0

    def note_sent(self, partition: Partition, replica_id: int, size: int) -> None:
        """Count what a follower is sent."""
        bucket = self._sending(partition, replica_id)
        if bucket is not None:
            bucket.take(size)

    def delay_ms(self, partition: Partition) -> int:
        """Return how long this broker must not fetch a partition that it follows."""
        bucket = self._taking(partition)
        if bucket is None:
            return 0
        return min(bucket.delay_ms(self._broker.clock.monotonic_ms()), HELD_BACK_MAX_MS)

    def note_taken(self, partition: Partition, size: int) -> None:
        """Count what this broker has taken in as a follower."""
        bucket = self._taking(partition)
        if bucket is not None:
            bucket.take(size)

    def _wake(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for session in waiting:
            if session.on_news is not None:
                session.on_news()

    def _sending(self, partition: Partition, replica_id: int) -> TokenBucket | None:
        leader = partition.leader
        if leader is None or replica_id in leader.isr_state.maximal_isr:
            return None
        follower = leader.followers.get(replica_id)
        if follower is None or follower.is_close:
            return None
        if self._is_listed(partition, LEADER_REPLICAS):
            bucket = self._bucket(LEADER_RATE)
            if bucket is not None:
                return bucket
        return self._bucket(REASSIGNMENT_RATE) if replica_id in partition.adding else None

    def _taking(self, partition: Partition) -> TokenBucket | None:
        is_in_sync = self._broker.node_id in partition.isr
        if is_in_sync or not self._is_listed(partition, FOLLOWER_REPLICAS):
            return None
        return self._bucket(FOLLOWER_RATE)

    def _is_listed(self, partition: Partition, config: str) -> bool:
        topic = self._broker.image.topic(partition.topic)
        text = "" if topic is None else topic.configs.get(config, "")
        if not text:
            return False
        listed = _parse_list(text)
        return "*" in listed or f"{partition.index}:{self._broker.node_id}" in listed

    def _bucket(self, config: str) -> TokenBucket | None:
        """Return the bucket of a rate as it is set now; None where there is no limit."""
        rate = self._broker.running_values().value(config)
        if not isinstance(rate, int) or rate == UNLIMITED:
            return None
        bucket = self._buckets.get(config)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[config] = TokenBucket(rate)
        return bucket


@lru_cache(_LISTS_KEPT)
def _parse_list(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(","))
