"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from typing import Any

import pytest

from fairlead_broker.handlers import describe_configs
from fairlead_model.configs import BROKER_CONFIGS, TOPIC_CONFIGS, describe_topic_config
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import alter_configs, incremental_alter_configs
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

TOPIC, BROKER, GROUP = 2, 4, 32


def describe(
    stage: Any, kind: int, name: str, *, keys: list[str] | None = None, version: int = 4
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=version >= 3
    )
    return stage.ask(request, version).results[0]


@pytest.mark.parametrize("version", range(1, 5))
def test_every_config_of_a_topic(stage: Any, version: int) -> None:
    stage.topic("t", configs={"retention.ms": "1000"})
    result = describe(stage, TOPIC, "t", version=version)
    configs = {config.name: config for config in result.configs}
    assert set(configs) == set(TOPIC_CONFIGS)
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", 1, False)
    strongest = retention.synonyms[0]
    assert (strongest.name, strongest.value, strongest.source) == ("retention.ms", "1000", 1)
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation


@pytest.mark.parametrize("stage", [{"log.retention.hours": "1"}], indirect=True)
def test_a_default_comes_from_the_brokers_settings(stage: Any) -> None:
    stage.topic("t")
    (retention,) = describe(stage, TOPIC, "t", keys=["retention.ms"]).configs
    assert (retention.value, retention.config_source) == ("3600000", 4)
    assert retention.synonyms[0].name == "log.retention.hours"


def test_every_config_of_this_broker_and_the_made_up_one(stage: Any) -> None:
    result = describe(stage, BROKER, "1")
    configs = {config.name: config for config in result.configs}
    assert set(configs) == {*BROKER_CONFIGS, "inter.broker.protocol.version"}
    assert configs["inter.broker.protocol.version"].value == "3.9-IV0"
    assert (configs["node.id"].value, configs["node.id"].read_only) == ("1", True)
    assert all(config.read_only for config in result.configs), "AlterConfigs would refuse them"
    (only,) = describe(stage, BROKER, "1", keys=["inter.broker.protocol.version"]).configs
    assert only.name == "inter.broker.protocol.version"


def test_many_topics_are_described_by_their_few_sets_of_overrides(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        stage.topic(f"t{number}", configs={"retention.ms": str(number % 2)})
    described = []

    def describe_one(name: str, overrides: Any, values: Any) -> Any:
        described.append(name)
        return describe_topic_config(name, overrides, values)

    monkeypatch.setattr(describe_configs, "describe_topic_config", describe_one)
    names = [f"t{number}" for number in range(20)]
    asked = [DescribeConfigsResource(TOPIC, name, ["retention.ms"]) for name in names]
    results = stage.ask(DescribeConfigsRequest(resources=asked), 4).results
    assert [(each.resource_name, each.configs[0].value) for each in results] == [
        (name, str(number % 2)) for number, name in enumerate(names)
    ]
    assert described == ["retention.ms"] * 2, "or thousands of topics would stop the broker"


def test_what_is_asked_for_twice_is_told_once(stage: Any) -> None:
    asked = [DescribeConfigsResource(BROKER, "1", None)] * 1_000
    asked.append(DescribeConfigsResource(BROKER, "1", ["node.id"]))
    results = stage.ask(DescribeConfigsRequest(resources=asked), 4).results
    assert [len(each.configs) for each in results] == [len(BROKER_CONFIGS) + 1, 1]


def test_no_defaults_are_set_for_all_brokers(stage: Any) -> None:
    result = describe(stage, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_without_configs_here(stage: Any, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(stage, kind, name)
    assert result.error_code == code
    assert result.error_message


def altered(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "resources": [
            {
                "resource_type": resource["resource_type"],
                "name": resource["name"],
                "error_code": 40 if resource["name"] == "bad" else 0,
                "error_message": "nonsense" if resource["name"] == "bad" else None,
            }
            for resource in body["resources"]
        ]
    }


def alter(stage: Any, version: int, *names: str, kind: int = TOPIC) -> Any:
    config = alter_configs.AlterableConfig(name="retention.ms", value="5")
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[config]
            )
            for name in names
        ]
    )
    return [(r.resource_name, r.error_code) for r in stage.ask(request, version).responses]


@pytest.mark.parametrize("version", range(3))
def test_altering_replaces_the_whole_set(stage: Any, version: int) -> None:
    stage.controller.script["alter_configs"] = altered
    assert alter(stage, version, "good", "bad") == [("good", 0), ("bad", 40)]
    body = stage.controller.calls[0][1]
    assert body["incremental"] is False
    assert body["resources"][0] == {
        "resource_type": TOPIC,
        "name": "good",
        "alterations": [{"name": "retention.ms", "operation": 0, "value": "5"}],
    }


def test_what_cannot_be_altered_says_so(stage: Any) -> None:
    stage.controller.script["alter_configs"] = altered
    refused = [("1", ErrorCode.INVALID_REQUEST)]
    assert alter(stage, 2, "1", kind=BROKER) == refused
    assert alter(stage, 2, "1", kind=GROUP) == refused
    assert alter(stage, 2, "t", "t") == [("t", ErrorCode.INVALID_REQUEST)]
    assert stage.controller.calls == []


def test_without_a_controller_altering_times_out(stage: Any) -> None:
    assert alter(stage, 2, "t") == [("t", ErrorCode.REQUEST_TIMED_OUT)]


@pytest.mark.parametrize("version", range(2))
def test_single_operations_are_passed_on(stage: Any, version: int) -> None:
    stage.controller.script["alter_configs"] = altered
    config = incremental_alter_configs.AlterableConfig(
        name="cleanup.policy", config_operation=3, value="compact"
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC, resource_name="t", configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=True
    )
    (response,) = stage.ask(request, version).responses
    assert (response.resource_name, response.error_code) == ("t", 0)
    body = stage.controller.calls[0][1]
    assert (body["incremental"], body["validate_only"]) == (True, True)
    assert body["resources"][0]["alterations"] == [
        {"name": "cleanup.policy", "operation": 3, "value": "compact"}
    ]
