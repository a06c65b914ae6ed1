"""How a load reads markers, and what it makes of logs that nobody writes."""

from struct import pack_into

import pytest

from fairlead_broker.coordinator.record_batching import build_batch, encode_body
from fairlead_broker.coordinator.replay import RECORDS_PER_STEP, Replay
from fairlead_broker.coordinator.replayed_transactions import UndecidedRecord
from fairlead_broker.log.compaction.batch_cleaning import BatchCleaning
from fairlead_broker.log.compaction.offset_map import OffsetMap
from fairlead_broker.log.producers.end_marker import EndMarker, encode_end_marker
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.record_batch import TRANSACTIONAL_MASK, batch_crc, decode_batch_header
from fairlead_wire.records import Record, encode_batch

ABORT, COMMIT = 0, 1


def staged(offset: int, producer_id: int, values: dict[bytes, bytes | None] | None = None) -> bytes:
    batch = build_batch(
        [encode_body(key, value) for key, value in (values or {b"k": b"v"}).items()],
        timestamp_ms=5,
        attributes=TRANSACTIONAL_MASK,
        producer_id=producer_id,
        producer_epoch=0,
    )
    pack_into(">q", batch, 0, offset)
    return bytes(batch)


def plain(offset: int, values: dict[bytes, bytes | None]) -> bytes:
    bodies = [encode_body(key, value) for key, value in values.items()]
    batch = build_batch(bodies, timestamp_ms=5)
    pack_into(">q", batch, 0, offset)
    return bytes(batch)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    """As partitions write it."""
    end = EndMarker(producer_id, 0, 3, is_commit, 2)
    return bytes(encode_end_marker(end, offset=offset, leader_epoch=1, timestamp_ms=5))


def control(offset: int, producer_id: int, records: list[Record]) -> bytes:
    return encode_batch(
        [each._replace(offset=offset) for each in records],
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


def key_of(kind: int, version: int = 0) -> bytes:
    return version.to_bytes(2, "big") + kind.to_bytes(2, "big")


def read(data: bytes) -> Replay:
    replay = Replay()
    for _ in replay.read(data):
        pass
    return replay


@pytest.mark.parametrize(
    ("kind", "newest"), [(COMMIT, {b"k": b"v"}), (ABORT, {})], ids=["commit", "abort"]
)
def test_a_marker_is_read_however_it_is_laid_out(kind: int, newest: dict[bytes, bytes]) -> None:
    """Fields may be added at the end of its value (KIP-98), and others may write later versions."""
    value = b"\0\0\0\0\0\3"
    layouts = [
        marker(1, 7, is_commit=kind == COMMIT),
        control(1, 7, [Record(1, 5, key_of(kind), value)]),
        control(1, 7, [Record(1, 5, key_of(kind), value + b"more")]),
        control(1, 7, [Record(1, 5, key_of(kind, 1), value)]),
    ]
    for layout in layouts:
        replay = read(staged(0, 7) + layout)
        assert replay.newest == newest
        assert not replay.transactions.open


@pytest.mark.parametrize("kind", [2, 3, 255, 256, 257])
def test_control_batches_of_other_kinds_end_nothing(kind: int) -> None:
    for value in (b"\0\0\0\0\0\3", b"other things"):
        replay = read(staged(0, 7) + control(1, 7, [Record(1, 5, key_of(kind), value)]))
        assert replay.newest == {}
        assert list(replay.transactions.undecided()) == [UndecidedRecord(7, b"k", 0, b"v")]


def test_a_marker_that_compaction_has_emptied_ends_nothing_that_is_left() -> None:
    emptied = bytearray(control(1, 7, [Record(1, 5, key_of(COMMIT), b"\0\0\0\0\0\3")])[:61])
    pack_into(">i", emptied, 8, 49)
    pack_into(">i", emptied, 57, 0)
    pack_into(">I", emptied, 17, batch_crc(emptied, 0, 61))
    assert read(bytes(emptied) + plain(2, {b"k": b"v"})).newest == {b"k": b"v"}


def test_a_cut_marker_is_damage() -> None:
    with pytest.raises(RemoteProtocolError):
        read(control(1, 7, [Record(1, 5, b"\0\0", b"")]))


def test_tombstones_of_a_transaction_count_with_it() -> None:
    """Nobody writes them; what compaction makes of them must be what a load does."""
    data = plain(0, {b"k": b"old"}) + staged(1, 7, {b"k": None})
    assert read(data).newest == {b"k": b"old"}
    assert read(data + marker(2, 7, is_commit=True)).newest == {}
    assert read(data + marker(2, 7, is_commit=False)).newest == {b"k": b"old"}


def test_a_large_transaction_is_read_in_steps() -> None:
    values: dict[bytes, bytes | None] = {b"%d" % n: b"v" for n in range(3 * RECORDS_PER_STEP)}
    replay = Replay()
    assert sum(1 for _ in replay.read(staged(0, 7, values))) >= 3
    assert len(list(replay.transactions.undecided())) == len(values)


def test_what_changed_is_noted_only_while_a_transaction_is_open() -> None:
    data = staged(0, 7) + plain(1, {b"a": b"1"}) + marker(2, 7, is_commit=True)
    replay = read(data + plain(3, {b"b": b"2"}))
    assert replay.newest == {b"k": b"v", b"a": b"1", b"b": b"2"}
    assert not replay.transactions._changed_at
    assert not replay.transactions._removed_at


def test_a_batch_that_compaction_emptied_opens_no_transaction() -> None:
    """Its marker may be gone, and whatever came after it would wait for that for ever."""
    batch = bytearray(staged(0, 7)[:61])
    pack_into(">i", batch, 8, 49)
    pack_into(">i", batch, 57, 0)
    pack_into(">I", batch, 17, batch_crc(batch, 0, 61))
    replay = read(bytes(batch))
    assert replay.next_offset == 1
    assert not replay.transactions.open


@pytest.mark.parametrize(("kind", "newest"), [(COMMIT, {b"k": b"v"}), (ABORT, {})])
@pytest.mark.parametrize("horizon_ms", [6, 86_400_000, 2**63 - 1])
def test_a_marker_with_a_delete_horizon_is_a_marker(
    kind: int, newest: dict[bytes, bytes], horizon_ms: int
) -> None:
    content = marker(1, 7, is_commit=kind == COMMIT)
    rules = BatchCleaning(
        OffsetMap(keys_expected=1, bytes_max=100, salt=b""),
        end_offset=2,
        now_ms=horizon_ms,
        delete_retention_ms=0,
        last_offsets={},
    )
    cleaned = rules.clean(decode_batch_header(content), memoryview(content), is_last=False)
    assert cleaned is not None
    assert cleaned.header.base_timestamp == horizon_ms
    assert read(staged(0, 7) + bytes(cleaned.data)).newest == newest
