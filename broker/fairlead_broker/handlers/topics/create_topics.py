"""CreateTopics (key 19), versions 2-7.

Behaviour: each topic succeeds or fails on its own. The controller decides names, placement,
replication factor and configs; `validate_only` runs the same checks and changes nothing. -1 asks
for the defaults of this broker. Once the reply is sent, this broker knows the topic; the others
follow within a message. Configs in the reply are all those the topic has, as DescribeConfigs
lists them. Each partition counts towards the `controller_mutation_rate` of the client.
Versions:  4 -1 for partitions and replication factor (taken before, too) · 5 flexible; counts
           and configs in the reply · 6 THROTTLING_QUOTA_EXCEEDED, where older ones
           are carried out and wait afterwards · 7 topic_id.
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
from fairlead_model.configs.config_values import TOPIC_CONFIGS, describe_topic_config
from fairlead_model.ids import CLUSTER_METADATA
from fairlead_model.session.calls import CreatableTopic as TopicToCreate
from fairlead_model.session.calls import CreatedTopic, CreateTopicsCall, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.broker import Broker

DEFAULT_COUNT = -1
FIRST_VERSION_WITH_QUOTAS = 6


@handles(ApiKey.CREATE_TOPICS, versions=(2, 7), access=Access.BY_RESOURCE)
def create_topics(request: CreateTopicsRequest, context: RequestContext) -> Pending:
    """Forward what this broker can't refuse itself."""
    if len(request.topics) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"CreateTopics names {len(request.topics)} topics")
    return context.later(_create(request, context))


async def _create(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    may_create_all = context.would_allow_cluster(Operation.CREATE)
    duplicates = repeated(topic.name for topic in request.topics)
    results: dict[str, CreatableTopicResult] = {}
    forwarded: list[TopicToCreate] = []
    throttle_time_ms = 0
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if topic.name in duplicates:
                raise repetition_error(f"topic {topic.name!r}")
            if topic.name == CLUSTER_METADATA:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Creation of internal topic {CLUSTER_METADATA} is prohibited.",
                )
            if not may_create_all:
                context.require(Operation.CREATE, ResourceType.TOPIC, topic.name)
            forwarded.append(_topic_to_create(topic))
        except KafkaError as error:
            results[topic.name] = _refused(topic.name, error)
    if forwarded:
        created, throttle_time_ms = await _forward(forwarded, request, context)
        for result in created:
            if not result.error_code and not context.would_allow(
                Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name
            ):
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.num_partitions = result.replication_factor = DEFAULT_COUNT
                result.configs = []
            results[result.name] = result
    return CreateTopicsResponse(throttle_time_ms, list(results.values()))


async def _forward(
    topics: list[TopicToCreate], request: CreateTopicsRequest, context: RequestContext
) -> tuple[list[CreatableTopicResult], int]:
    """Return the results, and how long a quota holds the client back."""
    broker = context.broker
    call = CreateTopicsCall(
        topics=topics,
        validate_only=request.validate_only,
        default_partitions=broker.settings.num_partitions,
        default_replication_factor=broker.settings.default_replication_factor,
        asker=mutation_asker(context, strict_since=FIRST_VERSION_WITH_QUOTAS),
    )
    reply = await ask_in_parts(
        broker, Method.CREATE_TOPICS, call, "topics", timeout_ms=request.timeout_ms
    )
    known: dict[Hashable, list[CreatableTopicConfigs]] = {}
    results = [_result(created, broker, known) for created in reply.answers]
    if reply.error is not None:
        results += [_refused(topic["name"], reply.error) for topic in reply.unanswered]
    return results, reply.throttle_time_ms


def _topic_to_create(topic: CreatableTopic) -> TopicToCreate:
    assignments = {
        assignment.partition_index: list(assignment.broker_ids) for assignment in topic.assignments
    }
    if len(assignments) != len(topic.assignments):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once"
        )
    return TopicToCreate(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs={config.name: config.value for config in topic.configs},
    )


def _result(
    created: CreatedTopic, broker: Broker, known: dict[Hashable, list[CreatableTopicConfigs]]
) -> CreatableTopicResult:
    """One topic of the reply; topics with the same overrides share what they are described by."""
    code, message = slot_error(created)
    if code is not ErrorCode.NONE:
        return _refused(created["name"], KafkaError(code, message))
    overrides = frozenset(created["configs"].items())
    configs = known.get(overrides)
    if configs is None:
        configs = known[overrides] = _configs(created["configs"], broker)
    return CreatableTopicResult(
        name=created["name"],
        topic_id=created["topic_id"],
        error_message=None,
        num_partitions=created["partitions"],
        replication_factor=created["replication_factor"],
        configs=configs,
    )


def _configs(overrides: Mapping[str, str], broker: Broker) -> list[CreatableTopicConfigs]:
    described = (
        describe_topic_config(name, overrides, broker.running_values()) for name in TOPIC_CONFIGS
    )
    return [
        CreatableTopicConfigs(
            name=config.key.name,
            value=config.value,
            read_only=config.is_read_only,
            config_source=config.source,
            is_sensitive=config.key.is_sensitive,
        )
        for config in described
    ]


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
