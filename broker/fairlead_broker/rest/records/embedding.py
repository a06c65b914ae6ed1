"""Records from JSON to the form of the log. Pure.

Types of a key or a value: JSON is any JSON value, encoded again without blanks (1e2 becomes 100.0);
BINARY is base64; STRING is a text, stored as UTF-8. A JSON null of any type is a null in the log: a
null value is a tombstone. A header is a name with base64 or null. A timestamp is in milliseconds,
or a time of RFC 3339 (v3).
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.limits import REST_KEY_BYTES_MAX
from fairlead_broker.rest.documents.json_text import JsonError, dump_json
from fairlead_broker.rest.operations import INT32_MAX, INT64_MAX
from fairlead_broker.rest.problems import UNKNOWN_PARTITION, shown

if TYPE_CHECKING:
    from fairlead_wire.records import Headers

JSON_DATA: Final = "JSON"
BINARY_DATA: Final = "BINARY"
STRING_DATA: Final = "STRING"
_REGISTRY_TYPES: Final = ("AVRO", "JSONSCHEMA", "PROTOBUF")
_HEADERS_MAX: Final = 1_000
_V3_MEMBERS: Final = frozenset({"partition_id", "headers", "key", "value", "timestamp"})
_V2_MEMBERS: Final = frozenset({"partition", "headers", "key", "value", "timestamp"})
_OBJECT_BYTES: Final = 120
_HEADER_OBJECT_BYTES: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EmbeddingError(Exception):
    """A record cannot be written to a log; `code` is its error code."""

    def __init__(self, message: str, code: int = 422) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class EmbeddedRecord(NamedTuple):
    """A record to produce; None for members that the request leaves out."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None
    key_type: str | None = None
    value_type: str | None = None

    @property
    def size(self) -> int:
        """Approximate number of bytes in a batch."""
        size = 40 + len(self.key or b"") + len(self.value or b"")
        return size + sum(len(name) + len(value or b"") + 8 for name, value in self.headers)

    @property
    def memory(self) -> int:
        """Approximate bytes of memory: a small record's objects are larger than its data."""
        return self.size + _OBJECT_BYTES + _HEADER_OBJECT_BYTES * len(self.headers)


def read_v3_record(document: Any, *, is_large: bool = False) -> EmbeddedRecord:
    """Read a record of `POST …/records`; EmbeddingError. `is_large` as for `dump_json`."""
    if not isinstance(document, dict):
        raise EmbeddingError("a record is an object", 400)
    _refuse_others(document, _V3_MEMBERS)
    key_type, key = _read_data(document.get("key"), "key", is_large=is_large)
    value_type, value = _read_data(document.get("value"), "value", is_large=is_large)
    return EmbeddedRecord(
        _checked_key(key),
        value,
        _read_headers(document.get("headers"), "name"),
        read_timestamp(document.get("timestamp")),
        _read_partition(document.get("partition_id"), "partition_id"),
        key_type,
        value_type,
    )


def read_v2_record(document: Any, data_type: str, *, is_large: bool = False) -> EmbeddedRecord:
    """Read a record of a v2 body; the media type gives the type of keys and values."""
    if not isinstance(document, dict):
        raise EmbeddingError("a record is an object")
    _refuse_others(document, _V2_MEMBERS)
    return EmbeddedRecord(
        _checked_key(_encode(data_type, document.get("key"), "key", is_large=is_large)),
        _encode(data_type, document.get("value"), "value", is_large=is_large),
        _read_headers(document.get("headers"), "key"),
        read_timestamp(document.get("timestamp")),
        _read_partition(document.get("partition"), "partition"),
    )


def format_timestamp(timestamp_ms: int) -> str:
    """Return a time in the format of RFC 3339, in UTC."""
    seconds, milliseconds = divmod(timestamp_ms, 1000)
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


def _refuse_others(document: dict[str, Any], known: frozenset[str]) -> None:
    for name in document:
        if name not in known:
            options = ", ".join(sorted(known))
            raise EmbeddingError(f"a record has no {shown(name)!a}; it can have {options}")


def _read_data(part: Any, what: str, *, is_large: bool) -> tuple[str | None, bytes | None]:
    """Read v3's `{"type": …, "data": …}`."""
    if part is None:
        return None, None
    if not isinstance(part, dict):
        raise EmbeddingError(f'{what} is an object such as {{"type":"JSON","data":1}}')
    data_type = part.get("type")
    if data_type in _REGISTRY_TYPES:
        raise EmbeddingError(f"{what}: {data_type} needs a schema registry, which there is none of")
    if data_type not in (JSON_DATA, BINARY_DATA, STRING_DATA):
        raise EmbeddingError(f'{what} has a "type" of JSON, BINARY or STRING')
    if not part.keys() <= {"type", "data"}:
        raise EmbeddingError(f'{what} has "type" and "data" alone')
    return data_type, _encode(data_type, part.get("data"), what, is_large=is_large)


def _encode(data_type: str, data: Any, what: str, *, is_large: bool) -> bytes | None:
    if data is None:
        return None
    if data_type == JSON_DATA:
        try:
            return dump_json(data, is_large=is_large)
        except JsonError as error:
            raise EmbeddingError(f"{what}: {error}") from error
    if not isinstance(data, str):
        kind = "base64" if data_type == BINARY_DATA else "a text"
        raise EmbeddingError(f"{what} of the type {data_type} is {kind}")
    return _decode_base64(data, what) if data_type == BINARY_DATA else _encode_text(data, what)


def _decode_base64(data: Any, what: str) -> bytes:
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise EmbeddingError(f"{what} is not base64")


def _encode_text(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EmbeddingError(f"{what} has half of a surrogate pair") from error


def _checked_key(key: bytes | None) -> bytes | None:
    if key is not None and len(key) > REST_KEY_BYTES_MAX:
        raise EmbeddingError(f"a key of {len(key)} bytes; {REST_KEY_BYTES_MAX} fit", 413)
    return key


def _read_headers(headers: Any, name_member: str) -> Headers:
    if not headers and (headers is None or isinstance(headers, list)):
        return ()
    if not isinstance(headers, list) or len(headers) > _HEADERS_MAX:
        raise EmbeddingError(f"headers is an array of at most {_HEADERS_MAX}")
    found = []
    for header in headers:
        if not isinstance(header, dict) or not header.keys() <= {name_member, "value"}:
            raise EmbeddingError(f'a header is {{"{name_member}":…,"value":…}}')
        name, value = header.get(name_member), header.get("value")
        if not isinstance(name, str):
            raise EmbeddingError("a header has a name")
        _encode_text(name, "the name of a header")
        found.append((name, None if value is None else _decode_base64(value, "a header's value")))
    return tuple(found)


def read_timestamp(timestamp: Any) -> int | None:
    """Return a number of milliseconds, or a time of RFC 3339, as milliseconds; EmbeddingError."""
    if timestamp is None:
        return None
    if isinstance(timestamp, str):
        try:
            time = datetime.fromisoformat(timestamp)
        except ValueError as error:
            raise EmbeddingError(
                f"timestamp {shown(timestamp)!a} is not such as 2026-01-02T03:04:05Z"
            ) from error
        if time.tzinfo is None:
            raise EmbeddingError("a timestamp says its time zone, such as Z")
        since = time - _EPOCH
        timestamp = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if type(timestamp) is not int:
        raise EmbeddingError("a timestamp is a whole number of milliseconds, or a text")
    if timestamp < 0:
        raise EmbeddingError("a timestamp is in 1970 or later")
    if timestamp > INT64_MAX:
        raise EmbeddingError(f"a timestamp is at most {INT64_MAX}")
    return timestamp


def _read_partition(partition: Any, name: str) -> int | None:
    if partition is None:
        return None
    if type(partition) is not int:
        raise EmbeddingError(f"{name} is a whole number")
    if not 0 <= partition <= INT32_MAX:
        raise EmbeddingError(f"there is no partition {str(partition)[:30]}", UNKNOWN_PARTITION)
    return partition
