"""AlterConfigs (key 33), versions 0-2.

Behaviour: replaces all configs of a topic or a group: a config that is not named goes back to its
default. Each resource succeeds or fails on its own; `validate_only` changes nothing. Of brokers
only dynamic configs may be altered; others are refused with INVALID_REQUEST and a sentence that
says what to do instead.
Versions:  2 flexible.
Missing:   configs of brokers that are dynamic in Kafka but not in docs/settings.md: those of
           listeners, and the numbers of threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation
from fairlead_broker.handlers.configs.config_access import require_configs
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_broker.session.config_alteration import alter, resource_to_alter
from fairlead_model.session.calls import AlterOperation, ConfigAlteration
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


@handles(ApiKey.ALTER_CONFIGS, versions=(0, 2), access=Access.BY_RESOURCE)
def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> Pending:
    """Forward topics and groups to the controller."""
    if len(request.resources) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"AlterConfigs names {len(request.resources)} resources")
    return context.later(_alter(request, context))


async def _alter(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
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
        context.broker,
        resources,
        require=partial(require_configs, context, Operation.ALTER_CONFIGS),
        incremental=False,
        validate_only=request.validate_only,
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
