"""Objects are cut out of a stream as `json` would, however the stream is cut up."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.rest.documents.json_frames import (
    OversizedError,
    RecordsFrames,
    StreamFrames,
    require_few_parts,
)
from fairlead_broker.rest.documents.json_text import JsonError

LIMITS: dict[str, Any] = {"bytes_max": 100_000, "tokens_max": 10_000, "depth_max": 50}
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\{}[],: \n\u00e4'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=4), max_size=6)


def cut(data: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    pieces = []
    while data:
        size = chance.choice((1, 2, 3, 7, 50, 1000))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


@given(OBJECTS, st.integers(), st.booleans())
def test_a_stream_is_cut_as_json_would(objects: list[Any], seed: int, spaced: bool) -> None:
    separator = " \r\n\t" if spaced else ""
    data = separator.join(json.dumps(each, ensure_ascii=bool(seed % 2)) for each in objects)
    frames = StreamFrames(**LIMITS)
    found: list[bytes] = []
    for piece in cut(data.encode(), seed):
        frames.feed(piece, found)
    frames.finish()
    assert [json.loads(each) for each in found] == objects
    assert not frames.has_partial


@given(OBJECTS.filter(bool), st.dictionaries(st.text(max_size=5), JSON_VALUES), st.integers())
def test_records_are_cut_out_of_what_is_around(
    records: list[Any], around: dict[str, Any], seed: int
) -> None:
    members = [(name, value) for name, value in around.items() if name != "records"]
    members.insert(len(members) // 2, ("records", records))
    frames = RecordsFrames(**LIMITS, around_bytes_max=100_000)
    found: list[bytes] = []
    for piece in cut(json.dumps(dict(members)).encode(), seed):
        frames.feed(piece, found)
    assert frames.finish() == dict(members) | {"records": [None] * len(records)}
    assert [json.loads(each) for each in found] == records


@pytest.mark.parametrize(
    "data",
    [b"1", b'"a"', b"[]", b"{}1", b"{}]", b"}", b"{]", b'{"a":[}', b"{} nope {}", b"\0", b"{" * 51],
)
def test_what_is_no_row_of_objects_is_refused(data: bytes) -> None:
    frames = StreamFrames(**LIMITS)
    with pytest.raises(JsonError):
        for at in range(len(data)):
            frames.feed(data[at : at + 1], [])
        frames.finish()


def test_what_stands_before_a_mistake_is_found() -> None:
    found: list[bytes] = []
    with pytest.raises(JsonError):
        StreamFrames(**LIMITS).feed(b'{"a":1}{"b":2} x {"c":3}', found)
    assert found == [b'{"a":1}', b'{"b":2}']


@pytest.mark.parametrize(
    "data", [b'{"a":"' + b"x" * 200_000, b'{"a":[' + b"[]," * 20_000, b"{" + b" " * 200_000]
)
def test_an_object_is_bounded_while_it_arrives(data: bytes) -> None:
    frames = StreamFrames(**LIMITS)
    with pytest.raises(OversizedError):
        for at in range(0, len(data), 1000):
            frames.feed(data[at : at + 1000], [])


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"records":[]}',
        b'{"records":[1]}',
        b'{"records":[{},1]}',
        b'{"records":[[{}]]}',
        b'{"records":{"records":[{}]}}',
        b'["records",[{}]]',
        b'[{"records":[{}]}]',
        b'{"records":[{}],"records":[{}]}',
        b'{"records":[{}',
        b'{"records":[{}]}{}',
        b'{"records":[{}{}]}',
        b'{"records":[{},]}',
    ],
)
def test_what_is_no_document_of_records_is_refused(data: bytes) -> None:
    frames = RecordsFrames(**LIMITS, around_bytes_max=1000)
    with pytest.raises(JsonError):
        frames.feed(data, [])
        frames.finish()


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize(
    "around", [b'"a":[' + b"1," * 50_000 + b"1]", b'"a":[' + b"[]," * 5_000 + b"[]]"]
)
def test_what_is_around_the_records_is_bounded(around: bytes, is_behind: bool) -> None:
    frames = RecordsFrames(**LIMITS, around_bytes_max=50_000)
    records = b'"records":[{"a":"b"},{}]'
    members = (records, around) if is_behind else (around, records)
    with pytest.raises(OversizedError):
        frames.feed(b"{" + b",".join(members) + b"}", [])


def test_parts_of_records_are_none_of_what_is_around_them() -> None:
    frames = RecordsFrames(**LIMITS, around_bytes_max=1_000_000)
    found: list[bytes] = []
    frames.feed(b'{"records":[' + b",".join([b'{"key":"k","value":{}}'] * 10_000) + b"]}", found)
    assert len(frames.finish()["records"]) == len(found) == 10_000


def test_blanks_around_records_are_no_part_of_what_is_bounded() -> None:
    """A document that is indented for people could have some ten thousands of records only."""
    frames = RecordsFrames(**LIMITS, around_bytes_max=10_000)
    found: list[bytes] = []
    document = {"a": 'b  "c" \\', "records": [{"value": number} for number in range(1_000)], "d": 1}
    data = json.dumps(document, indent=16).replace("\n", "\r\n").encode()
    for piece in cut(data, 1):
        frames.feed(piece, found)
    assert frames.finish() == document | {"records": [None] * 1_000}
    assert [json.loads(each) for each in found] == document["records"]


@pytest.mark.parametrize("wrong", [b'"x":1 \n 2', b'"x":tr \tue', b'"x":"a" \r "b"'])
def test_blanks_still_part_what_they_parted(wrong: bytes) -> None:
    frames = RecordsFrames(**LIMITS, around_bytes_max=1000)
    with pytest.raises(JsonError):
        frames.feed(b'{"records":[{}],' + wrong + b"}", [])
        frames.finish()


@pytest.mark.parametrize("data", [b"[]" * 101, b'"a",' * 201, b'"\\""[' * 101])
def test_parts_are_counted(data: bytes) -> None:
    require_few_parts(data, 202)
    with pytest.raises(OversizedError):
        require_few_parts(data, 200)


def test_parts_of_a_text_without_an_end_are_not_sought() -> None:
    require_few_parts(b'["a' + b'\\"' * 1_000_000, 50_000)
