"""A member of a consumer group with the protocol of KIP-848: the coordinator assigns partitions.

The member sends heartbeats (`beat`), and the answers say which partitions it may read. Its next
heartbeat says which partitions it has given up and which it has taken. Members with the classic
protocol may be in the same group: the coordinator takes care of that.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.limits import REST_INSTANCE_REBALANCE_MS
from fairlead_broker.rest.instances.group_offsets import NO_EPOCH, NO_MEMBER, PASSING
from fairlead_broker.rest.problems import error_code, raise_code
from fairlead_model.ids import TopicId
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from fairlead_broker.rest.calls import KafkaCalls
    from fairlead_broker.rest.instances.positions import TopicPartition

    TopicIdPartition = tuple[TopicId, int]

BEAT_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.25
_JOINING: Final = 0
_LEAVING: Final = -1
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class Subscription(NamedTuple):
    """What a member wants to read: topics by name, or all topics that match a pattern (RE2)."""

    topics: tuple[str, ...] = ()
    pattern: str = ""


class PartitionOwner(Protocol):
    """The object that reads the partitions that a member is assigned."""

    def take(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Begin to read these partitions."""

    async def give_up(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Stop reading these partitions; commit their offsets before returning, if configured."""

    def forget(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Stop reading these partitions without a commit: their topics have been deleted."""

    def lose(self) -> None:
        """Stop reading all partitions: other members may have them by now."""


class GroupMember:
    """One member. `beat` is called again and again, by one task; `leave` ends it."""

    def __init__(self, kafka: KafkaCalls, group_id: str, name: str, owner: PartitionOwner) -> None:
        self.is_joined = False
        """True once the coordinator has sent an assignment, even if that is empty."""
        self._kafka = kafka
        self._group_id = group_id
        self._member_id = f"{name}-{uuid.uuid4()}"
        self._owner = owner
        self._epoch = _JOINING
        self._subscription = Subscription()
        self._target: set[TopicIdPartition] = set()
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self._told: tuple[Subscription, frozenset[TopicIdPartition]] | None = None
        """What the last heartbeat told the coordinator; None if that is unknown."""
        self._is_known = False
        """True if the coordinator may know the member."""
        self._changed_s = 0.0
        """When the coordinator last told of a change: members often start together, so the sooner
        after a change, the sooner the next heartbeat. Partitions move only with heartbeats."""
        self._beating = asyncio.Lock()

    @property
    def identity(self) -> tuple[str, int]:
        """Id and epoch to commit with; those of no member while it is not in the group."""
        if self._epoch == _JOINING:
            return NO_MEMBER, NO_EPOCH
        return self._member_id, self._epoch

    def subscribe(self, subscription: Subscription) -> None:
        """Change the subscription; the next heartbeat tells the coordinator."""
        self._subscription = subscription
        # The owner may have given up partitions for another subscription. If the coordinator has
        # not heard of that one, they still belong to this member and no other member reads them.
        kept = self._owned.keys() & self._target
        self._owner.take({self._owned[each] for each in kept})
        self.forget_deleted()

    def forget_deleted(self) -> None:
        """Forget partitions of deleted topics: a commit would apply to a new topic of that name.

        The coordinator later assigns the partitions of the new topic.
        """
        topic_name = self._kafka.broker.image.topic_name
        gone = {name for key, name in self._owned.items() if topic_name(key[0]) is None}
        if gone:
            self._owner.forget(gone)

    async def beat(self) -> float:
        """Send a heartbeat with what has changed; return the seconds until the next one.

        KafkaError for an error that is not temporary.
        """
        async with self._beating:
            response = await self._send(self._request())
        code = error_code(response.error_code)
        is_gone = code is ErrorCode.GROUP_ID_NOT_FOUND and self._epoch != _JOINING
        if code in _LOST or is_gone:
            self._rejoin()
            return RETRY_S
        if code in PASSING:
            self._told = None
            return RETRY_S
        if code:
            self._rejoin()
            raise_code(code, response.error_message)
        now_s = asyncio.get_running_loop().time()
        if response.assignment is not None or response.member_epoch != self._epoch:
            self._changed_s = now_s
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._target = {
                (TopicId(topic.topic_id), index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            }
            self.is_joined = True
        if response.assignment is not None or self._owned.keys() != self._target:
            await self._reconcile()
        if self._told is None or self._told[1] != self._owned.keys():
            return 0.0
        if len(self._owned) < len(self._target) and self._has_unknown():
            return RETRY_S
        return min(response.heartbeat_interval_ms / 1000, max(RETRY_S, now_s - self._changed_s))

    async def leave(self) -> None:
        """Leave the group at once, not only when the session ends; KafkaError.

        The member tries until a coordinator answers: the caller sets a time limit.
        """
        async with self._beating:
            if self._is_known:
                self._epoch, self._is_known = _JOINING, False
                request = ConsumerGroupHeartbeatRequest(self._group_id, self._member_id, _LEAVING)
                while True:
                    response = await self._send(request)
                    if error_code(response.error_code) not in PASSING:
                        break
                    # For example, this broker stops and its coordinators have just moved.
                    await asyncio.sleep(RETRY_S)
                if error_code(response.error_code) not in _LOST:
                    raise_code(response.error_code, response.error_message)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(self._group_id, self._member_id, self._epoch)
        # A coordinator on another broker knows this broker, but not the client.
        request.asked_by = str(self._kafka.principal)
        request.asked_from = self._kafka.client_host
        owned = frozenset(self._owned)
        told = None if self._epoch == _JOINING else self._told
        if told is None:
            request.rebalance_timeout_ms = REST_INSTANCE_REBALANCE_MS
        if told is None or told[0] != self._subscription:
            request.subscribed_topic_names = list(self._subscription.topics)
            request.subscribed_topic_regex = self._subscription.pattern
        if told is None or told[1] != owned:
            by_topic: dict[TopicId, list[int]] = {}
            for topic_id, index in owned:
                by_topic.setdefault(topic_id, []).append(index)
            request.topic_partitions = [
                RequestTopicPartitions(topic_id, indexes) for topic_id, indexes in by_topic.items()
            ]
        self._told = self._subscription, owned
        self._is_known = True
        return request

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        deadline_s = asyncio.get_running_loop().time() + BEAT_TIMEOUT_S
        try:
            await self._kafka.have_offsets_topic_made(self._group_id)
            response: ConsumerGroupHeartbeatResponse = await self._kafka.ask_coordinator(
                self._group_id, lambda _: request, _code_of, deadline_s=deadline_s
            )
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message
            )
        return response

    async def _reconcile(self) -> None:
        """Give up partitions that are no longer assigned, then take the new ones (KIP-848)."""
        image = self._kafka.broker.image
        lost = {key: name for key, name in self._owned.items() if key not in self._target}
        if lost:
            await self._owner.give_up(set(lost.values()))
            for key in lost:
                self._owned.pop(key, None)
        added = {}
        for topic_id, index in self._target - self._owned.keys():
            name = image.topic_name(topic_id)
            # The coordinator resolves a pattern once for all members, with the rights of one.
            if name is not None and self._kafka.would_allow(
                Operation.DESCRIBE, ResourceType.TOPIC, name
            ):
                added[topic_id, index] = (name, index)
        self._owned |= added
        self._owner.take(set(added.values()))

    def _has_unknown(self) -> bool:
        """Tell whether the image of this broker lacks a topic of the assignment."""
        image = self._kafka.broker.image
        return any(image.topic_name(topic_id) is None for topic_id, _ in self._target)

    def _rejoin(self) -> None:
        """Join again from the start: the coordinator has given all partitions to other members."""
        self._epoch = _JOINING
        self._told = None
        self._target = set()
        self._owned = {}
        self.is_joined = False
        self._owner.lose()


def _code_of(response: ConsumerGroupHeartbeatResponse) -> int:
    return response.error_code
