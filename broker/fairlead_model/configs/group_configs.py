"""Configs of a consumer group: their table, their limits, and the value in effect (KIP-848).

A group's value is its override, else the broker's setting of the same meaning. An override has to
lie between the broker's minimum and maximum. If a broker later gets narrower limits, it uses the
nearest value that they allow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, NamedTuple

from fairlead_model.configs.config_key import (
    ConfigError,
    ConfigKey,
    ConfigType,
    Synonym,
    key_table,
    shown,
)
from fairlead_model.configs.config_values import (
    BrokerValues,
    ConfigSource,
    DescribedConfig,
    SourcedValue,
    broker_config_key,
)

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"


class _Limits(NamedTuple):
    """The broker settings that are the default and the limits of a group's config."""

    setting: str
    minimum: str
    maximum: str


_LIMITS: Final = {
    name: _Limits(
        f"group.{name}",
        f"group.{name.replace('consumer.', 'consumer.min.', 1)}",
        f"group.{name.replace('consumer.', 'consumer.max.', 1)}",
    )
    for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL, ASSIGNMENT_INTERVAL)
}


def _key(name: str, doc: str) -> ConfigKey:
    setting = _LIMITS[name].setting
    return ConfigKey(
        name,
        ConfigType.INT,
        default=None,
        doc=doc,
        minimum=broker_config_key(setting).minimum,
        maximum=broker_config_key(setting).maximum,
        synonyms=(Synonym(setting),),
    )


GROUP_CONFIGS: Final = key_table(
    (
        _key(SESSION_TIMEOUT, "Silence after which a member of the group is taken for dead."),
        _key(HEARTBEAT_INTERVAL, "How often members of the group are told to send heartbeats."),
        _key(
            ASSIGNMENT_INTERVAL,
            "Shortest time between two assignments of the group; members that join meanwhile are "
            "assigned together.",
        ),
    )
)


@dataclass(frozen=True, slots=True)
class ConsumerGroupTimes:
    """The values in effect for one group of KIP-848's protocol on one broker."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def group_config_key(name: str) -> ConfigKey:
    """Return a group config; ConfigError names the most similar config."""
    key = GROUP_CONFIGS.get(name)
    if key is None:
        near = get_close_matches(name.removeprefix("group."), GROUP_CONFIGS, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(name, f"unknown group config {shown(name)!r}{hint}")
    return key


def validate_group_configs(configs: Mapping[str, str], broker: BrokerValues) -> None:
    """Check all overrides of a group against the limits of a broker, and against each other."""
    for name, text in configs.items():
        value = group_config_key(name).parse(text)
        limits = _LIMITS[name]
        lowest, highest = _number(broker, limits.minimum), _number(broker, limits.maximum)
        if isinstance(value, int) and value < lowest:
            raise ConfigError(name, f"{name}={value} is below {limits.minimum}={lowest}")
        if isinstance(value, int) and value > highest:
            raise ConfigError(name, f"{name}={value} is above {limits.maximum}={highest}")
    _check_heartbeats(SESSION_TIMEOUT, HEARTBEAT_INTERVAL, consumer_group_times(configs, broker))


def validate_group_settings(broker: BrokerValues) -> None:
    """Check that a broker's own values are within its own limits."""
    for limits in _LIMITS.values():
        lowest, highest = _number(broker, limits.minimum), _number(broker, limits.maximum)
        if lowest > highest:
            raise ConfigError(
                limits.minimum,
                f"{limits.minimum}={lowest} is above {limits.maximum}={highest}",
            )
        value = _number(broker, limits.setting)
        if not lowest <= value <= highest:
            raise ConfigError(
                limits.setting,
                f"{limits.setting}={value} is not between {limits.minimum}={lowest} and "
                f"{limits.maximum}={highest}",
            )
    _check_heartbeats(
        _LIMITS[SESSION_TIMEOUT].setting,
        _LIMITS[HEARTBEAT_INTERVAL].setting,
        consumer_group_times({}, broker),
    )


def _check_heartbeats(session: str, heartbeat: str, times: ConsumerGroupTimes) -> None:
    if times.heartbeat_interval_ms >= times.session_timeout_ms:
        raise ConfigError(
            heartbeat,
            f"{heartbeat}={times.heartbeat_interval_ms} is not below "
            f"{session}={times.session_timeout_ms}",
        )


def limits_of(broker: BrokerValues) -> dict[str, str]:
    """Return the broker settings that group configs are checked against, as texts."""
    return {
        setting: str(_number(broker, setting)) for limits in _LIMITS.values() for setting in limits
    }


def consumer_group_times(overrides: Mapping[str, str], broker: BrokerValues) -> ConsumerGroupTimes:
    """Return the values in effect for a group with these overrides on a broker."""
    return ConsumerGroupTimes(
        session_timeout_ms=_effective(SESSION_TIMEOUT, overrides, broker),
        heartbeat_interval_ms=_effective(HEARTBEAT_INTERVAL, overrides, broker),
        assignment_interval_ms=_effective(ASSIGNMENT_INTERVAL, overrides, broker),
    )


def _effective(name: str, overrides: Mapping[str, str], broker: BrokerValues) -> int:
    limits = _LIMITS[name]
    text = overrides.get(name)
    if text is None:
        return _number(broker, limits.setting)
    value = int(text)
    return max(_number(broker, limits.minimum), min(value, _number(broker, limits.maximum)))


def _number(broker: BrokerValues, setting: str) -> int:
    value = broker.value(setting)
    if not isinstance(value, int):
        raise TypeError(f"{setting} is not a whole number")
    return value


def describe_group_config(
    name: str, overrides: Mapping[str, str], broker: BrokerValues
) -> DescribedConfig:
    """Describe one config of a group as the broker with these values sees it."""
    places = tuple(_places(name, overrides, broker))
    return DescribedConfig(
        key=group_config_key(name),
        value=places[0].value,
        source=places[0].source,
        is_read_only=False,
        synonyms=places,
    )


def _places(
    name: str, overrides: Mapping[str, str], broker: BrokerValues
) -> Iterator[SourcedValue]:
    if name in overrides:
        yield SourcedValue(name, overrides[name], ConfigSource.DYNAMIC_GROUP)
    yield from broker.places(_LIMITS[name].setting)
