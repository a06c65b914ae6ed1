"""The present leader, in the error reply of a broker that does not lead (KIP-951).

A client that gets it goes there at once; without it, it asks for Metadata first, after a pause. As
in Kafka it is sent from Produce 10 and Fetch 16 on, whose replies can also have the leader's
address.
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
    """Return the leader of a partition that answered `code`; None if that is no help.

    There is no leader, it is not reachable, or it is this broker itself, which has just begun to
    lead or may have been replaced without knowing it.
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
