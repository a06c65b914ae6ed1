"""Names and values of options, and what a user is told about wrong ones."""

import pytest

from fairlead_spark.errors import OptionError
from fairlead_spark.offsets import EARLIEST, LATEST, TopicPartition
from fairlead_spark.options import SourceOptions, parse_sink_options, parse_source_options

NEEDED = {"kafka.bootstrap.servers": "one:9092,[::1]:9093", "subscribe": "orders"}


def parse(**options: str) -> SourceOptions:
    return parse_source_options(NEEDED | options, is_stream=False)


def refusal(options: dict[str, str], *, is_stream: bool = False) -> str:
    with pytest.raises(OptionError) as caught:
        parse_source_options(options, is_stream=is_stream)
    return str(caught.value)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    batch = parse()
    assert batch.subscription.topics == ("orders",)
    assert batch.starting.everywhere == EARLIEST
    assert batch.ending.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert not batch.client.is_read_committed
    stream = parse_source_options(NEEDED, is_stream=True)
    assert stream.starting.everywhere == LATEST


def test_names_do_not_depend_on_case() -> None:
    options = parse_source_options(
        {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBE": " a , b,a", "FAILONDATALOSS": "False"},
        is_stream=False,
    )
    assert options.subscription.topics == ("a", "b")
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"failOnDataLos": "true"}, "did you mean 'failOnDataLoss'?"),
        ({"kafka.isolation.levle": "x"}, "did you mean 'kafka.isolation.level'?"),
        ({"zzz": "1"}, "begin with 'kafka.'"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets says where"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.group.id"),
        ({"kafka.security.protocol": "SSL"}, "the option clientConfig names it"),
        ({"clientConfig": "/no/such/file"}, "cannot read /no/such/file"),
        ({"kafka.isolation.level": "dirty"}, "read_uncommitted or read_committed"),
        ({"kafka.fetch.max.bytes": "lots"}, "no whole number"),
        ({"assign": '{"a": [0]}'}, "got assign and subscribe"),
        ({"minPartitions": "0"}, "must be 1 or more"),
        ({"maxOffsetsPerTrigger": "ten"}, "no whole number"),
        ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "is above"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"endingOffsets": "earliest"}, "nothing lies before it"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "nothing lies before it"),
        ({"startingOffsets": "{oops"}, '{"orders": {"0": 23}}'),
        ({"maxTriggerDelay": "soon"}, "'15m'"),
        ({"maxTriggerDelay": "5 moons"}, "'15m'"),
        ({"startingOffsets": "latest"}, "cannot be 'latest' (-1) in a batch read"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot be 'latest' (-1) in a batch read"),
        ({"startingOffsets": '{"orders": {"1_0": 5}}'}, '{"orders": {"0": 23}}'),
        ({"kafka.check.crcs": "flase"}, "kafka.check.crcs is 'flase'; it can be true or false"),
        ({"failOnDataLoss": ""}, "failOnDataLoss is ''; it can be true or false"),
        ({"minPartitions": "1_000"}, "minPartitions is '1_000', which is no whole number"),
        ({"startingTimestamp": "9" * 19}, "it must be 9223372036854775807 or less"),
        ({"kafka.fetch.max.bytes": "٣"}, "kafka.fetch.max.bytes is '٣', which is no whole number"),
        ({"kafka.fetch.max.bytes": "3000000000"}, "it must be 2147483647 or less"),
        ({"kafka.request.timeout.ms": "0"}, "kafka.request.timeout.ms is 0; it must be 1 or more"),
        ({"kafka.group.id": " "}, "kafka.group.id is empty"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(wrong: dict[str, str], said: str) -> None:
    assert said in refusal(NEEDED | wrong)


@pytest.mark.parametrize(
    ("servers", "said"),
    [("", "is missing"), ("host", "not host:port"), ("host:port", "not host:port")],
)
def test_addresses_are_checked_before_anything_runs(servers: str, said: str) -> None:
    assert said in refusal({"kafka.bootstrap.servers": servers, "subscribe": "a"})


def test_a_stream_has_no_end() -> None:
    assert "leave it out" in refusal(NEEDED | {"endingOffsets": "latest"}, is_stream=True)


def test_a_pattern_must_be_an_expression() -> None:
    wrong = {"kafka.bootstrap.servers": "a:1", "subscribePattern": "orders-("}
    assert "no regular expression" in refusal(wrong)
    # Of no topic at all a query would read nothing, and say so to nobody.
    assert "subscribePattern is empty" in refusal(wrong | {"subscribePattern": ""})


def test_one_time_wins_over_times_and_those_over_offsets() -> None:
    times = '{"orders": {"0": 1000}}'
    every = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": times}
    assert parse(**every).starting.timestamps_ms == {TopicPartition("orders", 0): 1000}
    assert parse(**every, startingTimestamp="5").starting.timestamp_ms == 5


def test_one_fetch_asks_one_partition_so_the_smaller_bound_counts() -> None:
    client = parse(**{"kafka.fetch.max.bytes": "9", "kafka.max.partition.fetch.bytes": "7"}).client
    assert client.fetch_bytes == 7


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("15m", 900_000),
        ("2 h", 7_200_000),
        ("3min", 180_000),
        ("1d", 86_400_000),
        ("250", 250),
        ("0s", 0),
    ],
)
def test_a_delay_has_sparks_units(text: str, milliseconds: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_an_end_that_goes_back_can_be_believed_at_once() -> None:
    assert parse(**{"fetchOffset.numRetries": "0"}).offset_retries == 0
    assert parse().offset_retries == 3


def test_a_sink_keeps_the_producers_settings() -> None:
    options = parse_sink_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "topic": "out",
            "kafka.compression.type": "zstd",
            "checkpointLocation": "/somewhere",
        }
    )
    assert options.topic == "out"
    assert options.client.producer == (("compression.type", "zstd"),)


def test_a_sink_does_not_read() -> None:
    with pytest.raises(OptionError, match="unknown option 'subscribe'"):
        parse_sink_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"txnAppId": "a", "exactlyOnce": "true"}, "give both or none"),
        ({"txnVersion": "1", "exactlyOnce": "true"}, "give both or none"),
        ({"txnAppId": "a", "txnVersion": "1"}, "means nothing without exactlyOnce"),
        ({"txnAppId": " ", "txnVersion": "1", "exactlyOnce": "true"}, "txnAppId is empty"),
        ({"txnAppId": "a", "txnVersion": "-1", "exactlyOnce": "true"}, "must be 0 or more"),
        ({"exactlyOnce": "yes"}, "exactlyOnce is 'yes'"),
        ({"topic": ""}, "topic is empty"),
        ({"kafka.transaction.timeout.ms": "5"}, "means nothing without exactlyOnce"),
        ({"kafka.transactional.id": "mine"}, "exactlyOnce names each task's transaction"),
    ],
)
def test_what_cannot_be_written_exactly_once(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t"} | given)


def test_a_stream_has_its_name_from_spark() -> None:
    given = {"exactlyOnce": "true", "txnAppId": "a", "txnVersion": "1"}
    options = {"kafka.bootstrap.servers": "a:1", "topic": "t"} | given
    with pytest.raises(OptionError, match="Spark names a stream"):
        parse_sink_options(options, is_stream=True)
    assert parse_sink_options(options).txn_app_id == "a"


def test_a_sink_is_at_least_once_unless_it_is_told_otherwise() -> None:
    assert not parse_sink_options({"kafka.bootstrap.servers": "a:1"}).is_exactly_once
