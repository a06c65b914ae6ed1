"""DescribeConfigs (key 32), versions 1-4.

Behaviour: for a topic, a broker or a group (which need not exist) every known config, or those
asked for, with value, source, synonyms, type and meaning. Sensitive values are null. The values of
a broker are those of the one that answers, so asking for another broker's id is refused with
INVALID_REQUEST (clients send that question to the broker itself). An empty broker name means what
is set for all brokers at once, and nothing else is told. Configs of brokers that are not dynamic
are told as read-only, rates of throttles where somebody has set them only. A resource of type
BROKER_LOGGER is a broker; its configs are the levels of that process's loggers.
`inter.broker.protocol.version` is made up: tools read a Kafka release from it.
Beyond 5,000 configs others are served meanwhile.
Versions:  1 synonyms and source · 3 type and documentation · 4 flexible.
Missing:   client metrics as resources: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation
from fairlead_broker.handlers.configs.config_access import require_configs
from fairlead_broker.handlers.in_turns import in_turns
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_broker.session.log_levels import read_levels
from fairlead_model.configs.config_values import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigKey,
    ConfigSource,
    ConfigType,
    DescribedConfig,
    describe_broker_config,
    describe_cluster_wide_config,
    describe_topic_config,
)
from fairlead_model.configs.group_configs import GROUP_CONFIGS, describe_group_config
from fairlead_model.configs.security_configs import LISTENER_PREFIX
from fairlead_model.ids import topic_name_problem
from fairlead_model.session.calls import ResourceType
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.broker import Broker
    from fairlead_model.configs.config_values import BrokerValues

_RESOURCES_PER_STEP: Final = 10
_THROTTLES: Final = frozenset(
    (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
"""Told where they are set only, as in Kafka: tools take them for throttles that somebody set."""
PROTOCOL_VERSION_CONFIG = "inter.broker.protocol.version"
PROTOCOL_VERSION = "3.9-IV0"
"""Kafka UI takes a broker without this for Kafka 1.0 and falls back to AlterConfigs."""

_TABLES: Final[Mapping[int, Mapping[str, ConfigKey]]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
}


@handles(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), access=Access.BY_RESOURCE)
def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse | Pending:
    """Answer every resource on its own."""
    if len(request.resources) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DescribeConfigs names {len(request.resources)} resources")
    asked = list(_once(request.resources, context.broker))
    count = sum(len(each.configuration_keys or TOPIC_CONFIGS) for each in asked)
    response = DescribeConfigsResponse()
    return in_turns(context, _steps(asked, request, context, response), count, lambda: response)


def _steps(
    asked: list[DescribeConfigsResource],
    request: DescribeConfigsRequest,
    context: RequestContext,
    response: DescribeConfigsResponse,
) -> Iterator[None]:
    known = _Known()
    for number, resource in enumerate(asked, start=1):
        response.results.append(_result_of(resource, request, context, known))
        if number % _RESOURCES_PER_STEP == 0:
            yield


def _result_of(
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    context: RequestContext,
    known: _Known,
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    result = DescribeConfigsResult(resource_type=kind, resource_name=name)
    try:
        require_configs(context, Operation.DESCRIBE_CONFIGS, kind, name)
        result.configs = _describe(resource, request, context.broker, known)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _once(
    resources: list[DescribeConfigsResource], broker: Broker
) -> Iterable[DescribeConfigsResource]:
    """Without repetition: a small request for a large resource must not make a huge reply.

    A resource that is named twice is in the answer once, with all requested configs that exist.
    """
    merged: dict[tuple[int, str], DescribeConfigsResource] = {}
    # Once for each kind: thousands of resources may be named.
    names_of = {kind: _names(kind, broker) for kind in {each.resource_type for each in resources}}
    for each in resources:
        names = names_of[each.resource_type]
        keys = each.configuration_keys
        wanted = [key for key in keys if key in names] if keys and names else keys
        if keys and not wanted:
            wanted = [""]  # No config: an empty list of keys would mean every config.
        identity = (each.resource_type, each.resource_name)
        before = merged.get(identity)
        if before is None:
            merged[identity] = DescribeConfigsResource(*identity, wanted)
        elif before.configuration_keys and wanted:
            before.configuration_keys += wanted
        else:
            before.configuration_keys = None
    return merged.values()


def _names(kind: int, broker: Broker) -> Collection[str]:
    """Return the configs that resources of a kind have; none for kinds whose names are not kept."""
    names = _TABLES.get(kind, {})
    if kind == ResourceType.BROKER:
        return {*names, *_listener_names(broker.running_values()), PROTOCOL_VERSION_CONFIG}
    return names


def _listener_names(values: BrokerValues) -> list[str]:
    return [name for name in values.static if name.startswith(LISTENER_PREFIX)]


class _Known:
    """The resources and configs that the request has already covered.

    Thousands of topics mostly have few different sets of configs; and if all sets differ, most
    configs in them do not.
    """

    def __init__(self) -> None:
        self.resources: dict[Hashable, list[DescribeConfigsResourceResult]] = {}
        self.configs: dict[tuple[int, str, str | None], DescribeConfigsResourceResult] = {}


def _describe(
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    broker: Broker,
    known: _Known,
) -> list[DescribeConfigsResourceResult]:
    """Return the configs of one resource."""
    kind, name = resource.resource_type, resource.resource_name
    overrides: Mapping[str, str] = {}
    if kind == ResourceType.TOPIC:
        overrides = _overrides(name, broker)
    elif kind == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "name a group: there is no default one")
        overrides = broker.image.group_configs.get(name, {})
    elif kind not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"configs of resource type {kind} are not kept here"
        )
    elif name != str(broker.node_id) and (name or kind != ResourceType.BROKER):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.node_id}: ask broker {name!r} for its configs",
        )
    keys = resource.configuration_keys
    wanted = frozenset(keys) if keys else None
    if kind == ResourceType.BROKER_LOGGER:
        return [_level(*each) for each in read_levels().items() if not wanted or each[0] in wanted]
    if kind == ResourceType.BROKER and not name:
        values = broker.running_values()
        return [
            _result(describe_cluster_wide_config(each, values), request)
            for each in sorted(values.cluster_wide)
            if not wanted or each in wanted
        ]
    identity = (kind, frozenset(overrides.items()), wanted)
    results = known.resources.get(identity)
    if results is None:
        results = known.resources[identity] = []
        values = broker.running_values()
        for each in _config_names(kind, wanted, values):
            of_config = kind, each, overrides.get(each)
            result = known.configs.get(of_config)
            if result is None:
                result = _result(_config(kind, each, overrides, values), request)
                known.configs[of_config] = result
            if each not in _THROTTLES or result.config_source != ConfigSource.DEFAULT:
                results.append(result)
        if kind == ResourceType.BROKER and (wanted is None or PROTOCOL_VERSION_CONFIG in wanted):
            results.append(_protocol_version())
    return results


def _overrides(topic_name: str, broker: Broker) -> Mapping[str, str]:
    problem = topic_name_problem(topic_name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = broker.image.topic(topic_name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic_name!r}")
    return topic.configs


def _config_names(kind: int, wanted: frozenset[str] | None, values: BrokerValues) -> Iterator[str]:
    names = list(_TABLES[kind])
    if kind == ResourceType.BROKER:
        names += _listener_names(values)
    return (name for name in names if wanted is None or name in wanted)


def _config(
    kind: int, name: str, overrides: Mapping[str, str], values: BrokerValues
) -> DescribedConfig:
    """Describe one config; of the resource's own configs only the one of this name matters."""
    if kind == ResourceType.TOPIC:
        return describe_topic_config(name, overrides, values)
    if kind == ResourceType.GROUP:
        return describe_group_config(name, overrides, values)
    return describe_broker_config(name, values)


def _result(
    config: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    key = config.key
    synonyms = [
        DescribeConfigsSynonym(
            name=place.name,
            value=None if key.is_sensitive else place.value,
            source=place.source,
        )
        for place in (config.synonyms if request.include_synonyms else ())
    ]
    return DescribeConfigsResourceResult(
        name=key.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=config.source,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        config_type=key.type,
        documentation=key.doc if request.include_documentation else None,
    )


def _level(logger: str, level: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=logger,
        value=level,
        read_only=False,
        config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
        config_type=ConfigType.STRING,
        documentation=None,
    )


def _protocol_version() -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=PROTOCOL_VERSION_CONFIG,
        value=PROTOCOL_VERSION,
        read_only=True,
        config_source=ConfigSource.DEFAULT,
        config_type=ConfigType.STRING,
        documentation=None,
    )
