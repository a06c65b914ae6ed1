"""Consumer groups on brokers of a `ReplicaCluster`, through their handlers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fairlead_broker.api_registry import HANDLERS, PENDING, RequestContext
from fairlead_broker.authorization import ANONYMOUS
from fairlead_model.delta import TopicChanged
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_model.topic import TopicHeader, TopicState
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import RESPONSES
from fairlead_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fairlead_wire.records import Record, decode_batch, iter_batches

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from replica_cluster import ReplicaCluster

    from fairlead_broker.broker import Broker
    from fairlead_broker.group.coordinator import GroupCoordinator

NO_DELAY: dict[str, Any] = {"group_initial_rebalance_delay_ms": "0"}


class Call:
    """One request to a broker's handler; `reply` is None while it is parked.

    Calls of one connection share `used_topic_ids`.
    """

    def __init__(
        self,
        broker: Broker,
        request: Any,
        version: int,
        *,
        is_internal: bool = False,
        authorizer: Any = None,
        used_topic_ids: set[bytes] | None = None,
    ) -> None:
        self.broker = broker
        self.listener = broker.settings.listeners[is_internal]
        self.client_host = "10.0.0.7"
        self.principal = ANONYMOUS
        self.authorizer = authorizer
        self.used_topic_ids = set() if used_topic_ids is None else used_topic_ids
        self.quotas = None
        self.peer_check = None
        self.replica_ids = range(2**31)
        self.reply: Any = None
        self.replies = 0
        self.context = RequestContext(
            self,  # type: ignore[arg-type]
            request.API_KEY,
            version,
            1,
            "client",
        )
        outcome = HANDLERS[request.API_KEY].call(request, self.context)
        if outcome is not PENDING:
            self.on_response(self.context, outcome)

    def on_response(self, context: RequestContext, response: Any) -> None:
        self.replies += 1
        if type(response) is bytes:
            response, _ = RESPONSES[context.api_key].decode(
                memoryview(response), 0, context.version
            )
        # Every reply must fit the version of its request.
        response.encode(context.version)
        self.reply = response

    def run_later(self, context: RequestContext, coroutine: Any) -> None:
        raise AssertionError("no group request costs a task")

    def close(self, reason: str) -> None:
        raise AssertionError(reason)

    def disconnect(self) -> None:
        """Do what the connection does when it closes."""
        if self.context.parked is not None:
            self.context.parked.cancel()


class LaterCall(Call):
    """A call that may need a task."""

    def run_later(self, context: RequestContext, coroutine: Any) -> None:
        self.coroutine = coroutine

    async def answer(self) -> Any:
        self.on_response(self.context, await asyncio.ensure_future(self.coroutine))
        return self.reply


class GroupCluster:
    """One partition of the offsets topic, led by broker 1, and a topic `t` for commits."""

    def __init__(self, cluster: ReplicaCluster, **options: Any) -> None:
        self.cluster = cluster
        cluster.create(CONSUMER_OFFSETS, configs={"cleanup.policy": "compact"}, **options)
        cluster.create("t", partitions=4)

    def coordinator(self, broker_id: int = 1) -> GroupCoordinator:
        return self.cluster.members[broker_id].broker.group_coordinator

    async def ready(self, broker_id: int = 1) -> None:
        """Wait until the groups are loaded."""
        await self.cluster.until(lambda: self.is_served(broker_id))

    def is_served(self, broker_id: int = 1) -> bool:
        return bool(self.fetch("probe", broker_id=broker_id).error_code == 0)

    def call(self, request: Any, version: int, *, broker_id: int = 1) -> Call:
        return Call(self.cluster.members[broker_id].broker, request, version)

    async def ask(self, request: Any, version: int, *, broker_id: int = 1) -> Any:
        call = self.call(request, version, broker_id=broker_id)
        await self.cluster.until(lambda: call.reply is not None)
        return call.reply

    def commit(
        self,
        group: str,
        offset: int,
        *,
        topic: str = "t",
        partition: int = 0,
        member: tuple[str, int] = ("", -1),
        metadata: str = "",
        broker_id: int = 1,
    ) -> Call:
        slot = OffsetCommitRequestPartition(partition, offset, 7, metadata)
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member[0],
            generation_id_or_member_epoch=member[1],
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[slot])],
        )
        return self.call(request, 8, broker_id=broker_id)

    async def committed(self, group: str, offset: int, **options: Any) -> ErrorCode:
        """Commit and wait for the answer."""
        call = self.commit(group, offset, **options)
        await self.cluster.until(lambda: call.reply is not None)
        return commit_code(call)

    def fetch(self, group: str, *, broker_id: int = 1, partition: int = 0) -> Any:
        """Return the group's offset of `t` from a fetch."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
        return self.call(request, 8, broker_id=broker_id).reply.groups[0]

    def offset(self, group: str, *, broker_id: int = 1, partition: int = 0) -> int:
        (topic,) = self.fetch(group, broker_id=broker_id, partition=partition).topics
        return int(topic.partitions[0].committed_offset)

    def join(
        self, group: str, member_id: str = "", *, session_ms: int = 10_000, **options: Any
    ) -> Call:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff")],
        )
        return self.call(request, options.pop("version", 3), **options)

    async def stable(self, group: str, **options: Any) -> tuple[str, int]:
        """Return member id and generation of a group of one member with an assignment."""
        join = self.join(group, **options)
        await self.cluster.until(lambda: join.reply is not None)
        assert join.reply.error_code == 0
        member_id, generation = join.reply.member_id, join.reply.generation_id
        sync = await self.ask(
            SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                assignments=[SyncGroupRequestAssignment(member_id, b"all")],
            ),
            3,
        )
        assert (sync.error_code, bytes(sync.assignment)) == (0, b"all")
        return member_id, generation


def commit_code(call: Call) -> ErrorCode:
    """Return the error of a commit of one partition."""
    return ErrorCode(call.reply.topics[0].partitions[0].error_code)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def records_of(cluster: ReplicaCluster, broker_id: int = 1) -> list[list[Record]]:
    """Return the records of the offsets topic, batch by batch."""
    data = cluster.content(broker_id, CONSUMER_OFFSETS)
    return [decode_batch(data, position) for position, _ in iter_batches(data)]


async def lead(cluster: ReplicaCluster, broker_id: int) -> None:
    """Make another broker the coordinator, as the controller does."""
    cluster.change(CONSUMER_OFFSETS, leader=broker_id)
    await asyncio.sleep(0)


def delete_topic(cluster: ReplicaCluster, name: str) -> None:
    """Begin to delete a topic, as the controller does: its name is free."""
    topic = cluster.image.topic(name)
    assert topic is not None
    header = TopicHeader(name, topic.topic_id, len(topic.partitions), state=TopicState.DELETING)
    cluster.publish(TopicChanged(header))
