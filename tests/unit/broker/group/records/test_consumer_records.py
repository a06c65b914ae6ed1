"""Records of groups of KIP-848: the bytes of Apache Kafka's own serializer, and damaged ones."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.group.assignors.assignment import TopicIdPartition
from fairlead_broker.group.records.consumer_records import (
    ClassicMember,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    RecordKey,
    RecordType,
    RecordValue,
    ResolvedRegularExpression,
    TargetMetadata,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from fairlead_model.ids import TopicId

GOLDEN = json.loads(
    (Path(__file__).parent / "golden/kafka_consumer_group_records.json").read_text()
)
ONE = TopicId((1).to_bytes(8, "big") + (2).to_bytes(8, "big"))
TWO = TopicId((3).to_bytes(8, "big") + (4).to_bytes(8, "big"))
MEMBER = MemberMetadata("i", "r", "c", "/h", ("a", "b"), "x.*", 300_000, "range")
CASES: dict[str, tuple[RecordKey, RecordValue]] = {
    "epoch": (RecordKey(RecordType.EPOCH, "g"), GroupEpoch(7)),
    "epoch with hash": (RecordKey(RecordType.EPOCH, "g"), GroupEpoch(7, -5)),
    "member": (RecordKey(RecordType.MEMBER_METADATA, "g", "m"), MEMBER),
    "member without pattern": (
        RecordKey(RecordType.MEMBER_METADATA, "g", "m"),
        MemberMetadata(None, None, "c", "/h", ("a", "b"), "", 5, None),
    ),
    "classic member": (
        RecordKey(RecordType.MEMBER_METADATA, "g", "m"),
        MemberMetadata(
            None,
            None,
            "c",
            "/h",
            (),
            "",
            5,
            None,
            ClassicMember(45_000, (("range", b"\1\2\3"), ("sticky", b""))),
        ),
    ),
    "target epoch": (RecordKey(RecordType.TARGET_METADATA, "g"), TargetMetadata(9)),
    "target epoch with timestamp": (
        RecordKey(RecordType.TARGET_METADATA, "g"),
        TargetMetadata(9, 1_700_000_000_000),
    ),
    "target": (
        RecordKey(RecordType.TARGET_MEMBER, "g", "m"),
        frozenset({TopicIdPartition(ONE, 0), TopicIdPartition(ONE, 2), TopicIdPartition(TWO, 1)}),
    ),
    "current": (
        RecordKey(RecordType.CURRENT_ASSIGNMENT, "g", "m"),
        CurrentAssignment(
            5,
            4,
            MemberState.UNREVOKED_PARTITIONS,
            {TopicIdPartition(ONE, 0): 3, TopicIdPartition(ONE, 2): 5},
            {TopicIdPartition(TWO, 1): 2},
        ),
    ),
    "regular expression": (
        RecordKey(RecordType.REGULAR_EXPRESSION, "g", "x.*"),
        ResolvedRegularExpression(frozenset({"x1", "x2"}), 12, 1_700_000_000_000),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_records_are_what_kafka_writes(name: str) -> None:
    key, value = CASES[name]
    golden_key, golden_value = map(bytes.fromhex, GOLDEN[name])
    assert encode_key(key) == golden_key
    assert encode_value(value) == golden_value
    assert decode_key(golden_key) == key
    assert decode_value(key.type, golden_value) == value


def test_partitions_from_before_kip_1251_have_the_epoch_of_their_member() -> None:
    for name, epoch in (("current before KIP-1251", 5), ("away before KIP-1251", 0)):
        value = bytes.fromhex(GOLDEN[name][1])
        current = decode_value(RecordType.CURRENT_ASSIGNMENT, value)
        assert isinstance(current, CurrentAssignment)
        assert set(current.assigned.values()) == {epoch}


def test_what_kafka_4_0_wrote_of_topics_is_known_and_means_nothing() -> None:
    key, value = map(bytes.fromhex, GOLDEN["partition metadata"])
    assert decode_key(key) == RecordKey(RecordType.PARTITION_METADATA, "g")
    assert decode_value(RecordType.PARTITION_METADATA, value) is None


def test_a_tombstone_has_no_bytes() -> None:
    assert encode_value(None) is None


@pytest.mark.parametrize("number", [0, 1, 2, 9, 15, 17, 99])
def test_keys_of_other_kinds_are_not_ours(number: int) -> None:
    assert decode_key(number.to_bytes(2, "big") + b"\0\1g") is None


def test_a_state_that_is_not_known_is_kept_as_such() -> None:
    value = bytearray(bytes.fromhex(GOLDEN["current"][1]))
    value[10] = 9
    current = decode_value(RecordType.CURRENT_ASSIGNMENT, bytes(value))
    assert isinstance(current, CurrentAssignment)
    assert current.state is MemberState.UNKNOWN


@given(st.sampled_from(sorted(CASES)), st.data())
def test_damaged_records_raise_value_error_and_nothing_else(name: str, data: st.DataObject) -> None:
    key, _ = CASES[name]
    golden_key, golden_value = map(bytes.fromhex, GOLDEN[name])
    for golden, decode in (
        (golden_key, decode_key),
        (golden_value, lambda each: decode_value(key.type, each)),
    ):
        damaged = bytearray(golden)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        del damaged[data.draw(st.integers(0, len(damaged))) :]
        with contextlib.suppress(ValueError):
            decode(bytes(damaged))
