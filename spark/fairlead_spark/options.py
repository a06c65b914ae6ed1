"""The options of `format("fairlead")`, with the names of Spark's Kafka source and sink.

Names are case-insensitive, values are text. An unknown name is an error that names the most similar
valid one: a misspelt `failOnDataLoss` must not go unnoticed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from fairlead_spark.client_settings import (
    COUNT_MAX,
    ClientSettings,
    is_client_option,
    read_client_settings,
    read_whole,
)
from fairlead_spark.errors import OptionError
from fairlead_spark.offsets import (
    EARLIEST,
    LATEST,
    PartitionValues,
    TopicPartition,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)

SOURCE_OPTIONS: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "pushFilters",
    "clientConfig",
)
SINK_OPTIONS: Final = (
    "topic",
    "includeHeaders",
    "exactlyOnce",
    "failOnDataLoss",
    "txnAppId",
    "txnVersion",
    "clientConfig",
)
# Spark itself adds these to the options of a source or sink.
SPARKS_OWN: Final = ("path", "checkpointLocation", "queryName", "outputMode", "truncate", "numRows")

_DURATION: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
# Spark's units of time, and other common words; a number alone is milliseconds.
_MILLISECONDS: Final = {
    unit: milliseconds
    for units, milliseconds in (
        (("", "ms", "millisecond", "milliseconds"), 1),
        (("s", "second", "seconds"), 1000),
        (("m", "min", "minute", "minutes"), 60_000),
        (("h", "hour", "hours"), 3_600_000),
        (("d", "day", "days"), 86_400_000),
    )
    for unit in units
}


@dataclass(frozen=True)
class Subscription:
    """The topics to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()

    @property
    def text(self) -> str:
        """The user's text, for messages."""
        if self.pattern:
            return f"subscribePattern '{self.pattern}'"
        if self.assigned:
            return "assign " + ", ".join(map(str, self.assigned))
        return "subscribe " + ", ".join(self.topics)


@dataclass(frozen=True)
class Boundary:
    """Where reading begins or ends: one of these.

    `everywhere` is EARLIEST or LATEST; `offsets` has an offset (or one of the two) for each
    partition; `timestamp_ms` applies to all partitions, `timestamps_ms` to the named ones.
    """

    everywhere: int | None = None
    offsets: PartitionValues = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: PartitionValues = field(default_factory=dict)
    option: str = ""


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source. A count is None if there is no limit."""

    client: ClientSettings
    subscription: Subscription
    starting: Boundary
    ending: Boundary
    is_latest_without_timestamp: bool
    fail_on_data_loss: bool
    include_headers: bool
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_interval_ms: int
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    push_filters: bool


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink: `topic` takes precedence over a topic column.

    `txn_app_id` and `txn_version` name a batch write that may be run again.
    """

    client: ClientSettings
    topic: str | None = None
    is_exactly_once: bool = False
    fail_on_data_loss: bool = True
    txn_app_id: str | None = None
    txn_version: int | None = None


def parse_source_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Read the options of a batch or streaming read; OptionError names what is wrong."""
    given = _Given(options, SOURCE_OPTIONS)
    if is_stream:
        given.refuse_in_stream(("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"))
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    least, most = given.count("minOffsetsPerTrigger"), given.count("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    starting = _boundary(given, "starting", LATEST if is_stream else EARLIEST)
    if not is_stream and LATEST in (starting.everywhere, *starting.offsets.values()):
        raise OptionError(
            "startingOffsets cannot be 'latest' (-1) in a batch read: nothing lies behind it"
        )
    given.text("groupIdPrefix")  # Names consumers of the Kafka source; here kafka.group.id does.
    return SourceOptions(
        client=read_client_settings(options, is_sink=False, config_file=given.text("clientConfig")),
        subscription=_subscription(given),
        starting=starting,
        ending=_boundary(given, "ending", LATEST),
        is_latest_without_timestamp=strategy == "latest",
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        poll_timeout_ms=given.count("kafkaConsumer.pollTimeoutMs") or 120_000,
        offset_retries=given.count_or("fetchOffset.numRetries", 3),
        offset_retry_interval_ms=given.count_or("fetchOffset.retryIntervalMs", 1000),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_trigger_delay_ms(given),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        push_filters=given.flag("pushFilters", False),
    )


def _trigger_delay_ms(given: "_Given") -> int:
    delay_ms = given.duration_ms("maxTriggerDelay")
    return 15 * 60_000 if delay_ms is None else delay_ms


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool = False) -> SinkOptions:
    """Read the options of a write; OptionError names what is wrong."""
    given = _Given(options, SINK_OPTIONS)
    given.flag("includeHeaders", False)  # Headers are written if there is a column for them.
    is_exactly_once = given.flag("exactlyOnce", False)
    name, version = given.text("txnAppId"), given.count("txnVersion", least=0)
    if (name is None) != (version is None):
        raise OptionError("txnAppId and txnVersion name a write together: give both or none")
    if name is not None:
        if is_stream:
            raise OptionError("txnAppId names a batch write; Spark names a stream: leave it out")
        if not is_exactly_once:
            raise OptionError("txnAppId means nothing without exactlyOnce: set that to true")
        if not name.strip():
            raise OptionError("txnAppId is empty: give the application's name")
    topic = given.text("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty: name a topic, or leave it out and write a column topic")
    client = read_client_settings(options, is_sink=True, config_file=given.text("clientConfig"))
    if not is_exactly_once and "transaction.timeout.ms" in dict(client.producer):
        raise OptionError("kafka.transaction.timeout.ms means nothing without exactlyOnce")
    return SinkOptions(
        client,
        topic,
        is_exactly_once=is_exactly_once,
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        txn_app_id=name,
        txn_version=version,
    )


def _subscription(given: "_Given") -> Subscription:
    names = ("assign", "subscribe", "subscribePattern")
    chosen = [name for name in names if given.text(name) is not None]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none of them"
        raise OptionError(f"one of subscribe, subscribePattern and assign is needed; got {found}")
    text = given.text(chosen[0]) or ""
    if chosen[0] == "assign":
        return Subscription(assigned=parse_assignment(text))
    if chosen[0] == "subscribePattern":
        if not text.strip():
            raise OptionError("subscribePattern is empty: give it as a regular expression")
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"subscribePattern '{text}' is no regular expression: {error}"
            ) from None
        return Subscription(pattern=text)
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise OptionError("subscribe names no topic: give it as 'one' or 'one,two'")
    return Subscription(topics=topics)


def _boundary(given: "_Given", side: str, default: int) -> Boundary:
    """Return a boundary; as in Spark a time for all precedes times for each, and offsets."""
    one_time = given.count(f"{side}Timestamp", least=0)
    if one_time is not None:
        return Boundary(timestamp_ms=one_time, option=f"{side}Timestamp")
    name = f"{side}OffsetsByTimestamp"
    times = given.text(name)
    if times is not None:
        return Boundary(timestamps_ms=parse_timestamps(times, option=name), option=name)
    name = f"{side}Offsets"
    text = given.text(name)
    if text is None:
        return Boundary(everywhere=default, option=name)
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = text.strip().lower()
    if word in words:
        if side == "ending" and word == "earliest":
            raise OptionError("endingOffsets cannot be 'earliest': nothing lies before it")
        return Boundary(everywhere=words[word], option=name)
    offsets = parse_offsets(text, option=name)
    if side == "ending" and EARLIEST in offsets.values():
        raise OptionError("endingOffsets cannot be -2 (earliest): nothing lies before it")
    return Boundary(offsets=offsets, option=name)


class _Given:
    """The options of one read or write, by lower-case name, all of them known."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        valid = {name.lower(): name for name in (*known, *SPARKS_OWN)}
        for name in self._values:
            if name not in valid and not is_client_option(name):
                raise OptionError(f"unknown option '{name}'{_nearest(name, valid)}")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def refuse_in_stream(self, names: tuple[str, ...]) -> None:
        for name in names:
            if self.text(name) is not None:
                raise OptionError(f"{name} bounds a batch read; a stream has no end: leave it out")

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self.text(name)
        value = default if text is None else text.strip().lower()
        if value not in choices:
            raise OptionError(f"{name} is '{text}'; it can be {' or '.join(choices)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def count(self, name: str, *, least: int = 1) -> int | None:
        value = self.text(name)
        return None if value is None else read_whole(name, value, least=least, most=COUNT_MAX)

    def count_or(self, name: str, default: int) -> int:
        found = self.count(name, least=0)
        return default if found is None else found

    def duration_ms(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        match = _DURATION.fullmatch(value)
        if match is None or match[2].lower() not in _MILLISECONDS:
            raise OptionError(f"{name} is '{value}'; write it as '30s', '15m' or '500ms'")
        return int(match[1]) * _MILLISECONDS[match[2].lower()]


def _nearest(name: str, valid: Mapping[str, str]) -> str:
    close = get_close_matches(name, valid, n=1)
    hint = f": did you mean '{valid[close[0]]}'?" if close else ""
    return hint or "; settings of the client begin with 'kafka.'"
