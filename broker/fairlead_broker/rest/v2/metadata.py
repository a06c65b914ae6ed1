"""v2's topics, partitions and brokers, read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.rest.documents.schemas import FLAG, ID, INT, OFFSET, TEXT, array_of, object_of
from fairlead_broker.rest.offset_lookup import EARLIEST, LATEST
from fairlead_broker.rest.operations import V2_ANSWERS, Answer, Operation
from fairlead_broker.rest.problems import raise_code
from fairlead_broker.rest.topic_reading import (
    describe_partition,
    describe_topic,
    describe_topics,
    find_offset,
)
from fairlead_model.session.calls import ResourceType as ConfigResourceType
from fairlead_wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.request import RestRequest
    from fairlead_wire.messages.describe_topic_partitions import (
        DescribeTopicPartitionsResponsePartition,
    )


async def list_topics(request: RestRequest) -> web.StreamResponse:
    """List the names of the topics."""
    return request.answer([topic.name for topic in await describe_topics(request)])


def _partition(partition: DescribeTopicPartitionsResponsePartition) -> dict[str, Any]:
    return {
        "partition": partition.partition_index,
        "leader": partition.leader_id,
        "replicas": [
            {
                "broker": broker_id,
                "leader": broker_id == partition.leader_id,
                "in_sync": broker_id in partition.isr_nodes,
            }
            for broker_id in partition.replica_nodes
        ],
    }


async def get_topic(request: RestRequest) -> web.StreamResponse:
    """Describe a topic, its configs and its partitions."""
    topic = await describe_topic(request)
    asked = DescribeConfigsResource(ConfigResourceType.TOPIC, topic.name or "", None)
    response: DescribeConfigsResponse = await request.kafka.ask(DescribeConfigsRequest([asked]))
    described = response.results[0]
    raise_code(described.error_code, described.error_message)
    return request.answer(
        {
            "name": topic.name,
            "configs": {each.name: each.value or "" for each in described.configs},
            "partitions": [_partition(each) for each in topic.partitions],
        }
    )


async def list_partitions(request: RestRequest) -> web.StreamResponse:
    """List the partitions of a topic."""
    topic = await describe_topic(request)
    return request.answer([_partition(each) for each in topic.partitions])


async def get_partition(request: RestRequest) -> web.StreamResponse:
    """Describe a partition."""
    _, partition = await describe_partition(request)
    return request.answer(_partition(partition))


async def get_offsets(request: RestRequest) -> web.StreamResponse:
    """Tell where a partition begins and ends."""
    topic, partition = await describe_partition(request)
    name, index = topic.name or "", partition.partition_index
    return request.answer(
        {
            "beginning_offset": await find_offset(request, name, index, EARLIEST),
            "end_offset": await find_offset(request, name, index, LATEST),
        }
    )


async def list_brokers(request: RestRequest) -> web.StreamResponse:
    """List the ids of the brokers that are alive."""
    response: DescribeClusterResponse = await request.kafka.ask(DescribeClusterRequest())
    raise_code(response.error_code, response.error_message)
    return request.answer({"brokers": [broker.broker_id for broker in response.brokers]})


_PARTITION = object_of(
    {
        "partition": ID,
        "leader": INT,
        "replicas": array_of(object_of({"broker": ID, "leader": FLAG, "in_sync": FLAG})),
    }
)

OPERATIONS = (
    Operation(
        "listTopicsV2",
        "GET",
        "/topics",
        "List the names of the topics.",
        list_topics,
        {200: Answer("The names.", array_of(TEXT), V2_ANSWERS)},
    ),
    Operation(
        "getTopicV2",
        "GET",
        "/topics/{topic_name}",
        "Describe a topic.",
        get_topic,
        {
            200: Answer(
                "The topic.",
                object_of(
                    {
                        "name": TEXT,
                        "configs": {"type": "object", "additionalProperties": TEXT},
                        "partitions": array_of(_PARTITION),
                    }
                ),
                V2_ANSWERS,
            )
        },
    ),
    Operation(
        "listPartitionsV2",
        "GET",
        "/topics/{topic_name}/partitions",
        "List the partitions of a topic.",
        list_partitions,
        {200: Answer("The partitions.", array_of(_PARTITION), V2_ANSWERS)},
    ),
    Operation(
        "getPartitionV2",
        "GET",
        "/topics/{topic_name}/partitions/{partition_id}",
        "Describe a partition.",
        get_partition,
        {200: Answer("The partition.", _PARTITION, V2_ANSWERS)},
    ),
    Operation(
        "getPartitionOffsetsV2",
        "GET",
        "/topics/{topic_name}/partitions/{partition_id}/offsets",
        "Tell where a partition begins and ends.",
        get_offsets,
        {
            200: Answer(
                "Its offsets.",
                object_of({"beginning_offset": OFFSET, "end_offset": OFFSET}),
                V2_ANSWERS,
            )
        },
    ),
    Operation(
        "listBrokersV2",
        "GET",
        "/brokers",
        "List the ids of the brokers that are alive.",
        list_brokers,
        {200: Answer("The ids.", object_of({"brokers": array_of(ID)}), V2_ANSWERS)},
    ),
)
