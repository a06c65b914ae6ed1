"""`…/topics` and their partitions: listed, created, grown and deleted as with Kafka's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.rest.documents.schemas import (
    FLAG,
    ID,
    OFFSET,
    TEXT,
    TEXT_OR_NULL,
    array_of,
    object_of,
)
from fairlead_broker.rest.offset_lookup import EARLIEST, LATEST
from fairlead_broker.rest.operations import INT32_MAX, JSON, Answer, Body, Operation
from fairlead_broker.rest.problems import UNKNOWN_PARTITION, ProblemError, raise_code, unknown_topic
from fairlead_broker.rest.topic_reading import (
    describe_partition,
    describe_topic,
    describe_topics,
    find_offset,
)
from fairlead_broker.rest.v3.resources import LINK, LINK_OR_NULL, Place, list_of, resource
from fairlead_broker.session.controller_calls import repeated
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from fairlead_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fairlead_wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.operations import Schema
    from fairlead_broker.rest.request import RestRequest
    from fairlead_wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

_DEFAULT: Final = -1
_TOPICS: Final = "/v3/clusters/{cluster_id}/topics"
_TOPIC: Final = f"{_TOPICS}/{{topic_name}}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition_id}}"

TOPIC = resource(
    "KafkaTopic",
    {
        "topic_name": TEXT,
        "is_internal": FLAG,
        "replication_factor": ID,
        "partitions_count": ID,
        "partitions": LINK,
        "configs": LINK,
        "partition_reassignments": LINK,
        "authorized_operations": array_of(TEXT),
    },
)
PARTITION = resource(
    "KafkaPartition",
    {
        "topic_name": TEXT,
        "partition_id": ID,
        "leader": LINK_OR_NULL,
        "replicas": LINK,
        "reassignment": LINK,
    },
)
PARTITION_OFFSETS = resource(
    "KafkaPartitionOffsets",
    {"topic_name": TEXT, "partition_id": ID, "earliest_offset": OFFSET, "latest_offset": OFFSET},
)
REPLICA = resource(
    "KafkaReplica",
    {
        "topic_name": TEXT,
        "partition_id": ID,
        "broker_id": ID,
        "is_leader": FLAG,
        "is_in_sync": FLAG,
        "broker": LINK,
    },
)


def _topic(request: RestRequest, name: str, **fields: Any) -> dict[str, Any]:
    place = Place(request, "topics", name)
    return place.describe(
        "KafkaTopic",
        topic_name=name,
        **fields,
        partitions=place.link("partitions"),
        configs=place.link("configs"),
        partition_reassignments=place.link("partitions", "-", "reassignment"),
        authorized_operations=[],
    )


def _described(request: RestRequest, topic: DescribeTopicPartitionsResponseTopic) -> dict[str, Any]:
    first = topic.partitions[0].replica_nodes if topic.partitions else []
    return _topic(
        request,
        topic.name or "",
        is_internal=topic.is_internal,
        replication_factor=len(first),
        partitions_count=len(topic.partitions),
    )


async def list_topics(request: RestRequest) -> web.StreamResponse:
    """List the topics that the client may see."""
    topics = (_described(request, topic) for topic in await describe_topics(request))
    return await Place(request, "topics").list("KafkaTopicList", topics)


async def get_topic(request: RestRequest) -> web.StreamResponse:
    """Describe a topic."""
    return request.answer(_described(request, await describe_topic(request)))


async def create_topic(request: RestRequest) -> web.StreamResponse:
    """Create a topic, or only check whether it could be created."""
    document = await request.document()
    name = document["topic_name"]
    is_dry_run = document.get("validate_only") or False
    configs = document.get("configs") or ()
    for config in repeated(each["name"] for each in configs):
        # By Kafka's protocol the last value counts, but nobody writes an array to mean that.
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{config} is named twice")
    assignments = [
        CreatableReplicaAssignment(int(index), replicas)
        for index, replicas in (document.get("replicas_assignments") or {}).items()
    ]
    wanted = CreatableTopic(
        name=name,
        num_partitions=document.get("partitions_count") or _DEFAULT,
        replication_factor=document.get("replication_factor") or _DEFAULT,
        assignments=assignments,
        configs=[CreatableTopicConfig(each["name"], each.get("value")) for each in configs],
    )
    response: CreateTopicsResponse = await request.kafka.ask(
        CreateTopicsRequest([wanted], request.timeout_ms, validate_only=is_dry_run)
    )
    result: CreatableTopicResult = response.topics[0]
    raise_code(result.error_code, result.error_message)
    made = _topic(
        request,
        name,
        is_internal=False,
        replication_factor=max(result.replication_factor, 0),
        partitions_count=max(result.num_partitions, 0),
    )
    if is_dry_run:
        return request.answer(made)
    headers = {"Location": Place(request, "topics", name).url()}
    return request.answer(made, status=201, headers=headers)


async def grow_topic(request: RestRequest) -> web.StreamResponse:
    """Give a topic more partitions."""
    document = await request.document()
    name = request.path["topic_name"]
    count = document["partitions_count"]
    response: CreatePartitionsResponse = await request.kafka.ask(
        CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], request.timeout_ms)
    )
    result = response.results[0]
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise unknown_topic(name)
    raise_code(result.error_code, result.error_message)
    return request.answer(_described(request, await describe_topic(request)))


async def delete_topic(request: RestRequest) -> web.StreamResponse:
    """Delete a topic."""
    name = request.path["topic_name"]
    response: DeleteTopicsResponse = await request.kafka.ask(
        DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=request.timeout_ms)
    )
    result = response.responses[0]
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise unknown_topic(name)
    raise_code(result.error_code, result.error_message)
    return request.done()


def _partition(
    request: RestRequest, topic: str, partition: DescribeTopicPartitionsResponsePartition
) -> dict[str, Any]:
    index = partition.partition_index
    place = Place(request, "topics", topic, "partitions", index)
    leader = partition.leader_id
    return place.describe(
        "KafkaPartition",
        topic_name=topic,
        partition_id=index,
        leader=None if leader < 0 else place.link("replicas", leader),
        replicas=place.link("replicas"),
        reassignment=place.link("reassignment"),
    )


async def list_partitions(request: RestRequest) -> web.StreamResponse:
    """List the partitions of a topic."""
    topic = await describe_topic(request)
    name = topic.name or ""
    partitions = (_partition(request, name, partition) for partition in topic.partitions)
    place = Place(request, "topics", name, "partitions")
    return await place.list("KafkaPartitionList", partitions)


async def get_partition(request: RestRequest) -> web.StreamResponse:
    """Describe a partition."""
    topic, partition = await describe_partition(request)
    return request.answer(_partition(request, topic.name or "", partition))


async def get_offsets(request: RestRequest) -> web.StreamResponse:
    """Tell where a partition begins and ends, as a consumer sees it."""
    topic, partition = await describe_partition(request)
    name, index = topic.name or "", partition.partition_index
    place = Place(request, "topics", name, "partitions", index, "offset")
    return request.answer(
        place.describe(
            "KafkaPartitionOffsets",
            topic_name=name,
            partition_id=index,
            earliest_offset=await find_offset(request, name, index, EARLIEST),
            latest_offset=await find_offset(request, name, index, LATEST),
        )
    )


def _replica(
    request: RestRequest,
    topic: str,
    partition: DescribeTopicPartitionsResponsePartition,
    broker_id: int,
) -> dict[str, Any]:
    index = partition.partition_index
    place = Place(request, "topics", topic, "partitions", index, "replicas", broker_id)
    return place.describe(
        "KafkaReplica",
        topic_name=topic,
        partition_id=index,
        broker_id=broker_id,
        is_leader=partition.leader_id == broker_id,
        is_in_sync=broker_id in partition.isr_nodes,
        broker=Place(request).link("brokers", broker_id),
    )


async def list_replicas(request: RestRequest) -> web.StreamResponse:
    """List the replicas of a partition, the preferred one first."""
    topic, partition = await describe_partition(request)
    name = topic.name or ""
    place = Place(request, "topics", name, "partitions", partition.partition_index, "replicas")
    replicas = [_replica(request, name, partition, each) for each in partition.replica_nodes]
    return await place.list("KafkaReplicaList", replicas)


async def get_replica(request: RestRequest) -> web.StreamResponse:
    """Describe a replica."""
    topic, partition = await describe_partition(request)
    broker_id = request.path["broker_id"]
    if broker_id not in partition.replica_nodes:
        message = f"there is no replica on broker {broker_id}"
        raise ProblemError(404, message, code=UNKNOWN_PARTITION)
    return request.answer(_replica(request, topic.name or "", partition, broker_id))


async def list_replicas_of_broker(request: RestRequest) -> web.StreamResponse:
    """List the replicas that a broker has."""
    broker_id = request.path["broker_id"]
    if broker_id not in request.broker.image.brokers:
        raise ProblemError(404, f"there is no broker {broker_id}")
    replicas = (
        _replica(request, topic.name or "", partition, broker_id)
        for topic in await describe_topics(request)
        for partition in topic.partitions
        if broker_id in partition.replica_nodes
    )
    place = Place(request, "brokers", broker_id, "partition-replicas")
    return await place.list("KafkaReplicaList", replicas)


_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1, "maximum": INT32_MAX}
_NEW_TOPIC: Schema = object_of(
    {"topic_name": TEXT},
    {
        "partitions_count": _COUNT,
        "replication_factor": {"type": ["integer", "null"], "minimum": 1, "maximum": 32767},
        "replicas_assignments": {
            "type": ["object", "null"],
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": array_of(ID),
        },
        "configs": {
            "type": ["array", "null"],
            "items": object_of({"name": TEXT}, {"value": TEXT_OR_NULL}),
        },
        "validate_only": {"type": ["boolean", "null"]},
    },
)
_GROWTH: Schema = object_of({"partitions_count": {**ID, "minimum": 1}})

OPERATIONS = (
    Operation(
        "listTopics",
        "GET",
        _TOPICS,
        "List the topics.",
        list_topics,
        {200: Answer("The topics.", list_of("KafkaTopicList", TOPIC))},
    ),
    Operation(
        "createTopic",
        "POST",
        _TOPICS,
        "Make a topic.",
        create_topic,
        {
            201: Answer("The topic is there.", TOPIC),
            200: Answer("With validate_only: it could be made.", TOPIC),
        },
        body=Body({JSON: _NEW_TOPIC}, example={"topic_name": "orders", "partitions_count": 3}),
    ),
    Operation(
        "getTopic",
        "GET",
        _TOPIC,
        "Describe a topic.",
        get_topic,
        {200: Answer("The topic.", TOPIC)},
    ),
    Operation(
        "growTopic",
        "PATCH",
        _TOPIC,
        "Give a topic more partitions.",
        grow_topic,
        {200: Answer("The topic.", TOPIC)},
        body=Body({JSON: _GROWTH}),
    ),
    Operation(
        "deleteTopic",
        "DELETE",
        _TOPIC,
        "Delete a topic and its records.",
        delete_topic,
        {204: Answer("It is deleted.")},
    ),
    Operation(
        "listPartitions",
        "GET",
        f"{_TOPIC}/partitions",
        "List the partitions of a topic.",
        list_partitions,
        {200: Answer("The partitions.", list_of("KafkaPartitionList", PARTITION))},
    ),
    Operation(
        "getPartition",
        "GET",
        _PARTITION,
        "Describe a partition.",
        get_partition,
        {200: Answer("The partition.", PARTITION)},
    ),
    Operation(
        "getPartitionOffsets",
        "GET",
        f"{_PARTITION}/offset",
        "Tell where a partition begins and ends.",
        get_offsets,
        {200: Answer("Its offsets.", PARTITION_OFFSETS)},
    ),
    Operation(
        "listReplicas",
        "GET",
        f"{_PARTITION}/replicas",
        "List the replicas of a partition.",
        list_replicas,
        {200: Answer("The replicas.", list_of("KafkaReplicaList", REPLICA))},
    ),
    Operation(
        "getReplica",
        "GET",
        f"{_PARTITION}/replicas/{{broker_id}}",
        "Describe a replica.",
        get_replica,
        {200: Answer("The replica.", REPLICA)},
    ),
    Operation(
        "listReplicasOfBroker",
        "GET",
        "/v3/clusters/{cluster_id}/brokers/{broker_id}/partition-replicas",
        "List the replicas that a broker has.",
        list_replicas_of_broker,
        {200: Answer("The replicas.", list_of("KafkaReplicaList", REPLICA))},
    ),
)
