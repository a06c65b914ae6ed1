"""CreatePartitions (key 37), versions 0-3.

Behaviour: each topic on its own; `count` is the number of partitions afterwards and may only grow
(INVALID_PARTITIONS otherwise). New partitions are placed by the controller or as assigned. The
reply lists every topic asked for.
Versions:  2 flexible · 3 THROTTLING_QUOTA_EXCEEDED exists (never sent).
Missing:   quotas on controller mutations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.controller_calls import ask_in_parts, repeated, repetition_error, slot_error
from fairlead_broker.handlers.registry import handles
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_model.calls import CreatePartitionsCall, GrowableTopic, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import KafkaError, RemoteProtocolError
from fairlead_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import Pending, RequestContext


@handles(ApiKey.CREATE_PARTITIONS, versions=(0, 3))
def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> Pending:
    """Forward to the controller."""
    if len(request.topics) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"CreatePartitions names {len(request.topics)} topics")
    return context.later(_grow(request, context.broker))


async def _grow(request: CreatePartitionsRequest, broker: Broker) -> CreatePartitionsResponse:
    duplicates = repeated(topic.name for topic in request.topics)
    results = {
        topic.name: _refused(topic.name, repetition_error(f"topic {topic.name!r}"))
        for topic in request.topics
        if topic.name in duplicates
    }
    topics = [
        GrowableTopic(
            name=topic.name,
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else [list(assignment.broker_ids) for assignment in topic.assignments],
        )
        for topic in request.topics
        if topic.name not in duplicates
    ]
    if topics:
        for result in await _forward(topics, request, broker):
            results[result.name] = result
    return CreatePartitionsResponse(results=list(results.values()))


async def _forward(
    topics: list[GrowableTopic], request: CreatePartitionsRequest, broker: Broker
) -> list[CreatePartitionsTopicResult]:
    call = CreatePartitionsCall(topics=topics, validate_only=request.validate_only)
    reply = await ask_in_parts(
        broker, Method.CREATE_PARTITIONS, call, "topics", timeout_ms=request.timeout_ms
    )
    results = []
    for grown in reply.answers:
        code, message = slot_error(grown)
        results.append(
            CreatePartitionsTopicResult(name=grown["name"], error_code=code, error_message=message)
        )
    if reply.error is not None:
        results += [_refused(topic["name"], reply.error) for topic in reply.unanswered]
    return results


def _refused(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.message
    )
