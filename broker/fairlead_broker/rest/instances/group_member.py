"""A member of a consumer group, by the protocol of KIP-848: the coordinator assigns.

The member says that it lives (`beat`) and is told in the answer what it may read; it says what it
has given up and what it has taken with its next heartbeat. Members that speak the classic protocol
may be in the same group: the coordinator sees to that.
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
    """What a member wants to read: topics by their names, or those that match a pattern (RE2)."""

    topics: tuple[str, ...] = ()
    pattern: str = ""


class PartitionOwner(Protocol):
    """Who reads what a member is assigned."""

    def take(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Begin to read these."""

    async def give_up(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Read these no more; on return their offsets are committed, where that is wanted."""

    def forget(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Read these no more, and commit nothing: their topics are gone."""

    def lose(self) -> None:
        """Read nothing more: other members may have all of it by now."""


class GroupMember:
    """One member. `beat` is called again and again, by one task; `leave` ends it."""

    def __init__(self, kafka: KafkaCalls, group_id: str, name: str, owner: PartitionOwner) -> None:
        self.is_joined = False
        """True once the coordinator has said what this member may read, be it nothing."""
        self._kafka = kafka
        self._group_id = group_id
        self._member_id = f"{name}-{uuid.uuid4()}"
        self._owner = owner
        self._epoch = _JOINING
        self._subscription = Subscription()
        self._target: set[TopicIdPartition] = set()
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self._told: tuple[Subscription, frozenset[TopicIdPartition]] | None = None
        """What the coordinator has last been told, None where nobody can say that."""
        self._is_known = False
        """True where the coordinator may know the member."""
        self._beating = asyncio.Lock()

    @property
    def identity(self) -> tuple[str, int]:
        """Id and epoch to commit with; those of nobody while it is not in the group."""
        if self._epoch == _JOINING:
            return NO_MEMBER, NO_EPOCH
        return self._member_id, self._epoch

    def subscribe(self, subscription: Subscription) -> None:
        """Want to read this from the next heartbeat on."""
        self._subscription = subscription
        # What its owner gave up for another subscription is this member's still, where the
        # coordinator has not heard of that one: nobody else reads it.
        kept = self._owned.keys() & self._target
        self._owner.take({self._owned[each] for each in kept})
        self.forget_deleted()

    def forget_deleted(self) -> None:
        """Have nothing committed of topics that are gone: it would count for the next of a name.

        The coordinator tells in time what the member has of that one.
        """
        topic_name = self._kafka.broker.image.topic_name
        gone = {name for key, name in self._owned.items() if topic_name(key[0]) is None}
        if gone:
            self._owner.forget(gone)

    async def beat(self) -> float:
        """Tell the coordinator what there is to tell; return seconds until the next time.

        KafkaError for what does not pass by itself.
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
        return response.heartbeat_interval_ms / 1000

    async def leave(self) -> None:
        """Leave the group at once, rather than when the session ends; KafkaError.

        It tries until a coordinator is there: the caller sets the time.
        """
        async with self._beating:
            if self._is_known:
                self._epoch, self._is_known = _JOINING, False
                request = ConsumerGroupHeartbeatRequest(self._group_id, self._member_id, _LEAVING)
                while True:
                    response = await self._send(request)
                    if error_code(response.error_code) not in PASSING:
                        break
                    # As where this broker stops, and what it coordinates has just moved.
                    await asyncio.sleep(RETRY_S)
                if error_code(response.error_code) not in _LOST:
                    raise_code(response.error_code, response.error_message)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(self._group_id, self._member_id, self._epoch)
        # A coordinator elsewhere knows this broker, and not who asks.
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
        """Give up what is another's, and only then take what is new (KIP-848)."""
        image = self._kafka.broker.image
        lost = {key: name for key, name in self._owned.items() if key not in self._target}
        if lost:
            await self._owner.give_up(set(lost.values()))
            for key in lost:
                self._owned.pop(key, None)
        added = {}
        for topic_id, index in self._target - self._owned.keys():
            name = image.topic_name(topic_id)
            # A pattern is looked up for all members that have it, by the rights of one of them.
            if name is not None and self._kafka.would_allow(
                Operation.DESCRIBE, ResourceType.TOPIC, name
            ):
                added[topic_id, index] = (name, index)
        self._owned |= added
        self._owner.take(set(added.values()))

    def _has_unknown(self) -> bool:
        """Tell whether the image of this broker does not have a new topic yet."""
        image = self._kafka.broker.image
        return any(image.topic_name(topic_id) is None for topic_id, _ in self._target)

    def _rejoin(self) -> None:
        """Begin anew: the coordinator has given all partitions to others."""
        self._epoch = _JOINING
        self._told = None
        self._target = set()
        self._owned = {}
        self.is_joined = False
        self._owner.lose()


def _code_of(response: ConsumerGroupHeartbeatResponse) -> int:
    return response.error_code
