"""OffsetDelete (key 47), version 0.

Behaviour: deletes committed offsets of a group and answers when the tombstones are committed.
Offsets of a topic that members consume stay: GROUP_SUBSCRIBED_TO_TOPIC. If the members'
subscriptions cannot be decoded, all offsets stay. A group whose members are not consumers is
NON_EMPTY_GROUP. An offset that does not exist is no error.
Versions:  0 only; never flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Operation, ResourceType, needs_group
from fairlead_broker.group.removal import delete_offsets
from fairlead_broker.handlers.groups.group_requests import check_group_id
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


@handles(ApiKey.OFFSET_DELETE, versions=(0, 0), access=needs_group(Operation.DELETE))
@once_awake
def offset_delete(
    request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Pending:
    if count_named(topic.partitions for topic in request.topics) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError("OffsetDelete names too many partitions")
    coordinator = context.broker.group_coordinator
    try:
        check_group_id(request.group_id)
        group = coordinator.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        in_use = group.protocol.topics_in_use()
    except KafkaError as error:
        context.broker.metrics.errors[error.code.name] += 1
        return OffsetDeleteResponse(error_code=error.code)
    deletion = _Deletion(request, context, in_use)
    delete_offsets(coordinator, group, deletion.partitions, deletion.settle)
    return deletion.reply()


class _Deletion:
    """A request on its way; `partitions` are those that may go."""

    def __init__(
        self,
        request: OffsetDeleteRequest,
        context: RequestContext,
        in_use: frozenset[str] | None,
    ) -> None:
        self._context: RequestContext | None = context
        self._slots: list[OffsetDeleteResponsePartition] = []
        self._is_settled = False
        self.partitions: list[tuple[str, int]] = []
        topics = []
        for topic in request.topics:
            slots: list[OffsetDeleteResponsePartition] = []
            topics.append(OffsetDeleteResponseTopic(topic.name, slots))
            for each in topic.partitions:
                slot = OffsetDeleteResponsePartition(each.partition_index)
                slots.append(slot)
                if not context.may(Operation.READ, ResourceType.TOPIC, topic.name):
                    slot.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif context.broker.image.partition(topic.name, slot.partition_index) is None:
                    # Before the subscriptions, which may name topics that are gone, as in Kafka.
                    slot.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif in_use is None or topic.name in in_use:
                    slot.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    self._slots.append(slot)
                    self.partitions.append((topic.name, slot.partition_index))
        self._response = OffsetDeleteResponse(topics=topics)

    def settle(self, code: ErrorCode) -> None:
        """Note that the tombstones are committed, or that they failed."""
        self._is_settled = True
        context, self._context = self._context, None
        for slot in self._slots:
            slot.error_code = code
        if context is not None and context.parked is self:
            context.respond(self._response)

    def reply(self) -> OffsetDeleteResponse | Pending:
        """Return the answer, if there was nothing to wait for."""
        if self._is_settled or self._context is None:
            return self._response
        self._context.parked = self
        return PENDING

    def cancel(self) -> None:
        """Forget a connection that is gone; the offsets go all the same."""
        self._context = None
