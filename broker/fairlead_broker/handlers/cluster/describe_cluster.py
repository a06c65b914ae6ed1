"""DescribeCluster (key 60), versions 0-2.

Behaviour: the cluster id and the brokers that are alive, with the addresses of the listener the
request came in on. Asked for controllers (1), it answers MISMATCHED_ENDPOINT_TYPE, as any Kafka
broker does. Registered brokers that are out of service are listed if the request asks for them.
Versions:  0 flexible from the start · 1 endpoint_type · 2 brokers that are fenced.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import CLUSTER_NAME, Access, Operation, ResourceType
from fairlead_broker.handlers.topics.metadata import (
    endpoints_of,
    live_endpoints,
    stand_in_controller,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

BROKERS = 1
CONTROLLERS = 2


@handles(ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), access=Access.EVERYBODY)
def describe_cluster(
    request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """Answer from the image."""
    image = context.broker.image
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if is_known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this listener is a broker's",
            endpoint_type=request.endpoint_type,
            cluster_id=image.cluster_id,
        )
    endpoints = live_endpoints(image, context.listener)
    told = endpoints
    if request.include_fenced_brokers:
        told = endpoints_of(image, context.listener, image.brokers)
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=stand_in_controller(endpoints, context.broker.node_id),
        brokers=[
            DescribeClusterBroker(
                broker_id, host, port, image.brokers[broker_id].rack, broker_id not in endpoints
            )
            for broker_id, (host, port) in sorted(told.items())
        ],
    )
    if request.include_cluster_authorized_operations:
        may_know = context.would_allow_cluster(Operation.DESCRIBE)
        response.cluster_authorized_operations = (
            context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME) if may_know else 0
        )
    return response
