"""Offsets in JSON: checkpoints must read back, options must name exactly what is read."""

import json

import pytest

from fairlead_spark.errors import OptionError, SourceError
from fairlead_spark.offsets import (
    StreamOffset,
    TopicPartition,
    check_same_partitions,
    parse_assignment,
    parse_offsets,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_checkpoint_reads_back() -> None:
    offset = StreamOffset({B0: 5, A1: 2, A0: 1}, {"a": b"0123456789abcdef", "b": bytes(16)})
    text = json.dumps(offset.to_json())
    read = StreamOffset.from_json(json.loads(text))
    assert read.positions == offset.positions
    assert read.topic_ids == {"a": b"0123456789abcdef"}
    assert json.dumps(read.to_json()) == text


def test_equal_offsets_give_equal_text() -> None:
    one, other = StreamOffset({A0: 1, A1: 2}), StreamOffset({A1: 2, A0: 1})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_the_end_of_a_first_batch_says_where_that_began() -> None:
    end = StreamOffset({A0: 7}, {"a": b"0123456789abcdef"}, {A0: 5, A1: 2})
    read = StreamOffset.from_json(json.loads(json.dumps(end.to_json())))
    assert read == end
    assert read.is_at(StreamOffset({A0: 7}, {"a": b"0123456789abcdef"}))
    assert not read.is_at(StreamOffset({A0: 5}, {"a": b"0123456789abcdef"}))


@pytest.mark.parametrize("begun", [None, {}])
def test_a_first_batch_that_began_at_no_partition_is_told_from_a_later_batch(
    begun: dict[TopicPartition, int] | None,
) -> None:
    end = StreamOffset({A0: 7}, {}, begun)
    assert StreamOffset.from_json(json.loads(json.dumps(end.to_json()))) == end


def test_a_checkpoint_of_sparks_kafka_source_is_understood() -> None:
    assert StreamOffset.from_json({"a": {"0": 7}}) == StreamOffset({A0: 7})


@pytest.mark.parametrize(
    "nested", [{"a": 3}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"@topicIds": {"a": "short"}}]
)
def test_another_checkpoint_is_refused(nested: dict[str, object]) -> None:
    with pytest.raises(SourceError, match="another checkpointLocation"):
        StreamOffset.from_json(nested)


def test_every_partition_must_be_named_and_no_other() -> None:
    with pytest.raises(OptionError, match="says nothing about a-1"):
        check_same_partitions({A0: 1}, {A0, A1}, option="startingOffsets")
    with pytest.raises(OptionError, match="names b-0"):
        check_same_partitions({A0: 1, B0: 1}, {A0}, option="startingOffsets")
    check_same_partitions({A0: -2}, {A0}, option="startingOffsets")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"a": {"0": true}}',
        '{"a": {"0": -3}}',
        "7",
        '{"a": {"0": 9223372036854775808}}',
    ],
)
def test_offsets_that_mean_nothing(text: str) -> None:
    with pytest.raises(OptionError, match="endingOffsets"):
        parse_offsets(text, option="endingOffsets")


def test_assignment() -> None:
    assert parse_assignment('{"a": [1, 0], "b": [0]}') == (A0, A1, B0)
    for wrong in ('{"a": 1}', "{}", '{"a": [-1]}', "a"):
        with pytest.raises(OptionError, match="assign"):
            parse_assignment(wrong)
