"""The state of a cluster's partitions from its brokers, and waiting for a wanted state."""

import struct
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from fairlead_bench.loads import wire_bytes
from fairlead_bench.peers.cluster import Cluster
from fairlead_bench.peers.peer import exchange

Place = tuple[str, int]
"""Topic and partition."""
READY_TIMEOUT_S: Final = 180.0
POLL_S: Final = 0.02
# With many partitions an answer is expensive for the broker: poll in proportion to its time.
POLL_SHARE: Final = 0.3


def ask_metadata(port: int, topics: list[str] | None = None) -> wire_bytes.MetadataReply:
    """Return one broker's answer about these topics, or about all of them."""
    return wire_bytes.MetadataReply(exchange(port, wire_bytes.metadata_request(topics)))


def wait_until_all_say(
    cluster: Cluster,
    claim: Callable[[wire_bytes.MetadataReply], bool],
    *,
    what: str,
    indexes: list[int] | None = None,
    topics: list[str] | None = None,
    timeout_s: float = READY_TIMEOUT_S,
) -> None:
    """Return once each of these brokers (all of them by default) has confirmed a claim."""
    deadline = time.monotonic() + timeout_s
    waiting = list(range(len(cluster.ports))) if indexes is None else list(indexes)
    state = "no answer"
    while waiting:
        reason = cluster.failure()
        if reason is not None:
            raise RuntimeError(f"{cluster.name} ended: {reason}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{cluster.name}: {what}: not within {timeout_s:.0f} s: {state}")
        asked_s = time.monotonic()
        try:
            reply = ask_metadata(cluster.ports[waiting[0]], topics)
            state = f"broker {waiting[0]} says: {reply.summary}"
            if claim(reply):
                waiting.pop(0)
                continue
        except (OSError, struct.error) as error:
            state = f"broker {waiting[0]}: {error}"
        time.sleep(max(POLL_S, (time.monotonic() - asked_s) / POLL_SHARE))


def wait_until_serving(
    cluster: Cluster, *, partitions: int = 0, topics: list[str] | None = None
) -> None:
    """Wait until every broker knows all brokers, and leaders of at least so many partitions."""
    brokers = len(cluster.ports)
    wait_until_all_say(
        cluster,
        lambda reply: reply.brokers_count >= brokers and reply.leaders_count >= partitions,
        what=f"{brokers} brokers and {partitions} leaders",
        topics=topics,
    )


def wait_until_in_sync(
    cluster: Cluster, *, partitions: int, topics: list[str] | None = None
) -> None:
    """Wait until, in addition, every replica of them is in sync."""
    brokers = len(cluster.ports)
    wait_until_all_say(
        cluster,
        lambda reply: reply.brokers_count >= brokers and reply.in_sync_count >= partitions,
        what=f"{partitions} partitions with all replicas in sync",
        topics=topics,
    )


def produce_everywhere(
    reply: wire_bytes.MetadataReply, places: Collection[Place], *, timeout_ms: int
) -> set[Place]:
    """Send a record to each of these with acks=all; return those that were acknowledged."""
    batch = wire_bytes.record_batch([b"probe"])
    led: dict[int, dict[str, list[int]]] = {}
    for topic, partition in places:
        leader = reply.leaders.get((topic, partition))
        if leader is not None:
            led.setdefault(leader, {}).setdefault(topic, []).append(partition)

    def produce(leader: int) -> set[Place]:
        request = wire_bytes.produce_many_request(
            led[leader], batch, acks=-1, timeout_ms=timeout_ms
        )
        try:
            answer = exchange(reply.ports[leader], request, timeout_ms / 1000 + 1)
        except (OSError, KeyError):
            return set()  # dead, and not yet known to be
        errors = wire_bytes.produce_many_errors(answer)
        return {place for place, error in errors.items() if error == wire_bytes.NONE}

    with ThreadPoolExecutor(max_workers=max(len(led), 1)) as pool:
        return set().union(*pool.map(produce, led))
