"""Who leads instead, told with the error to whoever asked a broker that does not (KIP-951).

A client that is told goes there at once. Without, it asks for Metadata first, after a pause. Kafka
tells it from Produce 10 and Fetch 16 on, which is when replies can say where the leader is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


class CurrentLeader(NamedTuple):
    """The leader of a partition, where the listener of the request reaches it."""

    broker_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


def current_leader(
    context: RequestContext, topic: str, index: int, code: int
) -> CurrentLeader | None:
    """Return who leads a partition that answered `code`; None where that helps nobody.

    Nobody leads, the leader is not reachable, or it is this broker that refuses: one that has just
    begun to lead, or may have been replaced without having heard of it.
    """
    if code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    image = context.broker.image
    partition = image.partition(topic, index)
    if partition is None:
        return None
    if partition.leader == context.broker.node_id and code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return None
    leader = image.brokers.get(partition.leader)
    endpoint = None if leader is None else leader.endpoint(context.listener.name)
    if leader is None or leader.fenced or endpoint is None:
        return None
    return CurrentLeader(
        partition.leader, partition.leader_epoch, endpoint.host, endpoint.port, leader.rack
    )
