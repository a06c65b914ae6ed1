import pytest

from fairlead_model.configs.config_values import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerValues,
    ConfigError,
    ConfigSource,
    ConfigType,
    broker_config_key,
    describe_broker_config,
    describe_topic_config,
    resolve_log_config,
    resolve_topic_config,
    topic_config_key,
    validate_broker_config,
    validate_topic_config,
    validate_topic_configs,
)
from fairlead_model.configs.log_config import LogConfig

NOTHING = BrokerValues()


def test_the_table_holds_kafkas_33_topic_configs() -> None:
    assert len(TOPIC_CONFIGS) == 33
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)


@pytest.mark.parametrize("name", [*TOPIC_CONFIGS, *BROKER_CONFIGS])
def test_every_default_is_valid_and_every_config_is_explained(name: str) -> None:
    for table in (TOPIC_CONFIGS, BROKER_CONFIGS):
        if name in table:
            key = table[name]
            assert key.name == name
            assert key.doc.endswith(".")
            if key.default is not None:
                key.parse(key.default)


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_the_default_of_a_topic_config_is_what_brokers_resolve(name: str) -> None:
    key = TOPIC_CONFIGS[name]
    assert resolve_topic_config(name, {}, NOTHING) == key.parse(key.default or "")
    for synonym in key.synonyms:
        assert synonym.name in BROKER_CONFIGS


def test_the_defaults_of_a_log_are_those_of_the_table() -> None:
    assert resolve_log_config({}, NOTHING) == LogConfig()


def test_overrides_reach_the_log() -> None:
    config = resolve_log_config(
        {
            "segment.bytes": "2048",
            "message.timestamp.type": "LogAppendTime",
            "preallocate": "TRUE",
            "flush.messages": "1",
        },
        BrokerValues(static={"log.retention.bytes": "5", "log.roll.hours": "2"}),
    )
    assert config.segment_bytes == 2048
    assert config.is_log_append_time
    assert config.preallocate
    assert config.flush_messages == 1
    assert config.retention_bytes == 5
    assert config.segment_ms == 7_200_000


RETENTION_CASES = [
    ({}, "604800000", ConfigSource.DEFAULT),
    ({"log.retention.hours": "1"}, "3600000", ConfigSource.STATIC_BROKER),
    ({"log.retention.hours": "-1"}, "-1", ConfigSource.STATIC_BROKER),
    (
        {"log.retention.hours": "1", "log.retention.minutes": "2"},
        "120000",
        ConfigSource.STATIC_BROKER,
    ),
    (
        {"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"},
        "3",
        ConfigSource.STATIC_BROKER,
    ),
]


@pytest.mark.parametrize(("static", "value", "source"), RETENTION_CASES)
def test_ms_beat_minutes_beat_hours(
    static: dict[str, str], value: str, source: ConfigSource
) -> None:
    described = describe_topic_config("retention.ms", {}, BrokerValues(static=static))
    assert (described.value, described.source) == (value, source)


def test_the_strongest_place_wins_and_all_are_listed() -> None:
    broker = BrokerValues(
        static={"log.segment.bytes": "3000"},
        dynamic={"log.segment.bytes": "5000"},
        cluster_wide={"log.segment.bytes": "4000"},
    )
    described = describe_topic_config("segment.bytes", {"segment.bytes": "6000"}, broker)
    assert described.value == "6000"
    assert [(place.name, place.value, int(place.source)) for place in described.synonyms] == [
        ("segment.bytes", "6000", 1),
        ("log.segment.bytes", "5000", 2),
        ("log.segment.bytes", "4000", 3),
        ("log.segment.bytes", "3000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    assert broker.value("log.segment.bytes") == 5000


def test_brokers_are_described_with_what_may_change() -> None:
    described = describe_broker_config(
        "num.partitions", BrokerValues(static={"num.partitions": "3"})
    )
    assert (described.value, described.source, described.is_read_only) == ("3", 4, True)
    assert not describe_broker_config("log.retention.ms", NOTHING).is_read_only
    assert describe_broker_config("broker.rack", NOTHING).value is None


UNKNOWN = [
    (topic_config_key, "retention.m", "retention.ms"),
    (topic_config_key, "log.retention.ms", "did you mean retention.ms"),
    (topic_config_key, "min.isr.replicas", "min.insync.replicas"),
    (broker_config_key, "retention.ms", "did you mean log.retention.ms"),
    (broker_config_key, "num.partition", "num.partitions"),
    (broker_config_key, "zzzzzzzz", "unknown broker config"),
]


@pytest.mark.parametrize(("find", "name", "hint"), UNKNOWN)
def test_unknown_names_come_with_the_nearest_valid_one(find, name: str, hint: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=hint):
        find(name)


REFUSED = [
    ("retention.ms", "week"),
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("retention.ms", "1_000"),
    ("min.cleanable.dirty.ratio", "0.1_5"),
    ("min.cleanable.dirty.ratio", "0.\u0665"),
    ("retention.ms", "9223372036854775808"),
    ("segment.bytes", "2147483648"),
    ("segment.bytes", "10"),
    ("preallocate", "yes"),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("min.cleanable.dirty.ratio", "nan"),
    ("message.timestamp.type", "Now"),
    ("cleanup.policy", ","),
    ("cleanup.policy", "delete,"),
    ("cleanup.policy", "compact, ,delete"),
    ("cleanup.policy", "compact,shred"),
    ("cleanup.policy", "shred"),
    ("compression.type", "lzma"),
    ("compression.type", "none"),
    ("compression.gzip.level", "0"),
    ("remote.storage.enable", "true"),
    ("leader.replication.throttled.replicas", "all"),
    ("min.insync.replicas", "0"),
]


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_values_that_cannot_be_honoured_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name) as refused:
        validate_topic_config(name, text)
    assert refused.value.name == name


ACCEPTED = [
    ("retention.ms", "-1", -1),
    ("retention.ms", " 5 ", 5),
    ("cleanup.policy", "delete", ("delete",)),
    ("cleanup.policy", "compact", ("compact",)),
    ("cleanup.policy", "compact,delete", ("compact", "delete")),
    ("cleanup.policy", "", ()),
    ("cleanup.policy", "delete, delete", ("delete", "delete")),
    ("compression.type", "producer", "producer"),
    ("compression.type", "zstd", "zstd"),
    ("compression.type", "uncompressed", "uncompressed"),
    ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ("leader.replication.throttled.replicas", "*", ("*",)),
    ("min.cleanable.dirty.ratio", "0.25", 0.25),
    ("remote.storage.enable", "false", False),
]


@pytest.mark.parametrize(("name", "text", "value"), ACCEPTED)
def test_values_are_typed(name: str, text: str, value: object) -> None:
    assert validate_topic_config(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "0" * 30_000 + "5"),
        ("retention.ms", " " * 30_000 + "5"),
        ("min.cleanable.dirty.ratio", "0." + "1" * 30_000),
        ("cleanup.policy", "delete," * 5_000),
        ("message.timestamp.type", "CreateTime" + " " * 30_000),
        ("preallocate", "true" + " " * 30_000),
        ("leader.replication.throttled.replicas", "0:1," * 10_000),
    ],
)
def test_no_value_fills_the_memory_of_all_brokers(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: the value has {len(text)} characters"):
        validate_topic_config(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x" * 30_000, "1"),
        ("leader.replication.throttled.replicas", "\x01" * 30_000),
        ("retention.ms", "x" * 399),
    ],
)
def test_a_refusal_quotes_little_of_a_long_text(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        validate_topic_config(name, text)
    assert len(error.value.message) < 1_500


def test_configs_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="above"):
        validate_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_only_dynamic_broker_configs_may_be_altered() -> None:
    validate_broker_config("log.retention.ms", "5", is_dynamic=True)
    with pytest.raises(ConfigError, match="starts"):
        validate_broker_config("node.id", "5", is_dynamic=True)


def test_a_secret_value_is_never_told() -> None:
    key = next(iter(TOPIC_CONFIGS.values()))
    secret = type(key)("x", ConfigType.INT, None, "A secret.", is_sensitive=True)
    with pytest.raises(ConfigError) as refused:
        secret.parse("hunter2")
    assert "hunter2" not in str(refused.value)
