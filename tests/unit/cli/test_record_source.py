"""Lines, CSV and JSON lines as records to send."""

import io

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.records.source import (
    SourceOptions,
    SourceRecord,
    read_csv_rows,
    read_json_lines,
    read_lines,
)

FLIGHTS = b"carrier,flight,dep_delay,time\nUA,1545,2,2013-01-01T10:00:00Z\nAA,007,NA,\n"


def lines(text: bytes, **options: object) -> list[SourceRecord]:
    return list(read_lines(io.BytesIO(text), SourceOptions("in", **options)))  # type: ignore[arg-type]


def rows(text: bytes, **options: object) -> list[SourceRecord]:
    return list(read_csv_rows(io.BytesIO(text), SourceOptions("in", **options)))  # type: ignore[arg-type]


def documents(text: bytes, **options: object) -> list[SourceRecord]:
    return list(read_json_lines(io.BytesIO(text), SourceOptions("in", **options)))  # type: ignore[arg-type]


def test_a_line_is_a_value_byte_for_byte() -> None:
    records = lines(b"a\r\n\xff\xfe\n\nlast")
    assert [record.value for record in records] == [b"a", b"\xff\xfe", b"", b"last"]
    assert [record.key for record in records] == [None] * 4
    assert sum(record.size for record in records) == len(b"a\r\n\xff\xfe\n\nlast")


def test_a_key_separator_splits_at_its_first_place() -> None:
    (record,) = lines(b"k:v:w\n", key_separator=":")
    assert (record.key, record.value) == (b"k", b"v:w")


def test_a_line_without_its_key_separator_is_named() -> None:
    with pytest.raises(CliError, match="in, line 2: no key separator ':'"):
        lines(b"k:v\nkv\n", key_separator=":")


def test_a_null_marker_makes_tombstones() -> None:
    (record,) = lines(b"k=NULL\n", key_separator="=", null_marker="NULL")
    assert (record.key, record.value) == (b"k", None)


def test_csv_rows_become_json_objects() -> None:
    first, second = rows(FLIGHTS, key_field="carrier", null_marker="NA", numbers=True)
    assert first.key == b"UA"
    assert first.value == (
        b'{"carrier":"UA","flight":1545,"dep_delay":2,"time":"2013-01-01T10:00:00Z"}'
    )
    # 007 is no number that JSON could write, and both kinds of nothing are null.
    assert second.value == b'{"carrier":"AA","flight":"007","dep_delay":null,"time":null}'
    assert first.size + second.size == len(FLIGHTS)


def test_csv_cells_stay_text_unless_numbers_are_asked_for() -> None:
    (record,) = rows(b"n\n1\n")
    assert record.value == b'{"n":"1"}'


@pytest.mark.parametrize("cell", ["nan", "inf", "1e3", "+1", "1_000", " 1", "0x10", "1."])
def test_a_cell_that_json_writes_otherwise_stays_text(cell: str) -> None:
    (record,) = rows(f"n,m\n{cell},x\n".encode(), numbers=True)
    assert record.value == f'{{"n":"{cell}","m":"x"}}'.encode()


def test_a_quoted_csv_cell_may_hold_line_breaks() -> None:
    text = b'a,b\n"1\n2",3\n'
    (record,) = rows(text)
    assert record.value == b'{"a":"1\\n2","b":"3"}'
    assert record.size == len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b\n1\n", "in, line 2: 1 fields, but the first line names 2"),
        (b"a,b\n1,2\n\xff,2\n", "in, line 3: it is not UTF-8 text"),
        (b"a,b,a\n1,2,3\n", "in, line 1: 2 columns have the name 'a'"),
    ],
)
def test_a_wrong_csv_row_is_named(text: bytes, message: str) -> None:
    with pytest.raises(CliError, match=message):
        rows(text)


def test_rows_before_one_that_is_no_text_are_read() -> None:
    stream = io.BytesIO(b"a,b\n1,2\n\xff,2\n")
    records = read_csv_rows(stream, SourceOptions("in"))
    assert next(records).value == b'{"a":"1","b":"2"}'
    with pytest.raises(CliError):
        next(records)


def test_a_csv_cell_may_be_as_long_as_a_record() -> None:
    (record,) = rows(b"a\n" + b"x" * 200_000 + b"\n")
    assert len(record.value or b"") == 200_000 + len('{"a":""}')


def test_a_field_that_csv_lacks_lists_those_it_has() -> None:
    with pytest.raises(CliError, match="line 1: no field 'airline'") as raised:
        rows(FLIGHTS, key_field="airline")
    assert raised.value.hint == "The fields are: carrier, flight, dep_delay, time"


def test_an_empty_csv_file_has_no_records() -> None:
    assert rows(b"") == []
    assert rows(b"a,b\n") == []


def test_a_json_line_is_sent_as_it_is() -> None:
    text = b'{"user": "u1",  "n": 1.50}\n\n'
    (record,) = documents(text, key_field="user")
    assert (record.key, record.value) == (b"u1", text.strip())


@pytest.mark.parametrize(
    ("value", "key"), [("7", b"7"), ("null", None), ("[1, 2]", b"[1,2]"), ('"é"', "é".encode())]
)
def test_a_key_field_may_be_any_json(value: str, key: bytes | None) -> None:
    (record,) = documents(f'{{"id": {value}}}\n'.encode(), key_field="id")
    assert record.key == key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"id": 1}\n{"id"\n', "in, line 2: not JSON"),
        (b"[1]\n", "in, line 1: a JSON object was expected, not list"),
        (b"{}\n", "in, line 1: no field 'id'"),
        (b"\xff\n", "in, line 1: not JSON"),
        (b'{"id": NaN}\n', "in, line 1: not JSON: NaN is no number of JSON"),
        (b'{"id": 1}\n{"id": "\\ud800"}\n', "in, line 2: field 'id' holds half of a surrogate"),
        (b'{"id": ["\\ud800"]}\n', "in, line 1: field 'id' holds half of a surrogate"),
        (b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "in, line 1: nested too deep"),
    ],
)
def test_a_wrong_json_line_is_named(text: bytes, message: str) -> None:
    with pytest.raises(CliError, match=message):
        documents(text, key_field="id")


def test_a_byte_order_mark_is_no_part_of_the_first_json_line() -> None:
    (record,) = documents(b'\xef\xbb\xbf{"id": 1}\n')
    assert record.value == b'{"id": 1}'


def test_headers_come_from_options_and_fields() -> None:
    (record,) = documents(
        b'{"a": 1, "b": "x", "c": null, "d": ""}\n',
        header_fields=("b", "c", "d"),
        headers=(("source", b"test"),),
    )
    assert record.headers == [("source", b"test"), ("b", b"x"), ("c", None), ("d", b"")]


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("2013-01-01T10:00:00Z", 1_357_034_400_000),
        ("2013-01-01T10:00:00", 1_357_034_400_000),
        ("2013-01-01T11:00:00+01:00", 1_357_034_400_000),
        ("1357034400000", 1_357_034_400_000),
    ],
)
def test_a_timestamp_field_sets_the_time(text: str, timestamp_ms: int) -> None:
    (record,) = rows(f"at\n{text}\n".encode(), timestamp_field="at")
    assert record.timestamp_ms == timestamp_ms


@pytest.mark.parametrize("text", ["soon", "-5", "9223372036854775808", "1969-12-31T23:59:59Z"])
def test_a_timestamp_that_is_none_is_named(text: str) -> None:
    with pytest.raises(CliError, match=f"in, line 2: '{text}' is not a time"):
        rows(f"at\n{text}\n".encode(), timestamp_field="at")
