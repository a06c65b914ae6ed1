"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from fairlead_broker.handlers import in_turns
from fairlead_broker.handlers.configs import describe_configs
from fairlead_model.cluster import BrokerConfigsChanged, GroupConfigsChanged, TopicChanged
from fairlead_model.configs.config_values import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    describe_topic_config,
)
from fairlead_model.configs.group_configs import GROUP_CONFIGS
from fairlead_tls import followed_certificate
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import alter_configs, incremental_alter_configs
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from fairlead_wire.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
THROTTLES = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
SESSION = "consumer.session.timeout.ms"


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


@pytest.mark.parametrize(
    "stage",
    [
        {
            "listener.security.protocol.map": "CLIENT:PLAINTEXT",
            "listener.name.client.ssl.client.auth": "none",
            "listener.name.client.ssl.keystore.key": "a private key",
        }
    ],
    indirect=True,
)
def test_what_one_listener_has_of_its_own_is_told_but_for_secrets(stage: Any) -> None:
    result = describe(stage, BROKER, "1")
    configs = {config.name: config for config in result.configs}
    assert configs["listener.name.client.ssl.client.auth"].value == "none"
    key = configs["listener.name.client.ssl.keystore.key"]
    assert (key.value, key.is_sensitive) == (None, True)
    assert "a private key" not in repr(result)


def test_every_config_of_this_broker_and_the_made_up_one(stage: Any) -> None:
    result = describe(stage, BROKER, "1")
    configs = {config.name: config for config in result.configs}
    assert set(configs) == {*BROKER_CONFIGS, "inter.broker.protocol.version"} - THROTTLES
    assert configs["inter.broker.protocol.version"].value == "3.9-IV0"
    assert (configs["node.id"].value, configs["node.id"].read_only) == ("1", True)
    changeable = {config.name for config in result.configs if not config.read_only}
    dynamic = {name for name, key in BROKER_CONFIGS.items() if key.is_dynamic}
    assert changeable == dynamic - THROTTLES, "AlterConfigs would refuse the others"
    (only,) = describe(stage, BROKER, "1", keys=["inter.broker.protocol.version"]).configs
    assert only.name == "inter.broker.protocol.version"


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the topics' configs that were described, each time."""
    names: list[str] = []

    def describe_one(name: str, overrides: Any, values: Any) -> Any:
        names.append(name)
        return describe_topic_config(name, overrides, values)

    monkeypatch.setattr(describe_configs, "describe_topic_config", describe_one)
    return names


def test_the_names_of_configs_are_gathered_once_for_a_request(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker has hundreds, and a request may name its resource thousands of times."""
    gathered: list[int] = []
    names_of = describe_configs._names

    def gather(kind: int, broker: Any) -> Any:
        gathered.append(kind)
        return names_of(kind, broker)

    monkeypatch.setattr(describe_configs, "_names", gather)
    asked = [DescribeConfigsResource(BROKER, "1", ["log.retention.hours"])] * 1_000
    (result,) = stage.ask(DescribeConfigsRequest(resources=asked), 4).results
    assert [each.name for each in result.configs] == ["log.retention.hours"]
    assert gathered == [BROKER]


def test_many_topics_are_described_by_their_few_sets_of_overrides(
    stage: Any, described: list[str]
) -> None:
    for number in range(20):
        stage.topic(f"t{number}", configs={"retention.ms": str(number % 2)})
    names = [f"t{number}" for number in range(20)]
    asked = [DescribeConfigsResource(TOPIC, name, ["retention.ms"]) for name in names]
    results = stage.ask(DescribeConfigsRequest(resources=asked), 4).results
    assert [(each.resource_name, each.configs[0].value) for each in results] == [
        (name, str(number % 2)) for number, name in enumerate(names)
    ]
    assert described == ["retention.ms"] * 2, "or thousands of topics would stop the broker"


def test_what_topics_have_in_common_is_described_once_where_their_sets_differ(
    stage: Any, described: list[str]
) -> None:
    """5,000 topics, each with a retention of its own, took most of a second of the loop."""
    names = [f"t{number}" for number in range(20)]
    for number, name in enumerate(names):
        stage.topic(name, configs={"retention.ms": str(number)})
    asked = [DescribeConfigsResource(TOPIC, name, None) for name in names]
    results = stage.ask(DescribeConfigsRequest(resources=asked), 4).results
    retentions = [
        config.value for each in results for config in each.configs if config.name == "retention.ms"
    ]
    assert retentions == [str(number) for number in range(20)]
    assert described.count("retention.ms") == 20
    assert described.count("cleanup.policy") == 1


@pytest.mark.parametrize("version", range(1, 5))
def test_very_many_topics_are_described_and_encoded_while_others_are_served(
    stage: Any, later_steps: list[None], monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """All configs of 10,000 topics are 44 MB, and took the loop a second to encode."""
    names = [f"t{number}" for number in range(250)]
    for number, name in enumerate(names):
        stage.topic(name, configs={"retention.ms": str(number)})
    names[7:7] = ["nope"]
    request = DescribeConfigsRequest(
        [DescribeConfigsResource(TOPIC, name, None) for name in names],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    reply = stage.ask(request, version)
    assert [each.resource_name for each in reply.results] == names
    assert len(later_steps) == 25 + 17
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 2**31)
    assert reply == stage.ask(request, version)
    assert len(later_steps) == 25 + 17


def test_what_is_asked_for_twice_is_told_once(stage: Any) -> None:
    asked = [DescribeConfigsResource(BROKER, "1", None)] * 1_000
    asked.append(DescribeConfigsResource(BROKER, "1", ["node.id"]))
    results = stage.ask(DescribeConfigsRequest(resources=asked), 4).results
    assert [len(each.configs) for each in results] == [len(BROKER_CONFIGS) + 1 - len(THROTTLES)]


def test_names_that_nobody_knows_make_no_other_question(stage: Any) -> None:
    stage.topic("t")
    asked = [
        DescribeConfigsResource(TOPIC, "t", ["retention.ms", f"nonsense-{number}"])
        for number in range(1_000)
    ]
    asked.append(DescribeConfigsResource(TOPIC, "t", ["preallocate"]))
    (result,) = stage.ask(DescribeConfigsRequest(resources=asked), 4).results
    assert {each.name for each in result.configs} == {"retention.ms", "preallocate"}
    nothing = describe(stage, TOPIC, "t", keys=["nonsense"])
    assert (nothing.error_code, nothing.configs) == (0, [])


def test_of_all_brokers_at_once_only_what_is_set_is_told(stage: Any) -> None:
    result = describe(stage, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])
    stage.publish(BrokerConfigsChanged("", {"max.connections": "7", "log.retention.ms": "1000"}))
    result = describe(stage, BROKER, "")
    told = [(each.name, each.value, each.config_source, each.read_only) for each in result.configs]
    assert told == [("log.retention.ms", "1000", 3, False), ("max.connections", "7", 3, False)]
    assert [(each.name, each.source) for each in result.configs[0].synonyms] == [
        ("log.retention.ms", 3)
    ]


@pytest.mark.parametrize("name", sorted(THROTTLES))
def test_a_throttle_is_told_only_where_it_is_set(stage: Any, name: str) -> None:
    """Tools that balance partitions take one that is told for another tool's, and wait."""

    def told() -> list[tuple[Any, int]]:
        found = [each for each in describe(stage, BROKER, "1").configs if each.name == name]
        assert [each.name for each in describe(stage, BROKER, "1", keys=[name]).configs] == [
            each.name for each in found
        ]
        return [(each.value, each.config_source) for each in found]

    assert told() == []
    stage.publish(BrokerConfigsChanged("1", {name: "1000"}))
    assert told() == [("1000", 2)]
    stage.publish(BrokerConfigsChanged("", {name: "2000"}))
    stage.publish(BrokerConfigsChanged("1", {}))
    assert told() == [("2000", 3)]
    stage.publish(BrokerConfigsChanged("", {}))
    assert told() == []


@pytest.mark.parametrize("stage", [{"message.max.bytes": "2000"}], indirect=True)
def test_the_strongest_place_of_a_config_is_told_and_the_others_as_synonyms(stage: Any) -> None:
    def told(kind: int, name: str, config: str) -> list[Any]:
        (row,) = describe(stage, kind, name, keys=[config]).configs
        synonyms = [(each.name, each.value, each.source) for each in row.synonyms]
        return [row.value, row.config_source, row.read_only, synonyms]

    stage.topic("t")
    name, default, static = "message.max.bytes", "1048588", ("message.max.bytes", "2000", 4)
    below = [static, (name, default, 5)]
    assert told(BROKER, "1", name) == ["2000", 4, False, below]
    stage.publish(BrokerConfigsChanged("", {name: "3000"}))
    below.insert(0, (name, "3000", 3))
    assert told(BROKER, "1", name) == ["3000", 3, False, below]
    stage.publish(BrokerConfigsChanged("1", {name: "4000"}), BrokerConfigsChanged("2", {name: "9"}))
    below.insert(0, (name, "4000", 2))
    assert told(BROKER, "1", name) == ["4000", 2, False, below]
    assert told(TOPIC, "t", "max.message.bytes") == ["4000", 2, False, below]
    stage.publish(BrokerConfigsChanged("1", {}))
    assert told(TOPIC, "t", "max.message.bytes")[:2] == ["3000", 3]
    hours = ("log.retention.hours", "168", 5)
    assert told(BROKER, "1", "log.retention.ms") == [None, 5, False, [hours]]
    assert told(BROKER, "1", "log.retention.hours") == ["168", 5, True, [hours]]


def test_logs_go_by_defaults_that_change_while_they_are_open(stage: Any) -> None:
    stage.topic("plain")
    stage.topic("own", configs={"max.message.bytes": "5000"})

    def bounds() -> list[int]:
        logs = [stage.broker.partitions[name, 0].log for name in ("plain", "own", "later")[:count]]
        return [log.config.max_message_bytes for log in logs]

    count = 2
    stage.publish(BrokerConfigsChanged("", {"message.max.bytes": "3000"}))
    assert bounds() == [3000, 5000]
    stage.publish(BrokerConfigsChanged("1", {"message.max.bytes": "4000"}))
    assert bounds() == [4000, 5000]
    stage.topic("later")
    count = 3
    assert bounds() == [4000, 5000, 4000]
    own = stage.image.topic("own")
    stage.publish(TopicChanged(replace(own.header, configs={})), BrokerConfigsChanged("1", {}))
    assert bounds() == [3000, 3000, 3000]


def test_a_stored_config_that_this_release_does_not_take_does_not_count(stage: Any) -> None:
    stored = {"message.max.bytes": "many", "log.new": "1", "node.id": "7", "max.connections": "9"}
    stage.publish(BrokerConfigsChanged("1", stored))
    values = stage.broker.running_values()
    assert values.dynamic == {"max.connections": "9"}


def test_levels_of_loggers_are_this_process_own(stage: Any) -> None:
    name = "fairlead_broker.local_replicas"
    assert name in logging.root.manager.loggerDict

    def level_of(logger: str) -> str:
        (row,) = describe(stage, BROKER_LOGGER, "1", keys=[logger]).configs
        assert (row.config_source, row.read_only, row.synonyms) == (6, False, [])
        return str(row.value)

    def set_level(
        *changes: tuple[str, int, str | None], broker: str = "1"
    ) -> tuple[int, str | None]:
        configs = [incremental_alter_configs.AlterableConfig(*change) for change in changes]
        asked = incremental_alter_configs.AlterConfigsResource(BROKER_LOGGER, broker, configs)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([asked])
        (response,) = stage.ask(request, 1).responses
        return response.error_code, response.error_message

    before = level_of(name)
    try:
        assert set_level((name, 0, "DEBUG")) == (0, None)
        assert (level_of(name), logging.getLogger(name).isEnabledFor(logging.DEBUG)) == (
            "DEBUG",
            True,
        )
        code, why = set_level((name, 0, "ERROR"), ("fairlead_broker.nothing", 0, "INFO"))
        assert (code, why) == (40, "Logger fairlead_broker.nothing does not exist!")
        assert level_of(name) == "DEBUG", "all of a resource or nothing"
        code, why = set_level((name, 0, "loud"))
        assert (code, "is not a supported log level" in (why or "")) == (40, True)
        for logger in (name, "fairlead_broker.nothing"):
            assert set_level((logger, 2, "INFO"))[0] == ErrorCode.INVALID_REQUEST
        assert set_level(("root", 1, None))[0] == ErrorCode.INVALID_REQUEST
        assert set_level((name, 0, "INFO"), broker="2")[0] == ErrorCode.INVALID_REQUEST
        assert alter(stage, 2, "1", kind=BROKER_LOGGER) == [("1", ErrorCode.INVALID_REQUEST)]
        assert set_level((name, 1, None)) == (0, None)
        assert level_of(name) == before
    finally:
        logging.getLogger(name).setLevel(logging.NOTSET)
    everything = {row.name for row in describe(stage, BROKER_LOGGER, "1").configs}
    assert {"root", name} <= everything
    assert stage.controller.calls == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_without_configs_here(stage: Any, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(stage, kind, name)
    assert result.error_code == code
    assert result.error_message


def test_every_config_of_a_group_which_need_not_exist(stage: Any) -> None:
    stage.publish(GroupConfigsChanged("g", {SESSION: "50000"}))
    configs = {config.name: config for config in describe(stage, GROUP, "g").configs}
    assert set(configs) == set(GROUP_CONFIGS)
    session = configs[SESSION]
    assert (session.value, session.config_source, session.read_only) == ("50000", 8, False)
    assert session.config_type == 3
    assert session.documentation
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        (SESSION, "50000", 8),
        (f"group.{SESSION}", "45000", 5),
    ]
    (other,) = describe(stage, GROUP, "nobody's", keys=[SESSION]).configs
    assert (other.value, other.config_source) == ("45000", 5)


def listed(stage: Any, *types: int, version: int = 1) -> Any:
    reply = stage.ask(ListConfigResourcesRequest(list(types)), version)
    assert reply.error_code == 0
    return [(each.resource_type, each.resource_name) for each in reply.config_resources]


def test_resources_with_configs_are_listed_by_type(stage: Any) -> None:
    stage.topic("t")
    stage.publish(
        GroupConfigsChanged("b", {SESSION: "50000"}), GroupConfigsChanged("a", {SESSION: "50000"})
    )
    assert listed(stage, GROUP) == [(GROUP, "a"), (GROUP, "b")]
    assert listed(stage, TOPIC, BROKER) == [(TOPIC, "t"), (BROKER, "1")]
    everything = [
        (TOPIC, "t"),
        (BROKER, "1"),
        (BROKER_LOGGER, "1"),
        (GROUP, "a"),
        (GROUP, "b"),
    ]
    assert listed(stage) == everything
    assert listed(stage, CLIENT_METRICS, BROKER_LOGGER) == [(BROKER_LOGGER, "1")]
    assert listed(stage, version=0) == [], "client metrics alone"
    stage.publish(GroupConfigsChanged("a", {}))
    assert listed(stage, GROUP) == [(GROUP, "b")]
    reply = stage.ask(ListConfigResourcesRequest([GROUP, 3]), 1)
    assert (reply.error_code, reply.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


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


def alter(
    stage: Any, version: int, *names: str, kind: int = TOPIC, name: str = "retention.ms"
) -> Any:
    config = alter_configs.AlterableConfig(name=name, value="5")
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind, resource_name=each, configs=[config]
            )
            for each in names
        ]
    )
    return [(r.resource_name, r.error_code) for r in stage.ask(request, version).responses]


@pytest.mark.parametrize("version", range(3))
def test_altering_replaces_the_whole_set(stage: Any, version: int) -> None:
    stage.controller.script["alter_configs"] = altered
    assert alter(stage, version, "good", "bad") == [("good", 0), ("bad", 40)]
    body = stage.controller.calls[0][1]
    assert "group_limits" not in body
    assert body["incremental"] is False
    assert body["resources"][0] == {
        "resource_type": TOPIC,
        "name": "good",
        "alterations": [{"name": "retention.ms", "operation": 0, "value": "5"}],
    }


def test_what_cannot_be_altered_says_so(stage: Any) -> None:
    stage.controller.script["alter_configs"] = altered
    refused = [("1", ErrorCode.INVALID_REQUEST)]
    assert alter(stage, 2, "1", kind=BROKER, name="num.partitions") == refused
    assert alter(stage, 2, "1", kind=CLIENT_METRICS) == refused
    assert alter(stage, 2, "t", "t") == [("t", ErrorCode.INVALID_REQUEST)]
    assert stage.controller.calls == []


@pytest.mark.parametrize(
    "name", ["security.inter.broker.protocol", "listener.name.client.ssl.provider"]
)
def test_the_controller_says_why_a_config_of_kafkas_is_refused(stage: Any, name: str) -> None:
    """Without an answer of their own such configs ended the connection."""
    stage.controller.script["alter_configs"] = altered
    assert alter(stage, 2, "1", kind=BROKER, name=name) == [("1", 0)]
    ((_, body),) = stage.controller.calls
    assert [each["name"] for each in body["resources"][0]["alterations"]] == [name]


@pytest.mark.parametrize(
    "stage", [{"group.consumer.min.session.timeout.ms": "6000"}], indirect=True
)
def test_groups_are_altered_within_the_limits_of_this_broker(stage: Any) -> None:
    stage.controller.script["alter_configs"] = altered
    assert alter(stage, 2, "good", "bad", kind=GROUP) == [("good", 0), ("bad", 40)]
    body = stage.controller.calls[0][1]
    assert body["resources"][0]["resource_type"] == GROUP
    assert body["group_limits"]["group.consumer.min.session.timeout.ms"] == "6000"
    assert body["group_limits"]["group.consumer.max.session.timeout.ms"] == "60000"


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


def test_the_logger_of_certificates_can_be_told_a_level(stage: Any) -> None:
    """It tells which were taken, and which could not be."""
    rows = describe(stage, BROKER_LOGGER, "1").configs
    assert followed_certificate.logger.name in {row.name for row in rows}
