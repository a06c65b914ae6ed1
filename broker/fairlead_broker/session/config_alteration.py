"""What AlterConfigs and IncrementalAlterConfigs have in common: refuse, forward, collect.

All changes go to the controller except the levels of loggers, which belong to this process. Only
dynamic configs of brokers can be altered, because brokers read other settings when they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.directory_path import absolute_directories
from fairlead_broker.limits import ADMIN_TIMEOUT_MS
from fairlead_broker.session.controller_calls import (
    ask_in_parts,
    repeated,
    repetition_error,
    slot_error,
)
from fairlead_broker.session.log_levels import alter_levels
from fairlead_model.cluster import CLUSTER_WIDE
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.config_values import (
    StaticConfigError,
    is_broker_config,
    validate_broker_config,
)
from fairlead_model.configs.cordoned_directories import (
    CORDONED_LOG_DIRS,
    EVERY_DIRECTORY,
    cordon_entries,
    cordon_problem,
)
from fairlead_model.configs.group_configs import limits_of
from fairlead_model.session.calls import (
    AlterableResource,
    AlterConfigsCall,
    AlterOperation,
    ConfigAlteration,
    Method,
    ResourceType,
)
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead_broker.session.registered_broker import RegisteredBroker


class AlterationOutcome(NamedTuple):
    """One slot of either reply."""

    resource_type: int
    name: str
    code: ErrorCode
    message: str | None


def resource_to_alter(
    resource_type: int, name: str, alterations: list[ConfigAlteration]
) -> AlterableResource:
    """Return one resource of the call."""
    return AlterableResource(resource_type=resource_type, name=name, alterations=alterations)


async def alter(
    broker: RegisteredBroker,
    resources: Sequence[AlterableResource],
    *,
    require: Callable[[int, str], None],
    incremental: bool,
    validate_only: bool,
) -> list[AlterationOutcome]:
    """Alter each resource on its own; one outcome each, in the order of the request.

    A resource that is named twice is refused, by IncrementalAlterConfigs with an outcome for each
    time. `require` raises the KafkaError of a resource that the client may not alter.
    """
    duplicates = repeated(_identity(resource) for resource in resources)
    outcomes: dict[tuple[int, str], AlterationOutcome] = {}
    forwarded = []
    for resource in resources:
        refusal = _refusal(resource, require, is_duplicate=_identity(resource) in duplicates)
        if refusal is None and resource["resource_type"] == ResourceType.BROKER:
            refusal = _static_config(resource) or _cordon_refusal(broker, resource)
        if refusal is not None:
            outcomes[_identity(resource)] = _failed(resource, refusal)
        elif resource["resource_type"] == ResourceType.BROKER_LOGGER:
            outcomes[_identity(resource)] = _alter_loggers(
                broker, resource, incremental=incremental, validate_only=validate_only
            )
        else:
            forwarded.append(resource)
    if forwarded:
        call = AlterConfigsCall(
            resources=forwarded, validate_only=validate_only, incremental=incremental
        )
        if any(resource["resource_type"] == ResourceType.GROUP for resource in forwarded):
            call["group_limits"] = limits_of(broker.settings.values)
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
    identities = map(_identity, resources)
    return [outcomes[each] for each in (identities if incremental else dict.fromkeys(identities))]


def _refusal(
    resource: AlterableResource, require: Callable[[int, str], None], *, is_duplicate: bool
) -> KafkaError | None:
    try:
        require(*_identity(resource))
    except KafkaError as error:
        return error
    if is_duplicate:
        return repetition_error(f"resource {resource['name']!r}")
    if resource["resource_type"] not in set(ResourceType):
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"configs of resource type {resource['resource_type']} are not kept here",
        )
    return None


def _static_config(resource: AlterableResource) -> KafkaError | None:
    """Return why a broker's configs cannot be altered while it runs; None if they can.

    The controller reports other errors in a value.
    """
    for alteration in resource["alterations"]:
        is_set = alteration["operation"] != AlterOperation.DELETE
        if not is_set or not is_broker_config(alteration["name"]):
            continue
        try:
            validate_broker_config(alteration["name"], alteration["value"] or "", is_dynamic=True)
        except StaticConfigError as error:
            return KafkaError(ErrorCode.INVALID_REQUEST, error.message)
        except ConfigError:
            continue
    return None


def _cordon_refusal(broker: RegisteredBroker, resource: AlterableResource) -> KafkaError | None:
    """Return why log directories of a broker cannot be cordoned; None if they can.

    Only the broker itself knows what it has. Others let them be uncordoned, and the whole broker
    be cordoned.
    """
    for alteration in resource["alterations"]:
        adds = alteration["operation"] in (AlterOperation.SET, AlterOperation.APPEND)
        if alteration["name"] != CORDONED_LOG_DIRS or not adds:
            continue
        text = alteration["value"] or ""
        if resource["name"] == str(broker.node_id):
            directories = broker.settings.log_directories
            problem = cordon_problem(absolute_directories(text), directories)
        elif resource["name"] != CLUSTER_WIDE and not {*cordon_entries(text)} <= {EVERY_DIRECTORY}:
            problem = (
                f"Unexpected broker id, expected {broker.node_id}, but received "
                f"{resource['name']!r}: only that broker knows its log.dirs"
            )
        else:
            continue
        if problem is not None:
            return KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return None


def _alter_loggers(
    broker: RegisteredBroker,
    resource: AlterableResource,
    *,
    incremental: bool,
    validate_only: bool,
) -> AlterationOutcome:
    try:
        if not incremental:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "AlterConfigs does not support the resource type BROKER_LOGGER",
            )
        if resource["name"] != str(broker.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.node_id}, but received "
                f"{resource['name']!r}",
            )
        for name in repeated(alteration["name"] for alteration in resource["alterations"]):
            raise repetition_error(f"logger {name!r}")
        alter_levels(resource["alterations"], validate_only=validate_only)
    except KafkaError as error:
        return _failed(resource, error)
    return AlterationOutcome(*_identity(resource), ErrorCode.NONE, None)


def _failed(resource: AlterableResource, error: KafkaError) -> AlterationOutcome:
    return AlterationOutcome(*_identity(resource), error.code, error.message)


def _identity(resource: AlterableResource) -> tuple[int, str]:
    return resource["resource_type"], resource["name"]
