"""Writes consumed records to stdout: text for people, raw bytes for files, JSON for programs."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_cli.output import escape_controls, format_moment

if TYPE_CHECKING:
    from collections.abc import Callable

TIMESTAMP_TYPES = {0: None, 1: "CreateTime", 2: "LogAppendTime"}


class ConsumedRecord(NamedTuple):
    """A record with everything that the formats may show."""

    topic: str
    partition: int
    offset: int
    timestamp_type: str | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    """None: librdkafka cannot decode them."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What text and raw output show besides the value."""

    keys: bool = False
    headers: bool = False
    timestamps: bool = False
    places: bool = False
    key_separator: str = "\t"
    separator: str = "\n"
    null_marker: str = "null"
    topics: bool = False
    """Whether a position includes the topic."""


def build_formatter(output: str, options: SinkOptions) -> Callable[[ConsumedRecord], bytes]:
    """Return the function for one of `text`, `raw`, `json`."""
    if output == "json":
        return format_json
    if output == "raw":
        return lambda record: format_raw(record, options)
    return lambda record: format_text(record, options)


def format_json(record: ConsumedRecord) -> bytes:
    """Return one line. Bytes that are not UTF-8 are in `keyBase64` or `valueBase64` instead."""
    document: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestampType": record.timestamp_type,
        "timestamp": record.timestamp_ms,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": None
        if record.headers is None
        else [{"name": name, **json_bytes("value", value)} for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as text only if they are UTF-8, else as Base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}


def format_raw(record: ConsumedRecord, options: SinkOptions) -> bytes:
    """Return the exact bytes and the separator; a null value is empty."""
    value = (record.value or b"") + options.separator.encode()
    if options.keys:
        return (record.key or b"") + options.key_separator.encode() + value
    return value


def format_text(record: ConsumedRecord, options: SinkOptions) -> bytes:
    """Return a line that is readable, and safe for a terminal."""
    columns = []
    if options.places:
        topic = f"{record.topic}:" if options.topics else ""
        columns.append(f"{topic}{record.partition}:{record.offset}")
    if options.timestamps:
        columns.append(format_timestamp(record))
    if options.headers:
        columns.append(show_headers(record, options))
    if options.keys:
        columns.append(show_bytes(record.key, options))
    columns.append(show_bytes(record.value, options))
    return (options.key_separator.join(columns) + options.separator).encode()


def show_headers(record: ConsumedRecord, options: SinkOptions) -> str:
    """Return `NAME=VALUE,…`; `-` if there are none, `?` if they cannot be decoded."""
    if record.headers is None:
        return "?"
    pairs = (
        f"{escape_controls(name)}={show_bytes(value, options)}" for name, value in record.headers
    )
    return ",".join(pairs) or "-"


def format_timestamp(record: ConsumedRecord) -> str:
    """Return the time of a record; `-` if it has none."""
    return "-" if record.timestamp_type is None else format_moment(record.timestamp_ms)


def show_bytes(data: bytes | None, options: SinkOptions) -> str:
    """Return bytes as text; invalid text and control characters are escaped."""
    if data is None:
        return options.null_marker
    text = data.decode(errors="backslashreplace")
    return escape_controls(text)
