"""Columns of a write, and the producer's settings."""

import pytest
from confluent_kafka import Producer
from pyspark.sql.types import StructType

from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.errors import OptionError
from fairlead_spark.options import SinkOptions, parse_sink_options
from fairlead_spark.sink import producer_settings
from fairlead_spark.sink_columns import SinkColumns, check_sink_schema

CLIENT = ClientSettings("a:1")


def check(ddl: str, topic: str | None = "out") -> SinkColumns:
    schema = StructType()
    for column in ddl.split("; "):
        name, kind = column.split(" ", 1)
        schema = schema.add(name, kind)
    return check_sink_schema(schema, SinkOptions(CLIENT, topic))


def test_other_columns_are_ignored() -> None:
    assert check("offset long; value string; key binary") == SinkColumns(value=1, key=2)


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("key string", "column value is missing"),
        ("value long", "column value is bigint; it must be string or binary"),
        ("value string; partition string", "must be int"),
        ("value string; headers string", "array<struct<key:string,value:binary>>"),
    ],
)
def test_wrong_columns_are_named(ddl: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check(ddl)


def test_a_row_must_go_somewhere() -> None:
    with pytest.raises(OptionError, match="no topic"):
        check("value string", topic=None)
    assert check("value string; topic string", topic=None).topic == 1


def test_settings_of_java_become_those_of_librdkafka() -> None:
    given = (("max.request.size", "5"), ("buffer.memory", "2048"), ("linger.ms", "7"))
    settings = producer_settings(ClientSettings("a:1", producer=given))
    assert settings["message.max.bytes"] == "5"
    assert settings["queue.buffering.max.kbytes"] == "2"
    assert settings["linger.ms"] == "7"
    assert settings["enable.idempotence"] is True


def test_what_a_producer_holds_is_bounded_and_takes_the_largest_record() -> None:
    def queue_kib(**given: str) -> int:
        pairs = tuple((name.replace("_", "."), value) for name, value in given.items())
        settings = producer_settings(ClientSettings("a:1", producer=pairs))
        return int(settings["queue.buffering.max.kbytes"])

    assert queue_kib() == 65536
    assert queue_kib(buffer_memory=str(8 << 20)) == 8192
    assert queue_kib(max_request_size=str(100 << 20)) == 102400
    assert queue_kib(buffer_memory="2048", max_request_size="5000000") == 4883
    with pytest.raises(OptionError, match="is '8m', which is no number of bytes"):
        queue_kib(buffer_memory="8m")


def test_acknowledgements_cannot_be_weakened() -> None:
    with pytest.raises(OptionError, match="acks must be all"):
        producer_settings(ClientSettings("a:1", producer=(("acks", "1"),)))


def test_settings_that_only_tune_java_do_not_reach_librdkafka() -> None:
    """It would refuse to start with one that it does not know."""
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.max.block.ms": "5",
        "kafka.batch.size": "9000",
        "kafka.request.timeout.ms": "7",
        "topic": "t",
    }
    settings = producer_settings(parse_sink_options(given).client)
    assert settings["batch.size"] == "9000"
    Producer(settings | {"log_level": 0})
