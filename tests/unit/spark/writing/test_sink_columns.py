"""Columns of a write, and the producer's settings."""

import pytest
from pyspark.sql.types import StructType

from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.errors import OptionError
from fairlead_spark.options import SinkOptions, parse_sink_options
from fairlead_spark.writing.sink_columns import SinkColumns, check_sink_schema
from fairlead_spark.writing.sink_settings import ProducerSettings, read_producer_settings
from fairlead_wire.compression import Codec

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


def test_settings_have_javas_names() -> None:
    given = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.max.request.size": "5000",
        "kafka.batch.size": "9000",
        "kafka.buffer.memory": "4294967296",
        "kafka.compression.type": "LZ4",
        "kafka.delivery.timeout.ms": "1500",
        "kafka.max.block.ms": "5",
        "kafka.linger.ms": "5",
        "kafka.acks": "-1",
        "kafka.transaction.timeout.ms": "2500",
        "exactlyOnce": "true",
        "topic": "t",
    }
    assert read_producer_settings(parse_sink_options(given).client) == ProducerSettings(
        codec=Codec.LZ4,
        record_bytes_max=5000,
        batch_bytes_max=5000,
        queue_bytes=4294967296,
        delivery_timeout_s=1.5,
        transaction_timeout_s=2.5,
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("acks", "1", "acks must be all"),
        ("buffer.memory", "8m", "kafka.buffer.memory is '8m', which is no whole number"),
        ("compression.type", "brotli", "it can be none, gzip, snappy, lz4, zstd"),
        ("max.request.size", "3", "kafka.max.request.size is 3; it must be 61 or more"),
        ("delivery.timeout.ms", "0", "it must be 1 or more"),
        ("transaction.timeout.ms", "2147483648", "it must be 2147483647 or less"),
    ],
)
def test_settings_that_cannot_be(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read_producer_settings(ClientSettings("a:1", producer=((name, value),)))
