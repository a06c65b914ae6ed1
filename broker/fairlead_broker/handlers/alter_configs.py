"""AlterConfigs (key 33), versions 0-2.

Behaviour: replaces the whole set of a topic's overrides: what is not named goes back to its
default. Each resource succeeds or fails on its own; `validate_only` changes nothing. Broker
resources are refused with INVALID_REQUEST and a sentence that says what to do instead.
Versions:  2 flexible.
Missing:   brokers as resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.config_alteration import alter, resource_to_alter
from fairlead_broker.handlers.registry import handles
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_model.calls import AlterOperation, ConfigAlteration
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import Pending, RequestContext


@handles(ApiKey.ALTER_CONFIGS, versions=(0, 2))
def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> Pending:
    """Forward topics to the controller."""
    if len(request.resources) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"AlterConfigs names {len(request.resources)} resources")
    return context.later(_alter(request, context.broker))


async def _alter(request: AlterConfigsRequest, broker: Broker) -> AlterConfigsResponse:
    resources = [
        resource_to_alter(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigAlteration(name=config.name, operation=AlterOperation.SET, value=config.value)
                for config in resource.configs
            ],
        )
        for resource in request.resources
    ]
    outcomes = await alter(
        broker, resources, incremental=False, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=outcome.resource_type,
                resource_name=outcome.name,
            )
            for outcome in outcomes
        ]
    )
