"""Records of `__consumer_offsets`: the bytes are Kafka's, old ones are read, damage is told.

The golden file is what Apache Kafka 4.3.1 wrote for three groups;
`tests/support/kafka/kafka_group_records.py` made it, and says how to make it anew.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.group.records.classic_records import (
    GroupKey,
    GroupValue,
    MemberRecord,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)

GOLDEN = json.loads(
    Path(__file__).with_name("golden").joinpath("kafka_group_records.json").read_text()
)
GOLDEN_RECORDS = [
    (bytes.fromhex(each["key"]), each["value"] and bytes.fromhex(each["value"]))
    for each in GOLDEN["records"]
]
MEMBER = MemberRecord("m-1", "i-1", "client", "/10.0.0.1", 300_000, 45_000, b"sub", b"asg")
GROUP = GroupValue("consumer", 5, "range", "m-1", 1_700_000_000_000, (MEMBER,))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
members = st.builds(
    MemberRecord,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    st.binary(max_size=30),
    st.binary(max_size=30),
)
groups = st.builds(
    GroupValue,
    texts,
    st.integers(0, 2**31 - 1),
    st.none() | texts,
    st.none() | texts,
    st.integers(-1, 2**63 - 1),
    st.lists(members, max_size=4).map(tuple),
)


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    return struct.pack(">h", len(text)) + text.encode()


def test_the_golden_file_is_of_a_real_kafka() -> None:
    assert GOLDEN["kafka"] == "4.3.1"
    kinds = {type(decode_key(key)) for key, _ in GOLDEN_RECORDS}
    assert kinds == {OffsetKey, GroupKey}
    assert any(value is None for _, value in GOLDEN_RECORDS)


@pytest.mark.parametrize("key", [key for key, _ in GOLDEN_RECORDS])
def test_keys_are_the_bytes_that_kafka_writes(key: bytes) -> None:
    decoded = decode_key(key)
    assert decoded is not None
    assert encode_key(decoded) == key


def test_groups_are_the_bytes_that_kafka_writes() -> None:
    values = [v for k, v in GOLDEN_RECORDS if v and isinstance(decode_key(k), GroupKey)]
    assert len(values) == 5
    for value in values:
        assert encode_group_value(decode_group_value(value)) == value
    static = decode_group_value(values[1])
    assert (static.protocol_type, static.generation_id, static.protocol) == ("consumer", 1, "range")
    assert [member.group_instance_id for member in static.members] == ["instance-1"]


def test_offsets_that_kafka_writes_in_version_4_are_read() -> None:
    offsets = {
        key: decode_offset_value(value)
        for key, value in ((decode_key(k), v) for k, v in GOLDEN_RECORDS)
        if value and isinstance(key, OffsetKey)
    }
    noted = offsets[OffsetKey("dynamic", "orders", 0)]
    assert noted[:3] == (7, 3, "note: ü")
    assert offsets[OffsetKey("standalone", "orders", 1)].offset == 42


def test_offsets_are_written_in_version_3() -> None:
    value = OffsetValue(7, 3, "note", 1_000)
    encoded = struct.pack(">hqi", 3, 7, 3) + string("note") + struct.pack(">q", 1_000)
    assert encode_offset_value(value) == encoded
    assert decode_offset_value(encoded) == value


def test_a_string_that_no_record_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="32767 is the most"):
        encode_key(GroupKey("g" * 32_768))


@given(groups)
def test_groups_come_back_as_they_were_written(group: GroupValue) -> None:
    assert decode_group_value(encode_group_value(group)) == group


@given(texts, texts, st.integers(0, 2**31 - 1))
def test_keys_come_back_as_they_were_written(group_id: str, topic: str, partition: int) -> None:
    for key in (OffsetKey(group_id, topic, partition), GroupKey(group_id)):
        decoded = decode_key(encode_key(key))
        assert decoded == key
        assert type(decoded) is type(key)


@given(st.integers(-1, 2**63 - 1), st.integers(-1, 2**31 - 1), texts, st.integers(-1, 2**63 - 1))
def test_offsets_come_back_as_they_were_written(
    offset: int, leader_epoch: int, metadata: str, timestamp_ms: int
) -> None:
    value = OffsetValue(offset, leader_epoch, metadata, timestamp_ms)
    assert decode_offset_value(encode_offset_value(value)) == value


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (
            struct.pack(">hq", 0, 9) + string("m") + struct.pack(">q", 5),
            OffsetValue(9, -1, "m", 5),
        ),
        (
            struct.pack(">hq", 1, 9) + string("m") + struct.pack(">qq", 5, 77),
            OffsetValue(9, -1, "m", 5, 77),
        ),
        (
            struct.pack(">hq", 2, 9) + string("m") + struct.pack(">q", 5),
            OffsetValue(9, -1, "m", 5),
        ),
        (
            struct.pack(">hqi", 4, 9, 2)
            + b"\2m"
            + struct.pack(">q", 5)
            + b"\1\0\x10"
            + bytes(range(16)),
            OffsetValue(9, 2, "m", 5, topic_id=bytes(range(16))),
        ),
        (
            struct.pack(">hqi", 4, 9, 2) + b"\2m" + struct.pack(">q", 5) + b"\0",
            OffsetValue(9, 2, "m", 5),
        ),
        (
            struct.pack(">hqi", 4, 9, 2) + b"\2m" + struct.pack(">q", 5) + b"\1\7\x10" + bytes(16),
            OffsetValue(9, 2, "m", 5),
        ),
    ],
    ids=["v0", "v1", "v2", "v4 with a topic id", "v4 without one", "v4 with another tag"],
)
def test_offsets_of_every_version_are_read(encoded: bytes, expected: OffsetValue) -> None:
    assert decode_offset_value(encoded) == expected


def old_group(version: int) -> bytes:
    """GROUP as an older version says it."""
    parts = [struct.pack(">h", version), string("consumer"), struct.pack(">i", 5)]
    parts += [string("range"), string("m-1")]
    if version >= 2:
        parts.append(struct.pack(">q", GROUP.state_timestamp_ms))
    parts += [struct.pack(">i", 1), string("m-1")]
    if version >= 3:
        parts.append(string("i-1"))
    parts += [string("client"), string("/10.0.0.1")]
    if version >= 1:
        parts.append(struct.pack(">i", 300_000))
    parts.append(struct.pack(">i", 45_000))
    parts += [struct.pack(">i", 3), b"sub", struct.pack(">i", 3), b"asg"]
    return b"".join(parts)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_groups_of_every_version_are_read(version: int) -> None:
    value = decode_group_value(old_group(version))
    assert value.state_timestamp_ms == (GROUP.state_timestamp_ms if version >= 2 else -1)
    (member,) = value.members
    assert member.group_instance_id == ("i-1" if version >= 3 else None)
    # A member without a rebalance time-out of its own has its session's.
    assert member.rebalance_timeout_ms == (300_000 if version >= 1 else 45_000)
    assert (member.subscription, member.assignment) == (b"sub", b"asg")


def test_a_flexible_group_is_read() -> None:
    member = b"\4m-1\4i-1\7client\2h" + struct.pack(">ii", 300_000, 45_000) + b"\4sub\4asg\0"
    encoded = (
        struct.pack(">h", 4)
        + b"\x09consumer"
        + struct.pack(">i", 5)
        + b"\6range\0"
        + struct.pack(">q", 1)
        + b"\2"
        + member
        + b"\0"
    )
    expected = GROUP._replace(
        leader=None, state_timestamp_ms=1, members=(MEMBER._replace(client_host="h"),)
    )
    assert decode_group_value(encoded) == expected


def test_an_offset_key_of_version_0_is_read() -> None:
    encoded = b"\0\0" + string("g") + string("t") + struct.pack(">i", 3)
    assert decode_key(encoded) == OffsetKey("g", "t", 3)


def test_keys_of_other_kinds_of_groups_are_skipped() -> None:
    assert decode_key(b"\0\3" + string("g")) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\0\1", b"\xff\xff\0\1g", b"\0\2\0\5g", b"\0\2\0\1\xff", b"\0\2\0\1g!"],
)
def test_damaged_keys_are_value_errors(data: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode_key(data)


@pytest.mark.parametrize("version", [5, -1])
def test_values_of_unknown_versions_are_value_errors(version: int) -> None:
    head = struct.pack(">h", version)
    with pytest.raises(ValueError, match=f"version {version}"):
        decode_offset_value(head + bytes(40))
    with pytest.raises(ValueError, match=f"version {version}"):
        decode_group_value(head + bytes(40))


def test_a_count_of_members_that_cannot_be_is_a_value_error() -> None:
    encoded = encode_group_value(GROUP._replace(members=()))
    with pytest.raises(ValueError, match="2147483647 members"):
        decode_group_value(encoded[:-4] + b"\x7f\xff\xff\xff")


@given(st.binary(max_size=60), st.sampled_from(range(6)))
def test_garbage_is_a_value_error_or_a_value(data: bytes, version: int) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        for each in (data, struct.pack(">h", version) + data):
            try:
                decode(each)
            except ValueError as error:
                assert "damaged" in str(error)


@given(st.integers(0, 200))
def test_a_group_that_is_cut_off_is_a_value_error(kept: int) -> None:
    encoded = encode_group_value(GROUP)
    with pytest.raises(ValueError, match="damaged"):
        decode_group_value(encoded[: min(kept, len(encoded) - 1)])
