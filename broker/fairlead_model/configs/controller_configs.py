"""The configs that the controller reads: liveness, preferred leaders, numbers of topics.

They are in the table of broker configs (`broker_configs`), under Kafka's names, so that they are
set, listed and described like all others. When a broker registers, the controller sends it the
values that it needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead_model.configs.broker_configs import BROKER_CONFIGS
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.session.session_protocol import (
    HEARTBEAT_INTERVAL_MS,
    HEARTBEATS_PER_SESSION_MIN,
    SESSION_TIMEOUT_MS,
)

REBALANCE_ENABLE: Final = "auto.leader.rebalance.enable"
IMBALANCE_CHECK_INTERVAL: Final = "leader.imbalance.check.interval.seconds"
IMBALANCE_PERCENTAGE: Final = "leader.imbalance.per.broker.percentage"
HEARTBEAT_INTERVAL: Final = "broker.heartbeat.interval.ms"
SESSION_TIMEOUT: Final = "broker.session.timeout.ms"
MAX_TOPICS: Final = "fairlead.max.topics"
MAX_PARTITIONS: Final = "fairlead.max.partitions"

CONTROLLER_CONFIGS: Final = (
    REBALANCE_ENABLE,
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    IMBALANCE_CHECK_INTERVAL,
    IMBALANCE_PERCENTAGE,
    MAX_TOPICS,
    MAX_PARTITIONS,
)


@dataclass(frozen=True, slots=True)
class SessionTiming:
    """How often brokers send heartbeats, and after which silence the controller fences them."""

    heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS
    session_timeout_ms: int = SESSION_TIMEOUT_MS

    @classmethod
    def bounded(cls, heartbeat_interval_ms: int, session_timeout_ms: int) -> "SessionTiming":
        """Return this timing, with the session timeout raised to the minimum of heartbeats."""
        least_ms = HEARTBEATS_PER_SESSION_MIN * heartbeat_interval_ms
        return cls(heartbeat_interval_ms, max(session_timeout_ms, least_ms))


DEFAULT_TIMING: Final = SessionTiming()


@dataclass(frozen=True, slots=True)
class ControllerConfigs:
    """The configs of the controller as typed values."""

    balances_leaders: bool = True
    balance_interval_s: int = 300
    imbalance_percentage_max: int = 10
    topics_max: int = 50_000
    partitions_max: int = 200_000
    timing: SessionTiming = DEFAULT_TIMING


def read_controller_configs(configs: Mapping[str, str]) -> ControllerConfigs:
    """Read the controller's configs, with defaults; ConfigError. Other configs are ignored."""
    return ControllerConfigs(
        balances_leaders=_value(configs, REBALANCE_ENABLE) == 1,
        balance_interval_s=_value(configs, IMBALANCE_CHECK_INTERVAL),
        imbalance_percentage_max=_value(configs, IMBALANCE_PERCENTAGE),
        topics_max=_value(configs, MAX_TOPICS),
        partitions_max=_value(configs, MAX_PARTITIONS),
        timing=SessionTiming.bounded(
            _value(configs, HEARTBEAT_INTERVAL), _value(configs, SESSION_TIMEOUT)
        ),
    )


def _value(configs: Mapping[str, str], name: str) -> int:
    key = BROKER_CONFIGS[name]
    text = configs.get(name, key.default)
    value = None if text is None else key.parse(text)
    if not isinstance(value, int):
        raise ConfigError(name, f"{name}: a value is needed")
    return value
