"""Metadata (key 3), versions 0-13.

Behaviour: topics by name, by id, or all; the brokers that are alive, or were so a moment ago, with
the address that belongs to the listener the request came in on; `controller_id` names this broker
while it is registered, because every broker forwards admin requests. While a leader has just hung
up, replies wait for the controller's decision, 300 ms at most. A partition without leader answers
LEADER_NOT_AVAILABLE, an unknown topic UNKNOWN_TOPIC_OR_PARTITION (UNKNOWN_TOPIC_ID by id), an
illegal name INVALID_TOPIC_EXCEPTION. With `auto.create.topics.enable` a missing topic is created
before the reply. A client that may not describe a topic gets TOPIC_AUTHORIZATION_FAILED for its
name, whether it exists or not, and for its id the answer of an unknown id. Replies are kept encoded
until the cluster's image changes.
Versions:  0 no topics means all · 1 null means all, none means none; rack, controller_id,
           is_internal · 2 cluster_id · 4 allow_auto_topic_creation · 5 offline_replicas · 7
           leader_epoch · 8 authorized operations · 9 flexible · 10 topic_id · 12 by id, which
           counts where there is a name, too · 13 an error of the whole reply, of which there is
           none: it tells clients to bootstrap again.
Missing:   nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import CLUSTER_NAME, Access, Operation, ResourceType
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_model.ids import (
    ZERO_TOPIC_ID,
    is_internal_topic,
    is_legal_topic_name,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.broker import Broker
    from fairlead_broker.listener import Listener
    from fairlead_model.cluster import ClusterImage, TopicImage
    from fairlead_model.partition import PartitionRegistration

FIRST_VERSION_WITH_NULL_TOPICS = 1
FIRST_VERSION_WITH_CREATION_FLAG = 4
FIRST_VERSION_WITH_ID_FIELD = 10
FIRST_VERSION_BY_ID = 12
FIRST_VERSION_WITH_OPERATIONS = 8
LAST_VERSION_WITH_CLUSTER_OPERATIONS = 10
_WITHOUT_OPERATIONS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
_NOTHING_DENIED: Final[frozenset[str]] = frozenset()


@handles(ApiKey.METADATA, versions=(0, 13), access=Access.BY_RESOURCE)
def metadata(request: MetadataRequest, context: RequestContext) -> bytes | Pending:
    """Answer from the image; wait only for auto-creation, and while a leader may be dead."""
    broker = context.broker
    asked = _asked_topics(request, context.version)
    if _has_ids_too_early(request, context.version):
        return _refuse_ids(request, context)
    if broker.on_leaders_asked is not None:
        broker.on_leaders_asked()
    if broker.leader_doubts and _doubted_ms(broker):
        return context.later(_reply_when_sure(broker, request, context, asked))
    denied = _denied(request, context, asked)
    missing = _topics_to_create(broker, request, asked, context.version)
    if not denied.issuperset(missing):
        return context.later(_create_and_reply(request, context, asked, missing, denied))
    question = _question(broker, request, context, asked, denied)
    reply = broker.metadata_cache.find(broker.image, question)
    if reply is None:
        reply = _encode_reply(request, context, asked, {}, denied)
        names_count = len(denied) + len(asked or ())
        broker.metadata_cache.keep(broker.image, question, reply, names_count)
    return reply


def _question(
    broker: Broker,
    request: MetadataRequest,
    context: RequestContext,
    asked: tuple[str | bytes, ...] | None,
    denied: frozenset[str],
) -> tuple[object, ...]:
    """Return all that a reply depends on besides the image."""
    departed = broker.departed_brokers.listed(broker.clock.monotonic_ms())
    told = _operations_asked(request, context.version)
    # The authorized operations differ from one principal to another.
    who = (context.principal, context.client_host) if told and context.authorizer else None
    return context.version, context.listener.name, asked, departed, denied, told, who


def _denied(
    request: MetadataRequest, context: RequestContext, asked: tuple[str | bytes, ...] | None
) -> frozenset[str]:
    """Give the topics that the client may not describe, or may not create if that is due."""
    if context.authorizer is None:
        return _NOTHING_DENIED
    broker = context.broker
    image = broker.image
    may = context.would_allow if asked is None else context.may
    names = image.names if asked is None else [_name_of(item, image) for item in asked]
    denied = {
        name
        for name in names
        if name is not None and not may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    }
    if not context.would_allow_cluster(Operation.CREATE):
        denied |= {
            name
            for name in _topics_to_create(broker, request, asked, context.version)
            if not context.may(Operation.CREATE, ResourceType.TOPIC, name)
        }
    return frozenset(denied)


def _name_of(item: str | bytes, image: ClusterImage) -> str | None:
    return image.topic_name(item) if isinstance(item, bytes) else item


def _doubted_ms(broker: Broker) -> int:
    return broker.leader_doubts.remaining_ms(broker.image, broker.clock.monotonic_ms())


async def _reply_when_sure(
    broker: Broker,
    request: MetadataRequest,
    context: RequestContext,
    asked: tuple[str | bytes, ...] | None,
) -> bytes:
    """Wait until the controller has decided about the broker that hung up, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_doubted_ms(broker) / 1000):
            while _doubted_ms(broker):
                await broker.image_changed()
    denied = _denied(request, context, asked)
    missing = _topics_to_create(broker, request, asked, context.version)
    if not denied.issuperset(missing):
        return await _create_and_reply(request, context, asked, missing, denied)
    return _encode_reply(request, context, asked, {}, denied)


async def _create_and_reply(
    request: MetadataRequest,
    context: RequestContext,
    asked: tuple[str | bytes, ...] | None,
    missing: list[str],
    denied: frozenset[str],
) -> bytes:
    failures = await context.broker.topic_creator.ensure(
        [name for name in missing if name not in denied]
    )
    return _encode_reply(request, context, asked, failures, denied)


def _encode_reply(
    request: MetadataRequest,
    context: RequestContext,
    asked: tuple[str | bytes, ...] | None,
    failures: Mapping[str, KafkaError],
    denied: frozenset[str],
) -> bytes:
    broker = context.broker
    response = build_response(
        broker.image,
        listener=context.listener,
        node_id=broker.node_id,
        asked=asked,
        failures=failures,
        departed=broker.departed_brokers.listed(broker.clock.monotonic_ms()),
        denied=denied,
    )
    if operations := _operations_asked(request, context.version):
        _tell_operations(response, context, *operations)
    if context.version < FIRST_VERSION_BY_ID:
        for topic in response.topics:
            # An unknown id has no name, and the field cannot be null.
            topic.name = topic.name or ""
    return b"".join(response.encode(context.version))  # type: ignore[arg-type]


def _operations_asked(request: MetadataRequest, version: int) -> tuple[bool, bool] | None:
    """Tell whether the operations on topics and on the cluster are asked for; None if neither."""
    if version < FIRST_VERSION_WITH_OPERATIONS:
        return None
    of_cluster = (
        request.include_cluster_authorized_operations
        and version <= LAST_VERSION_WITH_CLUSTER_OPERATIONS
    )
    asked = (request.include_topic_authorized_operations, of_cluster)
    return asked if any(asked) else None


def _tell_operations(
    response: MetadataResponse, context: RequestContext, of_topics: bool, of_cluster: bool
) -> None:
    if of_cluster:
        may_know = context.would_allow_cluster(Operation.DESCRIBE)
        response.cluster_authorized_operations = (
            context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME) if may_know else 0
        )
    if of_topics:
        for topic in response.topics:
            if topic.name is not None and topic.error_code not in _WITHOUT_OPERATIONS:
                topic.topic_authorized_operations = context.authorized_operations(
                    ResourceType.TOPIC, topic.name
                )


def _asked_topics(request: MetadataRequest, version: int) -> tuple[str | bytes, ...] | None:
    """Names and 16-byte ids without repetition, in the order of the request; None for all."""
    topics = request.topics
    if topics is None or (not topics and version < FIRST_VERSION_WITH_NULL_TOPICS):
        return None
    if len(topics) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"Metadata asks for {len(topics)} topics")
    has_ids = version >= FIRST_VERSION_BY_ID
    asked = (
        bytes(topic.topic_id)
        if topic.name is None or (has_ids and topic.topic_id != ZERO_TOPIC_ID)
        else topic.name
        for topic in topics
    )
    return tuple(dict.fromkeys(asked))


def _has_ids_too_early(request: MetadataRequest, version: int) -> bool:
    """Tell whether ids are asked for in a version that has their field and no meaning for them."""
    return FIRST_VERSION_WITH_ID_FIELD <= version < FIRST_VERSION_BY_ID and any(
        topic.name is None or topic.topic_id != ZERO_TOPIC_ID for topic in request.topics or ()
    )


def _refuse_ids(request: MetadataRequest, context: RequestContext) -> bytes:
    broker = context.broker
    response = build_response(
        broker.image, listener=context.listener, node_id=broker.node_id, asked=(), failures={}
    )
    response.topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
        )
        for topic in request.topics or ()
    ]
    return b"".join(response.encode(context.version))  # type: ignore[arg-type]


def _topics_to_create(
    broker: Broker,
    request: MetadataRequest,
    asked: tuple[str | bytes, ...] | None,
    version: int,
) -> list[str]:
    is_allowed = version < FIRST_VERSION_WITH_CREATION_FLAG or request.allow_auto_topic_creation
    if asked is None or not is_allowed or not broker.settings.auto_create_topics_enable:
        return []
    return [
        name
        for name in asked
        if isinstance(name, str) and broker.image.topic(name) is None and is_legal_topic_name(name)
    ]


def build_response(
    image: ClusterImage,
    *,
    listener: Listener,
    node_id: int,
    asked: tuple[str | bytes, ...] | None,
    failures: Mapping[str, KafkaError],
    departed: frozenset[int] = frozenset(),
    denied: frozenset[str] = _NOTHING_DENIED,
) -> MetadataResponse:
    """Return the reply to a question.

    `failures` are topics that could not be created, `departed` brokers that are named though they
    are out of service, `denied` topics that are left out, or refused where they were asked for.
    """
    endpoints = live_endpoints(image, listener)
    if asked is None:
        topics = [
            _describe_topic(topic, image, endpoints)
            for topic in sorted(image.topics(), key=lambda topic: topic.name)
            if topic.name not in denied
        ]
    else:
        topics = [_answer_for(item, image, endpoints, failures, denied) for item in asked]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker_id, host=host, port=port, rack=image.brokers[broker_id].rack
            )
            for broker_id, (host, port) in sorted(
                (endpoints | endpoints_of(image, listener, departed)).items()
            )
        ],
        cluster_id=image.cluster_id or None,
        controller_id=stand_in_controller(endpoints, node_id),
        topics=topics,
    )


def live_endpoints(image: ClusterImage, listener: Listener) -> dict[int, tuple[str, int]]:
    """Return brokers that can be reached through listeners of this name, and at which address."""
    reachable = {}
    for broker_id, registration in image.brokers.items():
        endpoint = registration.endpoint(listener.name)
        if endpoint is not None and not registration.fenced:
            reachable[broker_id] = (endpoint.host, endpoint.port)
    return reachable


def endpoints_of(
    image: ClusterImage, listener: Listener, broker_ids: Collection[int]
) -> dict[int, tuple[str, int]]:
    """Return where brokers are, or were before they went out of service."""
    endpoints = {}
    for broker_id in broker_ids:
        registration = image.brokers.get(broker_id)
        endpoint = registration.endpoint(listener.name) if registration is not None else None
        if endpoint is not None:
            endpoints[broker_id] = (endpoint.host, endpoint.port)
    return endpoints


def stand_in_controller(live: Mapping[int, object], node_id: int) -> int:
    """Return the controller for clients: this broker, or the lowest live broker, or none."""
    if node_id in live or not live:
        return node_id if live else -1
    return min(live)


def _answer_for(
    item: str | bytes,
    image: ClusterImage,
    live: Mapping[int, object],
    failures: Mapping[str, KafkaError],
    denied: frozenset[str],
) -> MetadataResponseTopic:
    if isinstance(item, bytes):
        topic = image.topic_by_id(item)
        if topic is None or topic.name in denied:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=item
            )
        return _describe_topic(topic, image, live)
    if item in denied:
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=item, topic_id=ZERO_TOPIC_ID
        )
    topic = image.topic(item)
    if topic is not None:
        return _describe_topic(topic, image, live)
    if item in failures:
        code = failures[item].code
        # While there is no controller the client shall ask again, not give the topic up.
        if code is ErrorCode.REQUEST_TIMED_OUT:
            code = ErrorCode.LEADER_NOT_AVAILABLE
    elif is_legal_topic_name(item):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(
        error_code=code, name=item, topic_id=ZERO_TOPIC_ID, is_internal=is_internal_topic(item)
    )


def _describe_topic(
    topic: TopicImage, image: ClusterImage, live: Mapping[int, object]
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE if topic.partitions else ErrorCode.LEADER_NOT_AVAILABLE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=leader_error(partition, live, image),
                partition_index=index,
                leader_id=partition.leader if partition.leader in live else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=offline_replicas(partition, live),
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )


def leader_error(
    partition: PartitionRegistration, live: Mapping[int, object], image: ClusterImage
) -> ErrorCode:
    """Return why a partition cannot be used through this listener, if it cannot."""
    if partition.leader in live:
        return ErrorCode.NONE
    registration = image.brokers.get(partition.leader)
    if registration is not None and not registration.fenced:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.LEADER_NOT_AVAILABLE


def offline_replicas(partition: PartitionRegistration, live: Mapping[int, object]) -> list[int]:
    """Return replicas on brokers that don't answer."""
    return [replica for replica in partition.replicas if replica not in live]
