"""What AlterConfigs and IncrementalAlterConfigs have in common: refuse, forward, collect.

Topics go to the controller. Broker resources are refused in this release: a broker reads its
settings when it starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.controller_calls import ask_in_parts, repeated, repetition_error, slot_error
from fairlead_broker.limits import ADMIN_TIMEOUT_MS
from fairlead_model.calls import (
    AlterableResource,
    AlterConfigsCall,
    ConfigAlteration,
    Method,
    ResourceType,
)
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.broker import Broker


class AlterationOutcome(NamedTuple):
    """One slot of either reply."""

    resource_type: int
    name: str
    code: ErrorCode
    message: str | None


def resource_to_alter(
    resource_type: int, name: str, alterations: list[ConfigAlteration]
) -> AlterableResource:
    """One resource of the call."""
    return AlterableResource(resource_type=resource_type, name=name, alterations=alterations)


async def alter(
    broker: Broker,
    resources: Sequence[AlterableResource],
    *,
    incremental: bool,
    validate_only: bool,
) -> list[AlterationOutcome]:
    """Alter each resource on its own; one outcome each, in the order of the request."""
    duplicates = repeated(_identity(resource) for resource in resources)
    outcomes: dict[tuple[int, str], AlterationOutcome] = {}
    forwarded = []
    for resource in resources:
        refusal = _refusal(resource, is_duplicate=_identity(resource) in duplicates)
        if refusal is None:
            forwarded.append(resource)
        else:
            outcomes[_identity(resource)] = _failed(resource, refusal)
    if forwarded:
        call = AlterConfigsCall(
            resources=forwarded, validate_only=validate_only, incremental=incremental
        )
        reply = await ask_in_parts(
            broker, Method.ALTER_CONFIGS, call, "resources", timeout_ms=ADMIN_TIMEOUT_MS
        )
        for altered in reply.answers:
            code, message = slot_error(altered)
            identity = (altered["resource_type"], altered["name"])
            outcomes[identity] = AlterationOutcome(*identity, code, message)
        if reply.error is not None:
            for resource in reply.unanswered:
                outcomes[_identity(resource)] = _failed(resource, reply.error)
    return [outcomes[identity] for identity in dict.fromkeys(map(_identity, resources))]


def _refusal(resource: AlterableResource, *, is_duplicate: bool) -> KafkaError | None:
    if is_duplicate:
        return repetition_error(f"resource {resource['name']!r}")
    if resource["resource_type"] == ResourceType.BROKER:
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            "configs of brokers cannot be altered while they run: change server.properties "
            "(or --set) and restart the broker",
        )
    if resource["resource_type"] != ResourceType.TOPIC:
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"configs of resource type {resource['resource_type']} are not kept here",
        )
    return None


def _failed(resource: AlterableResource, error: KafkaError) -> AlterationOutcome:
    return AlterationOutcome(*_identity(resource), error.code, error.message)


def _identity(resource: AlterableResource) -> tuple[int, str]:
    return resource["resource_type"], resource["name"]
