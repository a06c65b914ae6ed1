"""DeleteTopics (key 20), versions 1-6.

Behaviour: each topic on its own, by name or (6) by id. The reply is sent when the deletion is
durable and this broker has taken the topic out of service; files go after `file.delete.delay.ms`.
With `delete.topic.enable=false` every topic answers TOPIC_DELETION_DISABLED. The offsets topic
is refused (INVALID_TOPIC_EXCEPTION), where Kafka deletes it and with it all that groups committed.
Versions:  4 flexible · 5 error_message · 6 by topic id; name and id in the reply.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.controller_calls import ask_in_parts, repeated, repetition_error, slot_error
from fairlead_broker.handlers.registry import handles
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_model.calls import DeletableTopic, DeleteTopicsCall, Method
from fairlead_model.ids import CONSUMER_OFFSETS, ZERO_TOPIC_ID
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import Pending, RequestContext
    from fairlead_model.cluster import ClusterImage

FIRST_VERSION_WITH_IDS = 6
FIRST_VERSION_WITH_DISABLED = 3


@handles(ApiKey.DELETE_TOPICS, versions=(1, 6))
def delete_topics(
    request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse | Pending:
    """Forward to the controller unless deleting is switched off here."""
    topics = _asked_topics(request, context.version)
    if len(topics) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DeleteTopics names {len(topics)} topics")
    if not context.broker.settings.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED
        if context.version < FIRST_VERSION_WITH_DISABLED:
            code = ErrorCode.INVALID_REQUEST
        error = KafkaError(code, "delete.topic.enable is false")
        return DeleteTopicsResponse(responses=[_refused(topic, error) for topic in topics])
    return context.later(_delete(topics, request.timeout_ms, context.broker, context.version))


def _asked_topics(request: DeleteTopicsRequest, version: int) -> list[DeletableTopic]:
    if version < FIRST_VERSION_WITH_IDS:
        return [DeletableTopic(name=name, topic_id=ZERO_TOPIC_ID) for name in request.topic_names]
    return [
        DeletableTopic(name=topic.name, topic_id=bytes(topic.topic_id)) for topic in request.topics
    ]


async def _delete(
    topics: list[DeletableTopic], timeout_ms: int, broker: Broker, version: int
) -> DeleteTopicsResponse:
    refusals = {
        _identity(topic): error
        for topic in topics
        if (error := _refusal(topic, broker.image)) is not None
    }
    names = [_resolved(topic, broker.image) for topic in topics]
    twice = repeated(_identity(topic) for topic in topics)
    twice |= repeated(name for name in names if name is not None)
    for topic, name in zip(topics, names, strict=True):
        if _identity(topic) in twice or name in twice:
            refusals.setdefault(_identity(topic), repetition_error("a topic"))
    once = {_identity(topic): topic for topic in topics}
    responses = [_refused(once[identity], error) for identity, error in refusals.items()]
    forwarded = [topic for identity, topic in once.items() if identity not in refusals]
    if forwarded:
        responses += await _forward(forwarded, timeout_ms, broker, version)
    return DeleteTopicsResponse(responses=responses)


async def _forward(
    topics: list[DeletableTopic], timeout_ms: int, broker: Broker, version: int
) -> list[DeletableTopicResult]:
    call = DeleteTopicsCall(topics=topics)
    reply = await ask_in_parts(broker, Method.DELETE_TOPICS, call, "topics", timeout_ms=timeout_ms)
    responses = []
    for deleted in reply.answers:
        code, message = slot_error(deleted)
        name = deleted["name"]
        if name is None and version < FIRST_VERSION_WITH_IDS:
            name = ""
        responses.append(
            DeletableTopicResult(
                name=name, topic_id=deleted["topic_id"], error_code=code, error_message=message
            )
        )
    if reply.error is not None:
        responses += [_refused(topic, reply.error) for topic in reply.unanswered]
    return responses


def _refusal(topic: DeletableTopic, image: ClusterImage) -> KafkaError | None:
    """What is wrong with a slot by itself."""
    if (topic["name"] is None) == (topic["topic_id"] == ZERO_TOPIC_ID):
        return KafkaError(ErrorCode.INVALID_REQUEST, "give a topic's name or its id, one of them")
    if _resolved(topic, image) == CONSUMER_OFFSETS:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{CONSUMER_OFFSETS} holds what all groups have committed: delete groups instead",
        )
    return None


def _resolved(topic: DeletableTopic, image: ClusterImage) -> str | None:
    """The name of the topic that is meant, None if this broker knows of none with the id."""
    if topic["name"] is not None:
        return topic["name"]
    known = image.topic_by_id(topic["topic_id"])
    return None if known is None else known.name


def _identity(topic: DeletableTopic) -> tuple[str | None, bytes]:
    return topic["name"], topic["topic_id"]


def _refused(topic: DeletableTopic, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic["name"],
        topic_id=topic["topic_id"],
        error_code=error.code,
        error_message=error.message,
    )
