"""DeleteTopics (key 20), versions 1-6.

Behaviour: each topic on its own, by name or (6) by id. The reply is sent when the deletion is
durable and this broker has taken the topic out of service; files go after `file.delete.delay.ms`.
With `delete.topic.enable=false` every topic answers TOPIC_DELETION_DISABLED. The offsets topic
is refused (INVALID_TOPIC_EXCEPTION), where Kafka deletes it and with it all that groups committed.
Each partition counts towards the `controller_mutation_rate` of the client.
Versions:  4 flexible · 5 error_message; THROTTLING_QUOTA_EXCEEDED, where older ones are carried out
           and wait afterwards · 6 by topic id; name and id in the reply.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.mutation_quota import mutation_asker
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import (
    ask_in_parts,
    repeated,
    repetition_error,
    slot_error,
)
from fairlead_model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, ZERO_TOPIC_ID
from fairlead_model.session.calls import DeletableTopic, DeleteTopicsCall, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_model.cluster import ClusterImage

FIRST_VERSION_WITH_IDS = 6
FIRST_VERSION_WITH_DISABLED = 3
FIRST_VERSION_WITH_QUOTAS = 5


@handles(ApiKey.DELETE_TOPICS, versions=(1, 6), access=Access.BY_RESOURCE)
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
    return context.later(_delete(topics, request.timeout_ms, context))


def _asked_topics(request: DeleteTopicsRequest, version: int) -> list[DeletableTopic]:
    if version < FIRST_VERSION_WITH_IDS:
        return [DeletableTopic(name=name, topic_id=ZERO_TOPIC_ID) for name in request.topic_names]
    return [
        DeletableTopic(name=topic.name, topic_id=bytes(topic.topic_id)) for topic in request.topics
    ]


async def _delete(
    topics: list[DeletableTopic], timeout_ms: int, context: RequestContext
) -> DeleteTopicsResponse:
    broker = context.broker
    names = [_resolved(topic, broker.image) for topic in topics]
    refusals = {
        _identity(topic): KafkaError(
            ErrorCode.INVALID_REQUEST, "give a topic's name or its id, one of them"
        )
        for topic in topics
        if not _is_named_once(topic)
    }
    asked = [topic for topic in topics if _identity(topic) not in refusals]
    refusals |= _denials(asked, context)
    for topic in asked:
        if (error := _refusal(topic, broker.image)) is not None:
            refusals.setdefault(_identity(topic), error)
    twice = repeated(_identity(topic) for topic in topics)
    twice |= repeated(
        name
        for topic, name in zip(topics, names, strict=True)
        if name is not None and _identity(topic) not in refusals
    )
    for topic, name in zip(topics, names, strict=True):
        if _identity(topic) in twice or name in twice:
            refusals.setdefault(_identity(topic), repetition_error("a topic"))
    once = {_identity(topic): topic for topic in topics}
    responses = [_refused(once[identity], error) for identity, error in refusals.items()]
    _name_refused(responses, broker.image)
    forwarded = [topic for identity, topic in once.items() if identity not in refusals]
    throttle_time_ms = 0
    if forwarded:
        deleted, throttle_time_ms = await _forward(forwarded, timeout_ms, context)
        responses += deleted
    return DeleteTopicsResponse(throttle_time_ms, responses)


def _name_refused(responses: list[DeletableTopicResult], image: ClusterImage) -> None:
    """Name topics that were asked for by id and may be described, though not deleted."""
    for response in responses:
        if response.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED and response.name is None:
            response.name = image.topic_name(response.topic_id)


def _is_named_once(topic: DeletableTopic) -> bool:
    """Tell whether a topic is named by its name or by its id, and not by both."""
    return (topic["name"] is None) != (topic["topic_id"] == ZERO_TOPIC_ID)


def _denials(
    topics: list[DeletableTopic], context: RequestContext
) -> dict[tuple[str | None, bytes], KafkaError]:
    """Return why the client may not delete topics, by the name or id in the request.

    A client that may not describe a topic learns nothing from its id: the topic is unknown to it,
    and the controller is not asked. One that may describe a topic, though not delete it, is told
    if there is none.
    """
    if context.would_allow_cluster(Operation.DELETE):
        return {}
    denials = {}
    for topic in topics:
        name = _resolved(topic, context.broker.image)
        if topic["name"] is None and (
            name is None or not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        ):
            denials[_identity(topic)] = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        elif name is not None and not context.may(Operation.DELETE, ResourceType.TOPIC, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            is_missing = context.broker.image.topic(name) is None
            if is_missing and context.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, name):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            denials[_identity(topic)] = KafkaError(code)
    return denials


async def _forward(
    topics: list[DeletableTopic], timeout_ms: int, context: RequestContext
) -> tuple[list[DeletableTopicResult], int]:
    """Return the results, and how long a quota holds the client back."""
    asker = mutation_asker(context, strict_since=FIRST_VERSION_WITH_QUOTAS)
    call = DeleteTopicsCall(topics=topics, asker=asker)
    reply = await ask_in_parts(
        context.broker, Method.DELETE_TOPICS, call, "topics", timeout_ms=timeout_ms
    )
    responses = []
    for deleted in reply.answers:
        code, message = slot_error(deleted)
        name = deleted["name"]
        if name is None and context.version < FIRST_VERSION_WITH_IDS:
            name = ""
        responses.append(
            DeletableTopicResult(
                name=name, topic_id=deleted["topic_id"], error_code=code, error_message=message
            )
        )
    if reply.error is not None:
        responses += [_refused(topic, reply.error) for topic in reply.unanswered]
    return responses, reply.throttle_time_ms


def _refusal(topic: DeletableTopic, image: ClusterImage) -> KafkaError | None:
    """Return the error of a slot by itself."""
    name = _resolved(topic, image)
    if name == TRANSACTION_STATE:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{TRANSACTION_STATE} says which transactions are committed: it cannot be deleted",
        )
    if name == CONSUMER_OFFSETS:
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{CONSUMER_OFFSETS} holds what all groups have committed: delete groups instead",
        )
    return None


def _resolved(topic: DeletableTopic, image: ClusterImage) -> str | None:
    """Return the name of the topic, None if this broker knows none with the id."""
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
