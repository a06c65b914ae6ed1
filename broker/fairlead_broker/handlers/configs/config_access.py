"""The rights that are needed to read or alter configs: of a topic, a group, or the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.authorization import CLUSTER_NAME, ResourceType
from fairlead_model.session.calls import ResourceType as ConfigResourceType

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.authorization import Operation


def require_configs(
    context: RequestContext, operation: Operation, resource_type: int, name: str
) -> None:
    """Raise the KafkaError of a slot whose configs are denied to the client."""
    if resource_type == ConfigResourceType.TOPIC:
        context.require(operation, ResourceType.TOPIC, name)
    elif resource_type == ConfigResourceType.GROUP:
        context.require(operation, ResourceType.GROUP, name)
    else:
        context.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)
