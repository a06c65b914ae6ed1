"""Topic and broker configs: which exist, what they mean, and which value takes effect.

There is a table for topics and a table for brokers (`TOPIC_CONFIGS`, `BROKER_CONFIGS`). The value
of a topic config is the topic's override, else the broker's default. The default may be set
dynamically for one broker or for all brokers, or in the settings file.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import IntEnum
from typing import Final

from fairlead_model.configs.broker_configs import BROKER_CONFIGS, BROKER_DRAIN, BROKER_FENCE
from fairlead_model.configs.config_key import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    shown,
)
from fairlead_model.configs.log_config import NEVER, LogConfig
from fairlead_model.configs.security_configs import find_security_key
from fairlead_model.configs.topic_configs import TOPIC_CONFIGS

__all__ = [
    "BROKER_CONFIGS",
    "BROKER_DRAIN",
    "BROKER_FENCE",
    "TOPIC_CONFIGS",
    "BrokerValues",
    "ConfigError",
    "ConfigKey",
    "ConfigSource",
    "ConfigType",
    "ConfigValue",
    "DescribedConfig",
    "SourcedValue",
    "StaticConfigError",
    "broker_config_key",
    "describe_broker_config",
    "describe_cluster_wide_config",
    "describe_topic_config",
    "is_broker_config",
    "resolve_log_config",
    "resolve_topic_config",
    "topic_config_key",
    "validate_broker_config",
    "validate_topic_config",
    "validate_topic_configs",
]


_NEAREST_LENGTH_MAX: Final = 100
_INDEX_BYTES_MIN: Final = 96
"""The least size of an index. With less, each batch would get its own segment."""


class StaticConfigError(ConfigError):
    """A broker config is valid, but cannot be altered while brokers run."""


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are Kafka's."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value, with the config name under which it was set and the place where it was set."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One row of a DescribeConfigs reply; sensitive values are None."""

    key: ConfigKey
    value: str | None
    source: ConfigSource
    is_read_only: bool
    synonyms: tuple[SourcedValue, ...]
    """Every place that sets the value, strongest first."""


@dataclass(frozen=True, slots=True)
class BrokerValues:
    """Broker configs by strength: set for one broker, for all brokers, in the broker's settings."""

    static: Mapping[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)
    cluster_wide: Mapping[str, str] = field(default_factory=dict)

    def places(self, name: str) -> Iterator[SourcedValue]:
        """Walk the places where a broker config is set, strongest first, default last."""
        if name in self.dynamic:
            yield SourcedValue(name, self.dynamic[name], ConfigSource.DYNAMIC_BROKER)
        if name in self.cluster_wide:
            yield SourcedValue(name, self.cluster_wide[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)
        if name in self.static:
            yield SourcedValue(name, self.static[name], ConfigSource.STATIC_BROKER)
        default = broker_config_key(name).default
        if default is not None:
            yield SourcedValue(name, default, ConfigSource.DEFAULT)

    def altered(
        self, dynamic: Mapping[str, str], cluster_wide: Mapping[str, str]
    ) -> "BrokerValues":
        """Return these values with the configs that were altered while brokers run.

        A value is ignored if this release does not accept it: another release has stored it.
        """
        return replace(self, dynamic=_usable(dynamic), cluster_wide=_usable(cluster_wide))

    def value(self, name: str) -> ConfigValue | None:
        """Return the typed value in effect; None if nothing is set and there is no default."""
        key = broker_config_key(name)
        for place in self.places(name):
            if place.value is not None:
                return key.parse(place.value)
        return None


def _usable(configs: Mapping[str, str]) -> Mapping[str, str]:
    usable = {}
    for name, text in configs.items():
        with suppress(ConfigError):
            validate_broker_config(name, text, is_dynamic=True)
            usable[name] = text
    return usable


def topic_config_key(name: str) -> ConfigKey:
    """Return a topic config; ConfigError names the most similar config."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        kin = next((k.name for k in TOPIC_CONFIGS.values() if _has_synonym(k, name)), None)
        raise _unknown(name, "topic", TOPIC_CONFIGS, kin)
    return key


def broker_config_key(name: str) -> ConfigKey:
    """Return a broker config; ConfigError names the most similar config."""
    key = BROKER_CONFIGS.get(name) or find_security_key(name)
    if key is None:
        topic = TOPIC_CONFIGS.get(name)
        kin = topic.synonyms[0].name if topic is not None and topic.synonyms else None
        raise _unknown(name, "broker", BROKER_CONFIGS, kin)
    return key


def is_broker_config(name: str) -> bool:
    """Tell whether brokers have a config of this name; those that are refused they have not."""
    try:
        return name in BROKER_CONFIGS or find_security_key(name) is not None
    except ConfigError:
        return False


def _has_synonym(key: ConfigKey, name: str) -> bool:
    return any(synonym.name == name for synonym in key.synonyms)


def _unknown(name: str, kind: str, table: Mapping[str, ConfigKey], kin: str | None) -> ConfigError:
    near = [kin] if kin is not None else _nearest(name, table)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ConfigError(name, f"unknown {kind} config {shown(name)!r}{hint}")


def _nearest(name: str, table: Mapping[str, ConfigKey]) -> list[str]:
    """Return the config with the most similar name, or none.

    To compare a name with all configs takes milliseconds, and a request may have thousands of
    unknown names. So only configs that share a word with the name are compared.
    """
    words = set(name[:_NEAREST_LENGTH_MAX].split("."))
    kin = [each for each in table if not words.isdisjoint(each.split("."))]
    return get_close_matches(name[:_NEAREST_LENGTH_MAX], kin, n=1, cutoff=0.6)


def validate_topic_config(name: str, text: str) -> ConfigValue:
    """Check one override of a topic; ConfigError says what is wrong and what is allowed."""
    return topic_config_key(name).parse(text)


def validate_topic_configs(configs: Mapping[str, str]) -> None:
    """Check all overrides of a topic, each by itself and against each other."""
    for name, text in configs.items():
        validate_topic_config(name, text)
    minimum = _number(configs, "min.compaction.lag.ms")
    maximum = _number(configs, "max.compaction.lag.ms")
    if minimum > maximum:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms={minimum} is above max.compaction.lag.ms={maximum}",
        )


def _number(configs: Mapping[str, str], name: str) -> int:
    key = TOPIC_CONFIGS[name]
    value = key.parse(configs.get(name, key.default or "0"))
    return value if isinstance(value, int) else 0


def validate_broker_config(name: str, text: str, *, is_dynamic: bool = False) -> ConfigValue:
    """Check a broker config; with `is_dynamic`, also that it may change while brokers run."""
    key = broker_config_key(name)
    if is_dynamic and not key.is_dynamic:
        raise StaticConfigError(
            name,
            f"Cannot update these configs dynamically: Set({name}); it is read when a broker "
            "starts: change server.properties (or --set) and restart the broker",
        )
    if not is_dynamic and not key.is_static:
        raise ConfigError(name, f"{name} is set while a broker runs, not in its settings")
    return key.parse(text)


def _topic_places(
    name: str, overrides: Mapping[str, str], broker: BrokerValues
) -> Iterator[tuple[SourcedValue, str]]:
    """Walk the places of a topic config, each with its value in the topic config's unit.

    Synonyms come in the order of their strength (ms before minutes before hours), each with all of
    its places. Defaults come last, so that hours set in a file override the default of ms.
    """
    if name in overrides:
        text = overrides[name]
        yield SourcedValue(name, text, ConfigSource.DYNAMIC_TOPIC), text
    defaults = []
    for synonym in TOPIC_CONFIGS[name].synonyms:
        for place in broker.places(synonym.name):
            if place.value is None:
                continue
            text = _scaled(place.value, synonym.factor)
            if place.source is ConfigSource.DEFAULT:
                defaults.append((place, text))
            else:
                yield place, text
    yield from defaults


def _scaled(text: str, factor: int) -> str:
    if factor == 1:
        return text
    try:
        number = int(text)
    except ValueError:
        return text  # Another release may have written it; the parser will report it.
    return str(number * factor) if number >= 0 else text


def resolve_topic_config(
    name: str,
    overrides: Mapping[str, str],
    broker: BrokerValues,
    unreadable: list[str] | None = None,
) -> ConfigValue:
    """Return the typed value in effect for a topic on a broker.

    A newer release may have written a value that this release cannot read. The value is then added
    to `unreadable` as `name=text`. Its replacement is the next value in strength or, if another
    value could lose records, the one that keeps them. If `unreadable` is None: ConfigError.
    """
    key = topic_config_key(name)
    for place, text in _topic_places(name, overrides, broker):
        try:
            return key.parse(text)
        except ConfigError:
            if unreadable is None:
                raise
            unreadable.append(f"{place.name}={place.value}")
            if name in _KEEPING_RECORDS:
                return _KEEPING_RECORDS[name]
    return key.parse(key.default or "")


def describe_topic_config(
    name: str, overrides: Mapping[str, str], broker: BrokerValues
) -> DescribedConfig:
    """Describe one config of a topic as a broker with these values sees it."""
    key = topic_config_key(name)
    places = list(_topic_places(name, overrides, broker))
    if not places:
        default = SourcedValue(name, key.default, ConfigSource.DEFAULT)
        places = [(default, key.default or "")]
    return DescribedConfig(
        key=key,
        value=None if key.is_sensitive else places[0][1],
        source=places[0][0].source,
        is_read_only=False,
        synonyms=tuple(place for place, _ in places),
    )


def describe_broker_config(name: str, broker: BrokerValues) -> DescribedConfig:
    """Describe one config of a broker; the synonyms include the configs that it overrides."""
    key = broker_config_key(name)
    own = tuple(broker.places(name))
    names = _WITH_WEAKER.get(name, (name,))
    places = tuple(place for each in names for place in broker.places(each))
    if key.is_sensitive:
        places = tuple(SourcedValue(place.name, None, place.source) for place in places)
    return DescribedConfig(
        key=key,
        value=own[0].value if own and not key.is_sensitive else None,
        source=places[0].source if places else ConfigSource.DEFAULT,
        is_read_only=not key.is_dynamic,
        synonyms=places,
    )


def describe_cluster_wide_config(name: str, broker: BrokerValues) -> DescribedConfig:
    """Describe the value of a config that is set for all brokers at once."""
    key = broker_config_key(name)
    text = None if key.is_sensitive else broker.cluster_wide[name]
    place = SourcedValue(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    return DescribedConfig(
        key=key,
        value=text,
        source=place.source,
        is_read_only=not key.is_dynamic,
        synonyms=(place,),
    )


_WITH_WEAKER: Final = {
    names[position]: names[position:]
    for names in (tuple(each.name for each in key.synonyms) for key in TOPIC_CONFIGS.values())
    for position in range(len(names))
}
"""By broker config: its name, and the configs that are used if it is not set."""


_KEEPING_RECORDS: Final[Mapping[str, ConfigValue]] = {
    "cleanup.policy": (),
    "retention.ms": -1,
    "retention.bytes": -1,
    "delete.retention.ms": NEVER,
    "min.compaction.lag.ms": NEVER,
}
"""The values in place of unreadable ones: nothing is deleted, and nothing is compacted."""


def resolve_log_config(
    overrides: Mapping[str, str], broker: BrokerValues, unreadable: list[str] | None = None
) -> LogConfig:
    """Return the configs of a log: the topic's overrides, else the broker's values.

    For `unreadable` see `resolve_topic_config`.
    """

    def resolved(name: str) -> ConfigValue:
        return resolve_topic_config(name, overrides, broker, unreadable)

    def number(name: str) -> int:
        value = resolved(name)
        if not isinstance(value, int):
            raise TypeError(f"{name} is not a whole number")
        return value

    policy = resolved("cleanup.policy")
    ratio = resolved("min.cleanable.dirty.ratio")
    expiration = broker.value("producer.id.expiration.ms")
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_index_bytes=max(number("segment.index.bytes"), _INDEX_BYTES_MIN),
        index_interval_bytes=number("index.interval.bytes"),
        max_message_bytes=number("max.message.bytes"),
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        message_timestamp_type=str(resolved("message.timestamp.type")),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        cleanup_policy=frozenset(policy) if isinstance(policy, tuple) else frozenset({str(policy)}),
        delete_retention_ms=number("delete.retention.ms"),
        min_cleanable_dirty_ratio=float(ratio) if isinstance(ratio, int | float) else 0.5,
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        min_insync_replicas=number("min.insync.replicas"),
        preallocate=bool(resolved("preallocate")),
        producer_id_expiration_ms=expiration if isinstance(expiration, int) else 86_400_000,
        compression_type=str(resolved("compression.type")),
        gzip_level=number("compression.gzip.level"),
        zstd_level=number("compression.zstd.level"),
    )
