"""DescribeConfigs (key 32), versions 1-4.

Behaviour: for a topic or a broker every known config, or those asked for, with value, source,
synonyms, type and meaning. Sensitive values are null. The values of a broker are those of the one
that answers, so asking for another broker's id is refused with INVALID_REQUEST (clients send that
question to the broker itself). An empty broker name means the defaults of all brokers, of which
none are set. Configs of brokers are told as read-only: none is altered while a broker runs.
`inter.broker.protocol.version` is made up: tools read a Kafka release from it.
Versions:  1 synonyms and source · 3 type and documentation · 4 flexible.
Missing:   client metrics and groups as resources: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.handlers.registry import handles
from fairlead_broker.limits import TOPICS_PER_REQUEST_MAX
from fairlead_model.calls import ResourceType
from fairlead_model.configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigSource,
    ConfigType,
    DescribedConfig,
    describe_broker_config,
    describe_topic_config,
)
from fairlead_model.ids import topic_name_problem
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
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import RequestContext

PROTOCOL_VERSION_CONFIG = "inter.broker.protocol.version"
PROTOCOL_VERSION = "3.9-IV0"
"""Kafka UI takes a broker without this for Kafka 1.0 and falls back to AlterConfigs."""


@handles(ApiKey.DESCRIBE_CONFIGS, versions=(1, 4))
def describe_configs(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Answer every resource on its own."""
    if len(request.resources) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DescribeConfigs names {len(request.resources)} resources")
    results = []
    known: dict[Hashable, list[DescribeConfigsResourceResult]] = {}
    for resource in _once(request.resources):
        result = DescribeConfigsResult(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_message=None,
        )
        try:
            result.configs = _describe(resource, request, context.broker, known)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _once(resources: list[DescribeConfigsResource]) -> Iterable[DescribeConfigsResource]:
    """Without repetition: a small request for a large resource must not make a huge reply."""
    return {
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ())): each
        for each in resources
    }.values()


def _describe(
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    broker: Broker,
    known: dict[Hashable, list[DescribeConfigsResourceResult]],
) -> list[DescribeConfigsResourceResult]:
    """The configs of one resource; `known` are those that the request has come to already.

    Whoever asks for thousands of topics asks for few different sets of overrides.
    """
    kind, name = resource.resource_type, resource.resource_name
    overrides: Mapping[str, str] = {}
    if kind == ResourceType.TOPIC:
        overrides = _overrides(name, broker)
    elif kind != ResourceType.BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"configs of resource type {kind} are not kept here"
        )
    elif not name:
        return []
    elif name != str(broker.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {broker.node_id}: ask broker {name!r} for its configs",
        )
    keys = resource.configuration_keys
    wanted = frozenset(keys) if keys else None
    identity = (kind, frozenset(overrides.items()), wanted)
    results = known.get(identity)
    if results is None:
        is_broker = kind == ResourceType.BROKER
        results = known[identity] = [
            _result(config, request, is_broker=is_broker)
            for config in _configs(kind, overrides, wanted, broker)
        ]
        if is_broker and (wanted is None or PROTOCOL_VERSION_CONFIG in wanted):
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


def _configs(
    kind: int, overrides: Mapping[str, str], wanted: frozenset[str] | None, broker: Broker
) -> Iterator[DescribedConfig]:
    values = broker.settings.values
    table = TOPIC_CONFIGS if kind == ResourceType.TOPIC else BROKER_CONFIGS
    for name in table:
        if wanted is not None and name not in wanted:
            continue
        if kind == ResourceType.TOPIC:
            yield describe_topic_config(name, overrides, values)
        else:
            yield describe_broker_config(name, values)


def _result(
    config: DescribedConfig, request: DescribeConfigsRequest, *, is_broker: bool
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
        read_only=config.is_read_only or is_broker,
        config_source=config.source,
        is_sensitive=key.is_sensitive,
        synonyms=synonyms,
        config_type=key.type,
        documentation=key.doc if request.include_documentation else None,
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
