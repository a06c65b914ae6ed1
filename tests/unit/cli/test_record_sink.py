"""Consumed records as text, raw bytes and JSON."""

import json
from typing import Any

import pytest

from fairlead_cli.records.sink import ConsumedRecord, SinkOptions, build_formatter


def record(**changes: Any) -> ConsumedRecord:
    fields = ConsumedRecord("t", 2, 7, "CreateTime", 1_357_034_400_000, b"k", b"v", [("h", b"1")])
    return fields._replace(**changes)


def test_json_has_everything_in_one_line() -> None:
    text = build_formatter("json", SinkOptions())(record(value="ü\n".encode()))
    assert text.count(b"\n") == 1
    assert json.loads(text) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestampType": "CreateTime",
        "timestamp": 1_357_034_400_000,
        "key": "k",
        "value": "ü\n",
        "headers": [{"name": "h", "value": "1"}],
    }


def test_json_never_loses_bytes_that_are_no_text() -> None:
    document = json.loads(build_formatter("json", SinkOptions())(record(key=None, value=b"\xff")))
    assert document["key"] is None
    assert document["valueBase64"] == "/w=="
    assert "value" not in document


def test_raw_is_the_exact_bytes() -> None:
    format_record = build_formatter("raw", SinkOptions(keys=True, key_separator="=", separator=""))
    assert format_record(record(value=b"\x00\xff\n")) == b"k=\x00\xff\n"
    assert format_record(record(key=None, value=None)) == b"="


def test_text_shows_what_is_asked_for() -> None:
    options = SinkOptions(keys=True, headers=True, timestamps=True, places=True, key_separator=" ")
    line = build_formatter("text", options)(record())
    assert line == b"2:7 2013-01-01T10:00:00.000Z h=1 k v\n"


def test_a_time_after_the_last_year_of_a_calendar_is_shown_as_its_number() -> None:
    """A producer may write any, such as microseconds where milliseconds were meant."""
    format_record = build_formatter("text", SinkOptions(timestamps=True))
    last = format_record(record(timestamp_ms=253_402_300_799_999))
    assert last == b"9999-12-31T23:59:59.999Z\tv\n"
    for timestamp_ms in (253_402_300_800_000, 1_357_034_400_000_000, 2**63 - 1):
        shown = format_record(record(timestamp_ms=timestamp_ms))
        assert shown == f"@{timestamp_ms}\tv\n".encode()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x1b[2J", b"\\x1b[2J"),
        (b"a\rb", b"a\\x0db"),
        (b"\xff", b"\\xff"),
        (b"tab\tline\n", b"tab\tline\n"),
        (None, b"null"),
    ],
)
def test_text_cannot_move_the_cursor(value: bytes | None, shown: bytes) -> None:
    assert build_formatter("text", SinkOptions())(record(value=value)) == shown + b"\n"


def test_names_of_headers_cannot_move_the_cursor() -> None:
    format_record = build_formatter("text", SinkOptions(headers=True))
    assert format_record(record(headers=[("a\x1b[2Jb", b"\r")])) == b"a\\x1b[2Jb=\\x0d\tv\n"
