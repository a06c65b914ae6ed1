"""Configs of topics, read and altered, and of brokers, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.authorization import CLUSTER_NAME, ResourceType
from fairlead_broker.authorization import Operation as Act
from fairlead_broker.rest.documents.schemas import FLAG, ID, TEXT, TEXT_OR_NULL, array_of, object_of
from fairlead_broker.rest.operations import JSON, Answer, Body, Operation
from fairlead_broker.rest.problems import ProblemError, raise_code, unknown_topic
from fairlead_broker.rest.v3.resources import Place, list_of, resource
from fairlead_model.configs.config_values import ConfigSource
from fairlead_model.configs.topic_configs import TOPIC_CONFIGS
from fairlead_model.session.calls import ResourceType as ConfigResourceType
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from fairlead_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.operations import Schema
    from fairlead_broker.rest.request import RestRequest

_SET, _DELETE = 0, 1
_OPERATIONS: Final = {"SET": _SET, "DELETE": _DELETE}
_SOURCES: Final = {
    ConfigSource.DYNAMIC_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
    ConfigSource.DEFAULT: "DEFAULT_CONFIG",
}
_TOPIC_CONFIGS: Final = "/v3/clusters/{cluster_id}/topics/{topic_name}/configs"
_BROKER_CONFIGS: Final = "/v3/clusters/{cluster_id}/brokers/{broker_id}/configs"

_VALUES: dict[str, Schema] = {
    "name": TEXT,
    "value": TEXT_OR_NULL,
    "is_default": FLAG,
    "is_read_only": FLAG,
    "is_sensitive": FLAG,
    "source": TEXT,
    "synonyms": array_of(object_of({"name": TEXT, "value": TEXT_OR_NULL, "source": TEXT})),
}
TOPIC_CONFIG = resource("KafkaTopicConfig", {"topic_name": TEXT, **_VALUES})
BROKER_CONFIG = resource("KafkaBrokerConfig", {"broker_id": ID, **_VALUES})


def _source(number: int) -> str:
    known = {int(source): name for source, name in _SOURCES.items()}
    return known.get(number, "UNKNOWN")


def _describe(config: DescribeConfigsResourceResult) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "is_default": config.config_source == ConfigSource.DEFAULT,
        "is_read_only": config.read_only,
        "is_sensitive": config.is_sensitive,
        "source": _source(config.config_source),
        "synonyms": [
            {"name": each.name, "value": each.value, "source": _source(each.source)}
            for each in config.synonyms
        ],
    }


async def _topic_configs(request: RestRequest, *names: str) -> list[dict[str, Any]]:
    topic = request.path["topic_name"]
    asked = DescribeConfigsResource(ConfigResourceType.TOPIC, topic, list(names) or None)
    response: DescribeConfigsResponse = await request.kafka.ask(
        DescribeConfigsRequest([asked], include_synonyms=True)
    )
    result = response.results[0]
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise unknown_topic(topic)
    raise_code(result.error_code, result.error_message)
    return [
        Place(request, "topics", topic, "configs", config.name).describe(
            "KafkaTopicConfig", topic_name=topic, **_describe(config)
        )
        for config in result.configs
    ]


async def list_topic_configs(request: RestRequest) -> web.StreamResponse:
    """List the configs of a topic."""
    place = Place(request, "topics", request.path["topic_name"], "configs")
    return await place.list("KafkaTopicConfigList", await _topic_configs(request))


async def get_topic_config(request: RestRequest) -> web.StreamResponse:
    """Describe a config of a topic."""
    return request.answer(_only(await _topic_configs(request, request.path["name"]), request))


def _only(configs: list[dict[str, Any]], request: RestRequest) -> dict[str, Any]:
    if not configs:
        raise _unknown_config(request.path["name"])
    return configs[0]


def _unknown_config(name: str) -> ProblemError:
    return ProblemError(404, f"there is no config {name}")


async def _alter(
    request: RestRequest, configs: list[AlterableConfig], *, validate_only: bool = False
) -> web.StreamResponse:
    topic = request.path["topic_name"]
    resource_ = AlterConfigsResource(ConfigResourceType.TOPIC, topic, configs)
    response: IncrementalAlterConfigsResponse = await request.kafka.ask(
        IncrementalAlterConfigsRequest([resource_], validate_only=validate_only)
    )
    result = response.responses[0]
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise unknown_topic(topic)
    raise_code(result.error_code, result.error_message)
    return request.done()


async def alter_topic_configs(request: RestRequest) -> web.StreamResponse:
    """Set and reset configs of a topic, all or none."""
    document = await request.document()
    configs = [
        AlterableConfig(
            each["name"], _OPERATIONS[each.get("operation") or "SET"], each.get("value")
        )
        for each in document["data"]
    ]
    return await _alter(request, configs, validate_only=document.get("validate_only") or False)


async def set_topic_config(request: RestRequest) -> web.StreamResponse:
    """Set a config of a topic."""
    document = await request.document()
    return await _alter(request, [AlterableConfig(request.path["name"], _SET, document["value"])])


async def reset_topic_config(request: RestRequest) -> web.StreamResponse:
    """Reset a config of a topic to its default."""
    name = request.path["name"]
    done = await _alter(request, [AlterableConfig(name, _DELETE, None)])
    # Kafka's call resets what nobody has set, and does not look whether there is such a config.
    if name not in TOPIC_CONFIGS:
        raise _unknown_config(name)
    return done


async def _broker_configs(request: RestRequest, *names: str) -> list[dict[str, Any]]:
    broker_id = request.path["broker_id"]
    registration = request.broker.image.brokers.get(broker_id)
    if registration is None:
        raise ProblemError(404, f"there is no broker {broker_id}")
    request.kafka.require(Act.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    asked = DescribeConfigsResource(ConfigResourceType.BROKER, str(broker_id), list(names) or None)
    response: DescribeConfigsResponse = await request.kafka.ask_broker(
        broker_id, DescribeConfigsRequest([asked], include_synonyms=True), request.deadline_s
    )
    result = response.results[0]
    raise_code(result.error_code, result.error_message)
    return [
        Place(request, "brokers", broker_id, "configs", config.name).describe(
            "KafkaBrokerConfig", broker_id=broker_id, **_describe(config)
        )
        for config in result.configs
    ]


async def list_broker_configs(request: RestRequest) -> web.StreamResponse:
    """List the configs of a broker."""
    place = Place(request, "brokers", request.path["broker_id"], "configs")
    return await place.list("KafkaBrokerConfigList", await _broker_configs(request))


async def get_broker_config(request: RestRequest) -> web.StreamResponse:
    """Describe a config of a broker."""
    return request.answer(_only(await _broker_configs(request, request.path["name"]), request))


_CHANGES: Schema = object_of(
    {
        "data": array_of(
            object_of(
                {"name": TEXT},
                {
                    "value": TEXT_OR_NULL,
                    "operation": {"enum": ["SET", "DELETE", None]},
                },
            ),
            minItems=1,
        )
    },
    {"validate_only": {"type": ["boolean", "null"]}},
)

OPERATIONS = (
    Operation(
        "listTopicConfigs",
        "GET",
        _TOPIC_CONFIGS,
        "List the configs of a topic.",
        list_topic_configs,
        {200: Answer("The configs.", list_of("KafkaTopicConfigList", TOPIC_CONFIG))},
    ),
    Operation(
        "alterTopicConfigs",
        "POST",
        f"{_TOPIC_CONFIGS}:alter",
        "Set and reset configs of a topic, all or none.",
        alter_topic_configs,
        {204: Answer("They are altered.")},
        body=Body({JSON: _CHANGES}, example={"data": [{"name": "retention.ms", "value": "60000"}]}),
    ),
    Operation(
        "getTopicConfig",
        "GET",
        f"{_TOPIC_CONFIGS}/{{name}}",
        "Describe a config of a topic.",
        get_topic_config,
        {200: Answer("The config.", TOPIC_CONFIG)},
    ),
    Operation(
        "setTopicConfig",
        "PUT",
        f"{_TOPIC_CONFIGS}/{{name}}",
        "Set a config of a topic.",
        set_topic_config,
        {204: Answer("It is set.")},
        body=Body({JSON: object_of({"value": TEXT_OR_NULL})}, example={"value": "60000"}),
    ),
    Operation(
        "resetTopicConfig",
        "DELETE",
        f"{_TOPIC_CONFIGS}/{{name}}",
        "Give a config of a topic its default again.",
        reset_topic_config,
        {204: Answer("It has its default.")},
    ),
    Operation(
        "listBrokerConfigs",
        "GET",
        _BROKER_CONFIGS,
        "List the configs of a broker.",
        list_broker_configs,
        {200: Answer("The configs.", list_of("KafkaBrokerConfigList", BROKER_CONFIG))},
    ),
    Operation(
        "getBrokerConfig",
        "GET",
        f"{_BROKER_CONFIGS}/{{name}}",
        "Describe a config of a broker.",
        get_broker_config,
        {200: Answer("The config.", BROKER_CONFIG)},
    ),
)
