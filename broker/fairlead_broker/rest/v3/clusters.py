"""`/v3/clusters` and its brokers, read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.rest.documents.schemas import ID, TEXT, TEXT_OR_NULL
from fairlead_broker.rest.operations import Answer, Operation
from fairlead_broker.rest.problems import ProblemError, raise_code
from fairlead_broker.rest.v3.resources import LINK, LINK_OR_NULL, Place, list_of, resource
from fairlead_wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.request import RestRequest

CLUSTER = resource(
    "KafkaCluster",
    {
        "controller": LINK_OR_NULL,
        **dict.fromkeys(
            (
                "acls",
                "brokers",
                "broker_configs",
                "consumer_groups",
                "topics",
                "partition_reassignments",
            ),
            LINK,
        ),
    },
)
BROKER = resource(
    "KafkaBroker",
    {
        "broker_id": ID,
        "host": TEXT,
        "port": ID,
        "rack": TEXT_OR_NULL,
        "configs": LINK,
        "partition_replicas": LINK,
    },
)


async def _describe_cluster(request: RestRequest) -> DescribeClusterResponse:
    response: DescribeClusterResponse = await request.kafka.ask(DescribeClusterRequest())
    raise_code(response.error_code, response.error_message)
    return response


async def _cluster(request: RestRequest) -> dict[str, Any]:
    described = await _describe_cluster(request)
    place = Place(request)
    controller = described.controller_id
    return place.describe(
        "KafkaCluster",
        controller=None if controller < 0 else place.link("brokers", controller),
        acls=place.link("acls"),
        brokers=place.link("brokers"),
        broker_configs=place.link("broker-configs"),
        consumer_groups=place.link("consumer-groups"),
        topics=place.link("topics"),
        partition_reassignments=place.link("topics", "-", "partitions", "-", "reassignment"),
    )


async def list_clusters(request: RestRequest) -> web.StreamResponse:
    """List this cluster, the only one that a broker knows."""
    metadata = {"self": f"{request.base_url}/v3/clusters", "next": None}
    clusters = [await _cluster(request)]
    return request.answer({"kind": "KafkaClusterList", "metadata": metadata, "data": clusters})


async def get_cluster(request: RestRequest) -> web.StreamResponse:
    """Describe this cluster."""
    return request.answer(await _cluster(request))


def _broker(request: RestRequest, broker: DescribeClusterBroker) -> dict[str, Any]:
    place = Place(request, "brokers", broker.broker_id)
    return place.describe(
        "KafkaBroker",
        broker_id=broker.broker_id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        configs=place.link("configs"),
        partition_replicas=place.link("partition-replicas"),
    )


async def list_brokers(request: RestRequest) -> web.StreamResponse:
    """List the brokers that are alive."""
    described = await _describe_cluster(request)
    brokers = [_broker(request, broker) for broker in described.brokers]
    return await Place(request, "brokers").list("KafkaBrokerList", brokers)


async def get_broker(request: RestRequest) -> web.StreamResponse:
    """Describe one broker."""
    described = await _describe_cluster(request)
    for broker in described.brokers:
        if broker.broker_id == request.path["broker_id"]:
            return request.answer(_broker(request, broker))
    raise ProblemError(404, f"there is no broker {request.path['broker_id']}")


OPERATIONS = (
    Operation(
        "listClusters",
        "GET",
        "/v3/clusters",
        "List the cluster of this broker.",
        list_clusters,
        {200: Answer("The only cluster.", list_of("KafkaClusterList", CLUSTER))},
    ),
    Operation(
        "getCluster",
        "GET",
        "/v3/clusters/{cluster_id}",
        "Describe the cluster.",
        get_cluster,
        {200: Answer("The cluster.", CLUSTER)},
    ),
    Operation(
        "listBrokers",
        "GET",
        "/v3/clusters/{cluster_id}/brokers",
        "List the brokers that are alive.",
        list_brokers,
        {200: Answer("The brokers.", list_of("KafkaBrokerList", BROKER))},
    ),
    Operation(
        "getBroker",
        "GET",
        "/v3/clusters/{cluster_id}/brokers/{broker_id}",
        "Describe a broker.",
        get_broker,
        {200: Answer("The broker.", BROKER)},
    ),
)
