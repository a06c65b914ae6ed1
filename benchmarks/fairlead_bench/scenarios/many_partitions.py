"""Many partitions at once: created, moved away from a dead broker, and started again.

`scale.py` uses this for the figures in docs/sizing.md, and tests use it for the limits there.
"""

import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.peers.cluster import Cluster
from fairlead_bench.peers.cluster_state import (
    READY_TIMEOUT_S,
    ask_metadata,
    produce_everywhere,
    wait_until_all_say,
    wait_until_in_sync,
)

PARTITIONS_A_TOPIC: Final = 500
ADMIN_TIMEOUT_S: Final = 300
MIN_IN_SYNC: Final = "2"
# Long enough for a broker that leads thousands of partitions to answer for all of them at once.
PRODUCE_TIMEOUT_MS: Final = 5_000


def create_partitions(cluster: Cluster, count: int, *, leader_index: int | None = None) -> None:
    """Create partitions with three replicas, all in sync; led by one broker, or by all in turn."""
    ids = [cluster.broker_id(index) for index in range(len(cluster.ports))]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    topics = []
    for first in range(0, count, PARTITIONS_A_TOPIC):
        indexes = range(first, min(first + PARTITIONS_A_TOPIC, count))
        assignment = [rotate(ids, index, leader_index) for index in indexes]
        config = {"min.insync.replicas": MIN_IN_SYNC}
        name = f"many-{first // PARTITIONS_A_TOPIC}"
        topics.append(NewTopic(name, len(assignment), replica_assignment=assignment, config=config))
    for topic in topics:
        admin.create_topics([topic], request_timeout=ADMIN_TIMEOUT_S)[topic.topic].result(
            ADMIN_TIMEOUT_S
        )
    wait_until_in_sync(cluster, partitions=count)


def rotate(ids: list[int], index: int, leader_index: int | None) -> list[int]:
    """Return the replicas of one partition: a given leader first, and the others in turn."""
    if leader_index is None:
        shift = index % len(ids)
        return ids[shift:] + ids[:shift]
    others = ids[:leader_index] + ids[leader_index + 1 :]
    shift = index % len(others)
    return [ids[leader_index], *others[shift:], *others[:shift]]


@dataclass(frozen=True, slots=True)
class Failover:
    """Seconds after kill -9 of a broker."""

    moved_count: int
    leaders_s: float
    """Until both other brokers reported a live leader of every partition that it had led."""
    acknowledged_s: float
    """Until a record with acks=all was acknowledged on each of these."""


def time_failover(cluster: Cluster, index: int) -> Failover:
    """Kill a broker, which stays dead."""
    dead = cluster.broker_id(index)
    survivors = [other for other in range(len(cluster.ports)) if other != index]
    before = ask_metadata(cluster.ports[index])
    affected = {place for place, leader in before.leaders.items() if leader == dead}
    cluster.kill_broker(index)
    killed_s = time.monotonic()
    wait_until_all_say(
        cluster,
        lambda reply: (
            reply.leaders_count >= before.leaders_count and dead not in reply.leaders.values()
        ),
        what="a new leader of every partition",
        indexes=survivors,
    )
    leaders_s = time.monotonic() - killed_s
    missing = set(affected)
    while missing:
        missing -= produce_everywhere(
            ask_metadata(cluster.ports[survivors[0]]), missing, timeout_ms=PRODUCE_TIMEOUT_MS
        )
        if time.monotonic() - killed_s > READY_TIMEOUT_S:
            raise TimeoutError(f"no acknowledgement on {sorted(missing)[:3]} …")
    return Failover(len(affected), leaders_s, time.monotonic() - killed_s)


def time_return(cluster: Cluster, index: int, *, partitions: int) -> float:
    """Return the seconds from starting a killed broker until it is in sync everywhere."""
    started_s = time.monotonic()
    cluster.start_broker(index)
    wait_until_in_sync(cluster, partitions=partitions)
    return time.monotonic() - started_s


def elect_preferred(cluster: Cluster, index: int, *, partitions: int) -> None:
    """Make a broker that is in sync again the leader of so many partitions that prefer it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    admin.elect_leaders(ElectionType.PREFERRED).result(ADMIN_TIMEOUT_S)
    wanted = cluster.broker_id(index)
    wait_until_all_say(
        cluster,
        lambda reply: list(reply.leaders.values()).count(wanted) >= partitions,
        what=f"broker {wanted} leads {partitions} partitions again",
    )
