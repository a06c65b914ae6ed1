"""The records of `__transaction_state` are Kafka's, byte for byte.

The golden file is what Apache Kafka 4.3.1 wrote for one transactional id;
`tests/support/kafka/kafka_transaction_records.py` made it, and says how to make it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.transaction.records import (
    STRING_BYTES_MAX,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from fairlead_broker.transaction.transaction_types import TransactionMetadata, TransactionState

GOLDEN = json.loads(
    Path(__file__).with_name("golden").joinpath("kafka_transaction_records.json").read_text()
)
LOGGED = [each for each in TransactionState if each.title not in ("Dead", "PrepareEpochFence")]
INT64 = st.integers(0, 2**63 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def records(draw: st.DrawFn) -> TransactionMetadata:
    state = draw(st.sampled_from(LOGGED))
    partition = st.tuples(names, st.integers(0, 2**31 - 1))
    is_empty = state is TransactionState.EMPTY
    return TransactionMetadata(
        state,
        draw(INT64),
        draw(st.integers(0, 2**15 - 1)),
        draw(st.integers(1, 2**31 - 1)),
        frozenset() if is_empty else draw(st.frozensets(partition, max_size=300)),
        draw(st.integers(-1, 2**63 - 1)),
        draw(INT64),
        draw(st.integers(-1, 2**63 - 1)),
        draw(st.integers(-1, 2**63 - 1)),
        draw(st.sampled_from([0, 2])),
    )


def test_what_kafka_wrote_is_read_and_written_the_same() -> None:
    states = []
    for record in GOLDEN["records"]:
        key, value = bytes.fromhex(record["key"]), bytes.fromhex(record["value"])
        transactional_id = decode_key(key)
        assert transactional_id == "shop-ü"
        assert encode_key(transactional_id) == key
        metadata = decode_value(value)
        assert metadata is not None
        assert metadata.timeout_ms == 5_000
        # Kafka writes partitions in the order of a hash map, so theirs may be another.
        assert sorted(encode_value(metadata)) == sorted(value)
        assert decode_value(encode_value(metadata)) == metadata
        if len(metadata.partitions) < 2:
            assert encode_value(metadata) == value
        states.append((metadata.state.title, metadata.producer_epoch))
    assert states[0] == ("Empty", 0)
    assert ("PrepareCommit", 0) in states and ("CompleteCommit", 0) in states
    # A time-out raises the epoch of a client that speaks version 1, too.
    assert states[-2:] == [("PrepareAbort", 1), ("CompleteAbort", 1)]


@given(records())
def test_what_is_written_is_read(metadata: TransactionMetadata) -> None:
    assert decode_value(encode_value(metadata)) == metadata


@given(names)
def test_keys_that_are_written_are_read(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


def test_a_value_of_version_0_is_read() -> None:
    """Kafka writes it where the feature transaction.version is 0."""
    value = pack(">hqhib", 0, 77, 3, 60_000, 1)
    value += pack(">i", 2) + pack(">h1si2i", 1, b"t", 2, 0, 5) + pack(">h1sii", 1, b"u", 1, 9)
    value += pack(">qq", 2_000, 1_000)
    assert decode_value(value) == TransactionMetadata(
        TransactionState.ONGOING,
        77,
        3,
        60_000,
        frozenset({("t", 0), ("t", 5), ("u", 9)}),
        1_000,
        2_000,
    )
    empty = pack(">hqhibi", 0, 77, 3, 60_000, 0, -1) + pack(">qq", 2_000, -1)
    assert decode_value(empty) == TransactionMetadata(
        TransactionState.EMPTY, 77, 3, 60_000, update_ms=2_000
    )


def test_a_value_of_version_1_with_each_tag() -> None:
    metadata = TransactionMetadata(
        TransactionState.PREPARE_COMMIT,
        77,
        32_767,
        60_000,
        frozenset({("t", 1), ("t", 0)}),
        1_000,
        2_000,
        previous_producer_id=76,
        next_producer_id=78,
        client_transaction_version=2,
    )
    value = pack(">hqhib", 1, 77, 32_767, 60_000, 2)
    value += b"\2" + b"\2t" + b"\3" + pack(">ii", 0, 1) + b"\0" + pack(">qq", 2_000, 1_000)
    tags = b"\0\x08" + pack(">q", 76) + b"\1\x08" + pack(">q", 78) + b"\2\2" + pack(">h", 2)
    assert encode_value(metadata) == value + b"\3" + tags
    # The fourth is KIP-939's, which Kafka 4.3 knows and nobody uses.
    later = value + b"\4" + tags + b"\3\2" + pack(">h", 5)
    assert decode_value(later) == metadata


@pytest.mark.parametrize("version", [-1, 2, 7])
def test_versions_that_nobody_knows_are_told_apart_from_damage(version: int) -> None:
    assert decode_key(pack(">h", version) + b"anything") is None
    assert decode_value(pack(">h", version) + b"anything") is None


@pytest.mark.parametrize("state", [6, 7, 8, -1])
def test_states_that_are_in_no_log_are_damage(state: int) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode_value(pack(">hqhib", 1, 77, 3, 60_000, state) + b"\0" + pack(">qq", 1, 1) + b"\0")


def test_an_id_that_no_key_can_hold_is_not_written() -> None:
    encode_key("x" * STRING_BYTES_MAX)
    with pytest.raises(ValueError, match="32768 bytes"):
        encode_key("x" * (STRING_BYTES_MAX + 1))


@given(st.binary(max_size=80))
def test_damaged_bytes_are_said_to_be_so(data: bytes) -> None:
    for decode in (decode_key, decode_value):
        for start in (b"", b"\0\0", b"\0\1"):
            try:
                decode(start + data)
            except ValueError as error:
                assert "damaged" in str(error)


@given(records(), st.data())
def test_a_value_that_is_cut_or_changed_is_read_or_damaged(
    metadata: TransactionMetadata, data: st.DataObject
) -> None:
    value = bytearray(encode_value(metadata))
    with pytest.raises(ValueError, match="damaged"):
        decode_value(bytes(value[: data.draw(st.integers(2, len(value) - 1))]))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode_value(bytes(value))
    except ValueError as error:
        assert "damaged" in str(error)
