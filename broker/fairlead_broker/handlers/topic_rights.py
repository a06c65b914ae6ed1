"""The error for a client that may not use a topic, which depends on how it named the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

USED_IDS_MAX: Final = 10_000
"""Topic ids that a connection remembers: no request names more topics."""


def topic_denial(
    context: RequestContext, operation: Operation, topic: str, *, topic_id: bytes | None = None
) -> ErrorCode:
    """Return why the client may not do `operation` on a topic; NONE if it may.

    `topic_id` is given if the request names the topic by it. If the client may not even describe
    the topic, it is unknown then: an id tells nothing. Only where the client has used that id on
    this connection is it told that its right has ended. It would try an unknown id again: Java's
    producer does so for two minutes.
    """
    channel = context.channel
    if context.may(operation, ResourceType.TOPIC, topic):
        if topic_id is not None and channel.authorizer is not None:
            _note_use(channel.used_topic_ids, topic_id)
        return ErrorCode.NONE
    if (
        topic_id is None
        or topic_id in channel.used_topic_ids
        or context.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_ID


def _note_use(used: set[bytes], topic_id: bytes) -> None:
    if topic_id not in used:
        if len(used) >= USED_IDS_MAX:
            used.clear()  # Only whose right ends just now waits until its time is out.
        used.add(topic_id)


def require_topic(
    context: RequestContext, operation: Operation, topic: str, *, topic_id: bytes | None = None
) -> None:
    """Raise the KafkaError of a topic on which the client may not do `operation`."""
    code = topic_denial(context, operation, topic, topic_id=topic_id)
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
