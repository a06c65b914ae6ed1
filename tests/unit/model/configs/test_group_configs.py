"""Configs of groups: their limits, which value holds, and how they are described."""

import pytest

from fairlead_model.configs.config_values import (
    BROKER_CONFIGS,
    BrokerValues,
    ConfigError,
    ConfigSource,
)
from fairlead_model.configs.group_configs import (
    GROUP_CONFIGS,
    ConsumerGroupTimes,
    consumer_group_times,
    describe_group_config,
    group_config_key,
    limits_of,
    validate_group_configs,
    validate_group_settings,
)

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
DEFAULTS = BrokerValues()


def broker(**limits: int) -> BrokerValues:
    """Settings by what stands behind `group.consumer.`, with underscores for points."""
    return BrokerValues(
        static={
            f"group.consumer.{name.replace('_', '.')}": str(value) for name, value in limits.items()
        }
    )


def test_without_overrides_the_brokers_settings_hold() -> None:
    assert consumer_group_times({}, DEFAULTS) == ConsumerGroupTimes(45_000, 5_000, 1_000)
    wide = broker(session_timeout_ms=46_000, assignment_interval_ms=0)
    assert consumer_group_times({}, wide) == ConsumerGroupTimes(46_000, 5_000, 0)


def test_overrides_hold() -> None:
    overrides = {SESSION: "60000", HEARTBEAT: " 15000", ASSIGNMENT: "0"}
    validate_group_configs(overrides, DEFAULTS)
    assert consumer_group_times(overrides, DEFAULTS) == ConsumerGroupTimes(60_000, 15_000, 0)


def test_a_broker_with_narrower_limits_moves_a_value_to_the_nearest() -> None:
    overrides = {SESSION: "60000", HEARTBEAT: "5000"}
    narrow = broker(max_session_timeout_ms=50_000, min_heartbeat_interval_ms=7_000)
    times = consumer_group_times(overrides, narrow)
    assert (times.session_timeout_ms, times.heartbeat_interval_ms) == (50_000, 7_000)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (SESSION, "44999", "below group.consumer.min.session.timeout.ms=45000"),
        (SESSION, "60001", "above group.consumer.max.session.timeout.ms=60000"),
        (HEARTBEAT, "4999", "below group.consumer.min.heartbeat.interval.ms=5000"),
        (HEARTBEAT, "15001", "above group.consumer.max.heartbeat.interval.ms=15000"),
        (ASSIGNMENT, "15001", "above group.consumer.max.assignment.interval.ms=15000"),
        (ASSIGNMENT, "-1", "-1"),
        (SESSION, "long", "whole number"),
        ("consumer.session.timeout", "1", "did you mean consumer.session.timeout.ms?"),
        (f"group.{SESSION}", "45000", "did you mean consumer.session.timeout.ms?"),
        ("share.session.timeout.ms", "45000", "unknown group config"),
    ],
)
def test_what_a_group_cannot_be_given(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_group_configs({name: value}, DEFAULTS)
    assert message in refused.value.message


def test_the_limits_are_the_brokers() -> None:
    wide = broker(min_session_timeout_ms=1_000, min_heartbeat_interval_ms=100)
    validate_group_configs({SESSION: "1000", HEARTBEAT: "100"}, wide)
    assert limits_of(wide)["group.consumer.min.session.timeout.ms"] == "1000"
    validate_group_configs({SESSION: "1000", HEARTBEAT: "100"}, BrokerValues(limits_of(wide)))


def test_a_heartbeat_comes_before_the_session_ends() -> None:
    wide = broker(min_session_timeout_ms=1_000)
    with pytest.raises(ConfigError, match=r"5000 is not below consumer\.session\.timeout\.ms=5000"):
        validate_group_configs({SESSION: "5000"}, wide)
    validate_group_configs({SESSION: "5001"}, wide)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"session_timeout_ms": 61_000}, "not between"),
        ({"session_timeout_ms": 1_000}, "not between"),
        ({"heartbeat_interval_ms": 1_000}, "not between"),
        ({"assignment_interval_ms": 16_000}, "not between"),
        ({"min_session_timeout_ms": 61_000, "session_timeout_ms": 61_000}, "is above"),
        (
            {"heartbeat_interval_ms": 45_000, "max_heartbeat_interval_ms": 45_000},
            "is not below group.consumer.session.timeout.ms=45000",
        ),
    ],
)
def test_a_broker_keeps_to_its_own_limits(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        validate_group_settings(broker(**settings))
    assert message in refused.value.message
    validate_group_settings(DEFAULTS)


def test_a_description_names_the_override_and_the_setting_behind_it() -> None:
    described = describe_group_config(SESSION, {SESSION: "50000"}, DEFAULTS)
    assert (described.value, described.source) == ("50000", ConfigSource.DYNAMIC_GROUP)
    assert [(place.name, place.value) for place in described.synonyms] == [
        (SESSION, "50000"),
        (f"group.{SESSION}", "45000"),
    ]
    plain = describe_group_config(SESSION, {}, broker(session_timeout_ms=46_000))
    assert (plain.value, plain.source) == ("46000", ConfigSource.STATIC_BROKER)


def test_every_config_of_a_group_has_its_settings() -> None:
    for name, key in GROUP_CONFIGS.items():
        assert group_config_key(name) is key
        assert set(limits_of(DEFAULTS)) <= set(BROKER_CONFIGS)
        assert key.doc
