"""CreatePartitions (key 37), versions 0-3.

Behaviour: each topic on its own; `count` is the number of partitions afterwards and may only grow
(INVALID_PARTITIONS otherwise). New partitions are placed by the controller or as assigned. The
reply lists every topic asked for.
Each new partition counts towards the `controller_mutation_rate` of the client.
Versions:  2 flexible · 3 THROTTLING_QUOTA_EXCEEDED, where older ones are carried out and
           wait afterwards.
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
from fairlead_model.session.calls import CreatePartitionsCall, GrowableTopic, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext

FIRST_VERSION_WITH_QUOTAS = 3


@handles(ApiKey.CREATE_PARTITIONS, versions=(0, 3), access=Access.BY_RESOURCE)
def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> Pending:
    """Forward to the controller."""
    if len(request.topics) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"CreatePartitions names {len(request.topics)} topics")
    return context.later(_grow(request, context))


async def _grow(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    duplicates = repeated(topic.name for topic in request.topics)
    results = {
        topic.name: _refused(topic.name, repetition_error(f"topic {topic.name!r}"))
        for topic in request.topics
        if topic.name in duplicates
    }
    for topic in request.topics:
        if not context.may(Operation.ALTER, ResourceType.TOPIC, topic.name):
            denial = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            results.setdefault(topic.name, _refused(topic.name, denial))
    topics = [
        GrowableTopic(
            name=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else [list(assignment.broker_ids) for assignment in topic.assignments],
        )
        for topic in request.topics
        if topic.name not in results
    ]
    throttle_time_ms = 0
    if topics:
        grown, throttle_time_ms = await _forward(topics, request, context)
        for result in grown:
            results[result.name] = result
    return CreatePartitionsResponse(throttle_time_ms, list(results.values()))


async def _forward(
    topics: list[GrowableTopic], request: CreatePartitionsRequest, context: RequestContext
) -> tuple[list[CreatePartitionsTopicResult], int]:
    """Return the results, and how long a quota holds the client back."""
    call = CreatePartitionsCall(
        topics=topics,
        validate_only=request.validate_only,
        asker=mutation_asker(context, strict_since=FIRST_VERSION_WITH_QUOTAS),
    )
    reply = await ask_in_parts(
        context.broker, Method.CREATE_PARTITIONS, call, "topics", timeout_ms=request.timeout_ms
    )
    results = []
    for grown in reply.answers:
        code, message = slot_error(grown)
        results.append(
            CreatePartitionsTopicResult(name=grown["name"], error_code=code, error_message=message)
        )
    if reply.error is not None:
        results += [_refused(topic["name"], reply.error) for topic in reply.unanswered]
    return results, reply.throttle_time_ms


def _refused(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message
    )
