"""The window of an idempotent producer, and its snapshot."""

import google_crc32c
import pytest

from fairlead_broker.limits import RETRIED_WITHIN_MS
from fairlead_broker.log.producers.producer_snapshot import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from fairlead_broker.log.producers.producer_state import ProducedBatch, ProducerState
from fairlead_wire.errors import ErrorCode, KafkaError

LAST = 2**31 - 1


def window(*batches: tuple[int, int], epoch: int = 0) -> ProducerState:
    """A state that knows producer 1 with these (first, last) sequences."""
    state = ProducerState()
    for offset, (first, last) in enumerate(batches):
        state.record(1, epoch, ProducedBatch(first, last, offset * 10, offset * 10 + 5, 7), 100)
    return state


def verdict(
    state: ProducerState, first: int, last: int, *, epoch: int = 0, producer: int = 1
) -> ErrorCode | int | str:
    try:
        original = state.find_duplicate(producer, epoch, first, last)
    except KafkaError as error:
        return error.code
    return "append" if original is None else original.first_offset


FIVE = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


@pytest.mark.parametrize(
    ("known", "batch", "expected"),
    [
        (FIVE, (10, 12), "append"),
        (FIVE, (8, 9), 40),
        (FIVE, (0, 1), 0),
        (FIVE, (11, 12), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (FIVE, (8, 10), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([*FIVE, (10, 11)], (0, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([*FIVE, (10, 11)], (2, 3), 10),
        ([(LAST - 1, LAST)], (0, 4), "append"),
        ([(LAST, 1)], (2, 2), "append"),
        ([(LAST, 1)], (LAST, 1), 0),
        ([(0, LAST)], (1, 1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_a_batch_continues_repeats_or_is_refused(
    known: list[tuple[int, int]], batch: tuple[int, int], expected: ErrorCode | int | str
) -> None:
    assert verdict(window(*known), *batch) == expected


def test_epochs() -> None:
    state = window((0, 3), epoch=5)
    assert verdict(state, 4, 4, epoch=4) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert verdict(state, 4, 4, epoch=6) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verdict(state, 0, 0, epoch=6) == "append"
    state.record(1, 6, ProducedBatch(0, 0, 50, 50, 7), 100)
    assert verdict(state, 0, 3, epoch=5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert verdict(state, 1, 1, epoch=6) == "append"


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert verdict(ProducerState(), 4711, 4711) == "append"


def test_memory_is_bounded_and_the_least_active_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_broker.log.producers.producer_state.PRODUCERS_PER_LOG_MAX", 3)
    state = ProducerState()
    for producer, sequence in ((1, 0), (2, 0), (3, 0), (1, 1), (4, 0)):
        state.record(producer, 0, ProducedBatch(sequence, sequence, 0, 0, 7), 100)
    assert [entry.producer_id for entry in state] == [3, 1, 4]


def test_silence_expires() -> None:
    state = ProducerState()
    for producer, now_ms in ((1, 100), (2, 200), (3, 300)):
        state.record(producer, 0, ProducedBatch(0, 0, 0, 0, 7), now_ms)
    assert state.expire(350, 150) == 2
    assert [entry.producer_id for entry in state] == [3]


def test_snapshot_bytes_are_kafkas() -> None:
    state = window((5, 9), epoch=2)
    content = encode_snapshot(state)
    assert len(content) == 10 + 46
    assert content[:2] == b"\x00\x01"
    assert content[10:] == bytes.fromhex(
        "0000000000000001 0002 00000009 0000000000000005 00000005 0000000000000007"
        "ffffffff ffffffffffffffff"
    )


def test_what_a_client_may_send_again_is_known_after_a_snapshot() -> None:
    state = ProducerState()
    for first, last in (*FIVE, (10, 12)):
        state.record(1, 0, ProducedBatch(first, last, first + 50, last + 50, 7), 100)
    before = [list(entry.batches) for entry in state]
    state.restore(decode_snapshot(encode_snapshot(state)), 200)
    assert [list(entry.batches) for entry in state] == before
    assert verdict(state, *FIVE[1]) == 52, "the oldest that is remembered"
    assert verdict(state, *FIVE[0]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_entry_of_a_producer_is_the_one_that_kafka_keeps() -> None:
    content = encode_snapshot(window((0, 4), (5, 9), epoch=2))
    assert len(content) == 10 + 2 * 46
    assert content[-46:] == encode_snapshot(window((5, 9), epoch=2))[-46:].replace(
        (5).to_bytes(8, "big") + (5).to_bytes(4, "big"),
        (15).to_bytes(8, "big") + (5).to_bytes(4, "big"),
    )


def test_of_a_producer_that_is_silent_only_the_last_batch_is_kept() -> None:
    state = window((0, 4), (5, 9))
    late_ms = 100 + RETRIED_WITHIN_MS + 1
    state.record(2, 0, ProducedBatch(0, 0, 20, 20, 7), late_ms)
    kept = {entry.producer_id: entry.batches for entry in decode_snapshot(encode_snapshot(state))}
    assert [batch.last_sequence for batch in kept[1]] == [9]


def test_batches_of_an_open_transaction_are_remembered_with_it() -> None:
    state = ProducerState()
    for sequence in range(2):
        batch = ProducedBatch(sequence, sequence, sequence, sequence, 7)
        state.record_transactional(1, 0, batch, 100)
    state.restore(decode_snapshot(encode_snapshot(state)), 200)
    (entry,) = state
    assert (entry.transaction_first_offset, len(entry.batches)) == (0, 2)
    assert state.oldest_open is entry


def test_batches_of_an_earlier_epoch_say_nothing() -> None:
    old, new = encode_snapshot(window((0, 4), epoch=1)), encode_snapshot(window((0, 1), epoch=2))
    body = (2).to_bytes(4, "big") + old[10:] + new[10:]
    content = old[:2] + google_crc32c.value(body).to_bytes(4, "big") + body
    (entry,) = decode_snapshot(content)
    assert (entry.epoch, [batch.last_sequence for batch in entry.batches]) == (2, [1])


@pytest.mark.parametrize("cut", [0, 3, 9, 55])
def test_a_cut_off_snapshot_is_refused(cut: int) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(encode_snapshot(window((0, 0)))[:cut])


def test_every_flipped_bit_of_a_snapshot_is_noticed() -> None:
    content = encode_snapshot(window((0, 0), (1, 3)))
    for bit in range(len(content) * 8):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(damaged))
