"""IncrementalAlterConfigs (key 44), versions 0-1.

Behaviour: SET, DELETE, APPEND and SUBTRACT single overrides of a topic; the rest stays. Each
resource succeeds or fails on its own; `validate_only` changes nothing. Broker resources are
refused with INVALID_REQUEST and a sentence that says what to do instead.
Versions:  1 flexible.
Missing:   brokers as resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.config_alteration import alter, resource_to_alter
from fairlead_broker.handlers.registry import handles
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_model.calls import ConfigAlteration
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import Pending, RequestContext


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1))
def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Pending:
    """Forward topics to the controller."""
    if len(request.resources) > TOPICS_PER_REQUEST_MAX:
        count = len(request.resources)
        raise RemoteProtocolError(f"IncrementalAlterConfigs names {count} resources")
    return context.later(_alter(request, context.broker))


async def _alter(
    request: IncrementalAlterConfigsRequest, broker: Broker
) -> IncrementalAlterConfigsResponse:
    resources = [
        resource_to_alter(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigAlteration(
                    name=config.name, operation=config.config_operation, value=config.value
                )
                for config in resource.configs
            ],
        )
        for resource in request.resources
    ]
    outcomes = await alter(broker, resources, incremental=True, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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
