"""IncrementalAlterConfigs (key 44), versions 0-1.

Behaviour: SET, DELETE, APPEND and SUBTRACT single overrides of a topic or a group; the rest
stays. A group need not exist; its values have to stand within this broker's settings
(`group.consumer.min.…`, `group.consumer.max.…`): INVALID_CONFIG. Each resource succeeds or fails on
its own; `validate_only` changes nothing. Dynamic configs of one broker, or of all (the empty name),
hold without a restart; others are refused with INVALID_REQUEST and a sentence that says what to do.
An unknown name or a value that does not fit is INVALID_CONFIG. Levels of a broker's loggers
(resource type BROKER_LOGGER, KIP-412) are for that broker itself, and last until its process ends.
Versions:  1 flexible.
Missing:   configs of brokers that Kafka alters while they run and docs/settings.md does not: those
           of listeners, and the numbers of threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation
from fairlead_broker.handlers.configs.config_access import require_configs
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_broker.session.config_alteration import alter, resource_to_alter
from fairlead_model.session.calls import ConfigAlteration
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), access=Access.BY_RESOURCE)
def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Pending:
    """Forward topics and groups to the controller."""
    if len(request.resources) > TOPICS_PER_REQUEST_MAX:
        count = len(request.resources)
        raise RemoteProtocolError(f"IncrementalAlterConfigs names {count} resources")
    return context.later(_alter(request, context))


async def _alter(
    request: IncrementalAlterConfigsRequest, context: RequestContext
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
    outcomes = await alter(
        context.broker,
        resources,
        require=partial(require_configs, context, Operation.ALTER_CONFIGS),
        incremental=True,
        validate_only=request.validate_only,
    )
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
