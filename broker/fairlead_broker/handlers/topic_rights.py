"""The error for a client that may not use a topic, which depends on how it named the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


def topic_denial(
    context: RequestContext, operation: Operation, topic: str, *, by_id: bool
) -> ErrorCode:
    """Return why the client may not do `operation` on a topic; NONE if it may.

    If the request names a topic by its id, and the client may not even describe it, the topic is
    unknown. A client whose rights were revoked learns that from its next Metadata request, which
    names it.
    """
    if context.may(operation, ResourceType.TOPIC, topic):
        return ErrorCode.NONE
    if by_id and not context.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, topic):
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def require_topic(
    context: RequestContext, operation: Operation, topic: str, *, by_id: bool
) -> None:
    """Raise the KafkaError of a topic on which the client may not do `operation`."""
    code = topic_denial(context, operation, topic, by_id=by_id)
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
