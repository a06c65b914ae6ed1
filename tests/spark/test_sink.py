"""Writes: rows become records, partitions are those that Java's producers choose."""

from pathlib import Path
from typing import Any

import pytest
from spark_source import Source, Topics, numbers

from fairlead_wire.murmur2 import partition_for_key


def test_rows_become_records(source: Source, topics: Topics) -> None:
    name = topics.create("written", 3)
    rows = source.spark.range(100).selectExpr(
        "CASE WHEN id % 10 = 0 THEN NULL ELSE concat('key ', id) END AS key",
        "concat('value ', id) AS value",
        "array(struct('id' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
        "id AS ignored",
    )
    source.write(rows, topic=name)
    written = source.read(subscribe=name, includeHeaders="true")
    assert numbers(written) == list(range(100))
    for row in written.where("key IS NOT NULL").collect():
        assert row.partition == partition_for_key(row.key, 3)
        assert [each.key for each in row.headers] == ["id"]
        assert row.headers[0].value == row.key[4:]
    assert written.where("key IS NULL").count() == 10


def test_a_row_names_its_topic_and_partition(source: Source, topics: Topics) -> None:
    topics.create("left")
    topics.create("right")
    rows = source.spark.range(20).selectExpr(
        "concat('value ', id) AS value",
        "IF(id < 10, 'left', 'right') AS topic",
        "CAST(id % 2 AS INT) AS partition",
    )
    source.write(rows)
    assert numbers(source.read(subscribe="left")) == list(range(10))
    assert numbers(source.read(assign='{"right": [1]}')) == list(range(11, 20, 2))


def test_a_stream_copies_a_topic_and_goes_on_where_it_was(
    source: Source, topics: Topics, tmp_path: Path
) -> None:
    origin, copy = topics.create("origin"), topics.create("copy")
    topics.fill(origin, 0, 200)
    for last in (200, 260):
        source.run(
            source.stream(subscribe=origin).select("key", "value"), tmp_path / "c", topic=copy
        )
        assert numbers(source.read(subscribe=copy)) == list(range(last))
        if last == 200:
            topics.fill(origin, 200, 60)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id AS value"], {"topic": "left"}, "column value is bigint"),
        (["CAST(id AS STRING) AS value"], {}, "no topic"),
        (
            ["CAST(id AS STRING) AS value", "CAST(NULL AS STRING) AS topic"],
            {},
            "a row has a null topic",
        ),
        (
            ["CAST(id AS STRING) AS value", "77 AS partition"],
            {"topic": "left"},
            "left-77",
        ),
        (["repeat('x', 2000000) AS value"], {"topic": "left"}, "cannot be written to left"),
        (["CAST(id AS STRING) AS value"], {"topic": "left", "kafka.acks": "1"}, "acks must be all"),
    ],
)
def test_rows_that_cannot_be_written(
    source: Source, topics: Topics, columns: list[str], options: dict[str, Any], said: str
) -> None:
    if "left" not in topics.admin.list_topics(timeout=60).topics:
        topics.create("left")
    with pytest.raises(Exception, match=said):
        source.write(source.spark.range(1).selectExpr(*columns), **options)
