"""Batches of the log as JSON records: what is given, what is left out, how much at a time."""

import json
from typing import Any

import pytest

from fairlead_broker.limits import WALKED_RECORDS_MAX
from fairlead_broker.rest.records.rendering import (
    UNPRESENTABLE,
    Form,
    RecordShape,
    Rendered,
    render_batches,
)
from fairlead_wire import records
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.fetch import AbortedTransaction
from fairlead_wire.records import (
    ControlType,
    EndOfTransaction,
    Record,
    encode_batch,
    encode_end_of_transaction,
)

SHAPE = RecordShape("t", 0, Form.STRING)
ROOM = 1_000_000


def batch(first: int, count: int = 1, producer_id: int = -1) -> bytes:
    found = [Record(offset, 0, None, b"x" * 10) for offset in range(first, first + count)]
    is_transactional = producer_id >= 0
    return encode_batch(found, producer_id=producer_id, is_transactional=is_transactional)


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return encode_end_of_transaction(
        EndOfTransaction(kind, 0),
        offset=offset,
        timestamp=0,
        producer_id=producer_id,
        producer_epoch=0,
    )


def offsets(rendered: Rendered) -> list[int]:
    return [json.loads(each.data)["offset"] for each in rendered.records]


def test_only_what_was_aborted_is_left_out() -> None:
    data = b"".join(
        [
            *(batch(0, 2, 7), batch(2, 1, 8), batch(3)),
            *(marker(4, 7, ControlType.ABORT), batch(5, 1, 7), marker(6, 8, ControlType.COMMIT)),
            *(batch(7, 1, 7), marker(8, 7, ControlType.ABORT)),
        ]
    )
    aborted = [AbortedTransaction(7, 7), AbortedTransaction(7, 0)]
    rendered = render_batches(data, SHAPE, offset=0, aborted=aborted, bytes_max=ROOM)
    assert offsets(rendered) == [2, 3, 5]
    assert rendered.next_offset == 9
    assert offsets(render_batches(data, SHAPE, offset=0, bytes_max=ROOM)) == [0, 1, 2, 3, 5, 7]


def test_a_read_may_end_and_begin_within_a_batch() -> None:
    data = batch(0, 10)
    one = render_batches(data, SHAPE, offset=3, bytes_max=1)
    assert (offsets(one), one.next_offset, one.is_full) == ([3], 4, True)
    none = render_batches(data, SHAPE, offset=3, bytes_max=1, one_at_least=False)
    assert (offsets(none), none.next_offset, none.is_full) == ([], 3, True)
    rest = render_batches(data, SHAPE, offset=4, bytes_max=ROOM)
    assert (offsets(rest), rest.next_offset, rest.is_full) == ([4, 5, 6, 7, 8, 9], 10, False)


@pytest.mark.parametrize("value", [b"[" + b"[]," * 50_000 + b"[]]", b"[" + b'"",' * 60_000 + b"0]"])
def test_json_of_too_many_parts_is_not_parsed(value: bytes) -> None:
    data = encode_batch([Record(0, 0, b"1", value), Record(1, 0, None, b"[]")])
    rendered = render_batches(data, RecordShape("t", 0, Form.JSON), offset=0, bytes_max=ROOM)
    first, second = (json.loads(each.data) for each in rendered.records)
    assert (first["key"], first["value"]) == (1, None)
    assert first["error"] == {
        "error_code": UNPRESENTABLE,
        "message": "the value is no JSON: it has more than 50000 parts",
    }
    assert second["value"] == []


def test_a_damaged_batch_is_told() -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    with pytest.raises(RemoteProtocolError):
        render_batches(damaged, SHAPE, offset=0, bytes_max=ROOM)


def test_what_is_before_a_damaged_batch_is_given_first() -> None:
    damaged = bytearray(batch(3, 3))
    damaged[-1] ^= 1
    data = batch(0, 3) + damaged
    before = render_batches(data, SHAPE, offset=0, bytes_max=ROOM)
    assert (offsets(before), before.next_offset, before.is_full) == ([0, 1, 2], 3, True)
    nothing = render_batches(data, SHAPE, offset=3, bytes_max=ROOM, one_at_least=False)
    assert (nothing.records, nothing.next_offset, nothing.is_full) == ([], 3, True)
    with pytest.raises(RemoteProtocolError):
        render_batches(data, SHAPE, offset=3, bytes_max=ROOM)


def test_a_batch_of_too_many_records_is_told_and_not_passed_over() -> None:
    many = batch(1, WALKED_RECORDS_MAX + 1)
    data = batch(0) + many + batch(WALKED_RECORDS_MAX + 2)
    before = render_batches(data, SHAPE, offset=0, bytes_max=ROOM)
    assert (offsets(before), before.next_offset, before.is_full) == ([0], 1, True)
    with pytest.raises(RemoteProtocolError, match=r"100001 records.* at offset 100002"):
        render_batches(data, SHAPE, offset=1, bytes_max=ROOM)
    behind = render_batches(data, SHAPE, offset=WALKED_RECORDS_MAX + 2, bytes_max=ROOM)
    assert offsets(behind) == [WALKED_RECORDS_MAX + 2]


def test_no_more_records_are_decoded_than_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0

    class Counted(Record):
        def __new__(cls, *parts: Any) -> Any:
            nonlocal decoded
            decoded += 1
            return Record.__new__(cls, *parts)

    data = batch(0, 1_000) + batch(1_000, 1_000)
    monkeypatch.setattr(records, "Record", Counted)
    rendered = render_batches(data, SHAPE, offset=900, bytes_max=1)
    assert offsets(rendered) == [900]
    assert decoded == 2
