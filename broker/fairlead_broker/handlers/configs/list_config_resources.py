"""ListConfigResources (key 74), versions 0-1.

Behaviour: which resources have configs: all topics and brokers, the brokers once more as those that
have loggers, and the groups that have overrides of their own, so that a tool can describe them; of
the types that are asked for, or all. Client metrics is a type without resources. A type that Kafka
does not have is UNSUPPORTED_VERSION.
Versions:  0 client metrics alone · 1 types.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_model.session.calls import ResourceType
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.api_registry import RequestContext
    from fairlead_model.cluster import ClusterImage

_CLIENT_METRICS: Final = 16
_KNOWN_TYPES: Final = frozenset({*ResourceType, _CLIENT_METRICS})


@handles(
    ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 1), access=needs_cluster(Operation.DESCRIBE_CONFIGS)
)
def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of each type that is asked for."""
    if context.version == 0:
        return ListConfigResourcesResponse()
    types = frozenset(request.resource_types) or _KNOWN_TYPES
    if not types <= _KNOWN_TYPES:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in ResourceType
            if kind in types
            for name in _names(kind, context.broker.image)
        ]
    )


def _names(kind: ResourceType, image: ClusterImage) -> Iterable[str]:
    match kind:
        case ResourceType.TOPIC:
            return sorted(image.names)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case ResourceType.GROUP:
            return sorted(image.group_configs)
