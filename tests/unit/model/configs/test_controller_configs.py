"""The configs of the controller: one table for all who set, list, check and describe them."""

import pytest

from fairlead_model.configs.config_values import (
    BROKER_CONFIGS,
    BrokerValues,
    ConfigError,
    ConfigSource,
    describe_broker_config,
    validate_broker_config,
)
from fairlead_model.configs.controller_configs import (
    CONTROLLER_CONFIGS,
    ControllerConfigs,
    SessionTiming,
    read_controller_configs,
)


def test_defaults_are_those_of_the_table() -> None:
    assert read_controller_configs({}) == ControllerConfigs()
    texts = {name: BROKER_CONFIGS[name].default or "" for name in CONTROLLER_CONFIGS}
    assert read_controller_configs(texts) == ControllerConfigs()


def test_all_are_set_and_others_passed_over() -> None:
    configs = read_controller_configs(
        {
            "auto.leader.rebalance.enable": "FALSE",
            "leader.imbalance.check.interval.seconds": "7",
            "leader.imbalance.per.broker.percentage": "0",
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "9000",
            "num.partitions": "12",
        }
    )
    assert configs == ControllerConfigs(
        balances_leaders=False,
        balance_interval_s=7,
        imbalance_percentage_max=0,
        timing=SessionTiming(500, 9000),
    )


@pytest.mark.parametrize(
    ("heartbeat_ms", "timeout_ms", "holds_ms"),
    [("250", "1500", 1500), ("100", "600", 600), ("2000", "1500", 12_000), ("100", "500", 600)],
)
def test_a_session_lasts_for_six_heartbeats_at_least(
    heartbeat_ms: str, timeout_ms: str, holds_ms: int
) -> None:
    timing = read_controller_configs(
        {"broker.heartbeat.interval.ms": heartbeat_ms, "broker.session.timeout.ms": timeout_ms}
    ).timing
    assert timing == SessionTiming(int(heartbeat_ms), holds_ms)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("broker.session.timeout.ms", "499", "below the minimum 500"),
        ("broker.heartbeat.interval.ms", "0", "below the minimum 50"),
        ("broker.heartbeat.interval.ms", "soon", "not a whole number"),
        ("leader.imbalance.per.broker.percentage", "101", "above the maximum 100"),
        ("leader.imbalance.check.interval.seconds", "0", "below the minimum 1"),
        ("auto.leader.rebalance.enable", "yes", "not true or false"),
    ],
)
def test_what_cannot_work_is_refused_by_whoever_checks(name: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        validate_broker_config(name, text)
    with pytest.raises(ConfigError, match=problem) as refused:
        read_controller_configs({name: text})
    assert refused.value.name == name


def test_they_are_described_like_any_other_and_not_altered_while_brokers_run() -> None:
    for name in CONTROLLER_CONFIGS:
        described = describe_broker_config(name, BrokerValues())
        assert (described.value, described.source) == (
            BROKER_CONFIGS[name].default,
            ConfigSource.DEFAULT,
        )
        assert described.is_read_only
        with pytest.raises(ConfigError, match="read when a broker starts"):
            validate_broker_config(name, described.value or "", is_dynamic=True)
    static = BrokerValues(static={"broker.session.timeout.ms": "9000"})
    described = describe_broker_config("broker.session.timeout.ms", static)
    assert (described.value, described.source) == ("9000", ConfigSource.STATIC_BROKER)
