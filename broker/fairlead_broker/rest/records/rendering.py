"""Records from the log to JSON, the reverse of `embedding`. Pure.

A fetch returns whole batches: they may begin before the requested offset, be compressed, and have
records of aborted transactions. This module skips what Kafka's consumers skip (`CompletedFetch`):
control batches, and aborted records for `read_committed`.
"""

from __future__ import annotations

import base64
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.limits import (
    REST_RECORD_BYTES_MAX,
    REST_RECORD_TOKENS_MAX,
    WALKED_RECORDS_MAX,
)
from fairlead_broker.rest.documents.json_frames import require_few_parts
from fairlead_broker.rest.documents.json_text import (
    SMALL_BYTES,
    JsonError,
    dump_json,
    load_json,
)
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.records import (
    ControlType,
    decode_end_of_transaction,
    iter_batches,
    iter_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead_wire.messages.fetch import AbortedTransaction
    from fairlead_wire.record_batch import BatchHeader
    from fairlead_wire.records import Headers, Record
    from fairlead_wire.segments import Buffer

UNPRESENTABLE: Final = 40801
"""Redpanda's code for a record that cannot be rendered as JSON."""


class Form(Enum):
    """The form of keys and values in an answer."""

    JSON = "json"
    BINARY = "binary"
    STRING = "string"


class RenderedRecord(NamedTuple):
    """A record as a JSON object on one line."""

    offset: int
    data: bytes


class Rendered(NamedTuple):
    """Records as JSON objects.

    `is_full`: the answer has to end here although there may be more records. They exceed its size,
    or cannot be read.
    """

    records: list[RenderedRecord]
    size: int
    next_offset: int
    is_full: bool


class RecordShape(NamedTuple):
    """The partition of records and the form of their keys and values."""

    topic: str
    partition: int
    form: Form


def render_batches(
    data: Buffer,
    shape: RecordShape,
    *,
    offset: int,
    aborted: Sequence[AbortedTransaction] = (),
    bytes_max: int,
    one_at_least: bool = True,
) -> Rendered:
    """Render records from `offset` on, up to `bytes_max` bytes of JSON.

    With `one_at_least` the first record may be larger. `aborted` comes from the fetch response.
    Some batches cannot be rendered: they are damaged, or have too many records. A read returns the
    records before such a batch. RemoteProtocolError only if there are none (`one_at_least`), so
    the client gets this error with its next read.
    """
    records: list[RenderedRecord] = []
    size = 0
    try:
        for record, next_offset in _visible_records(data, offset, aborted):
            if record is None:
                offset = max(offset, next_offset)
                continue
            rendered = render_record(record, shape)
            if (records or not one_at_least) and size + len(rendered) > bytes_max:
                return Rendered(records, size, record.offset, is_full=True)
            records.append(RenderedRecord(record.offset, rendered))
            size += len(rendered)
            offset = next_offset
    except RemoteProtocolError:
        if one_at_least and not records:
            raise
        return Rendered(records, size, offset, is_full=True)
    return Rendered(records, size, offset, is_full=size >= bytes_max)


def _visible_records(
    data: Buffer, offset: int, aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[Record | None, int]]:
    """Yield records from `offset` on, and None after each batch, each with the next offset."""
    transactions = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    aborted_ids: set[int] = set()
    for position, header in iter_batches(data):
        while transactions and transactions[-1].first_offset <= header.last_offset:
            aborted_ids.add(transactions.pop().producer_id)
        if header.is_control:
            if _is_abort(data, position, header):
                aborted_ids.discard(header.producer_id)
        elif header.last_offset >= offset and not (
            header.is_transactional and header.producer_id in aborted_ids
        ):
            if header.records_count > WALKED_RECORDS_MAX:
                raise RemoteProtocolError(
                    f"a batch of {header.records_count} records; by HTTP those of at most"
                    f" {WALKED_RECORDS_MAX} are read, by Kafka's clients all; the next batch begins"
                    f" at offset {header.next_offset}"
                )
            for record in iter_records(data, position, first_offset=offset):
                yield record, record.offset + 1
        yield None, header.next_offset


def render_record(record: Record, shape: RecordShape) -> bytes:
    """Return a record in the JSON format of v2's consumers, with its timestamp and its headers.

    A key or a value that cannot have this form is null, and `error` says why. Other records are
    still returned.
    """
    errors: list[str] = []
    key = _render_part(record.key, shape.form, "key", errors)
    value = _render_part(record.value, shape.form, "value", errors)
    after = {
        "partition": shape.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": _render_headers(record.headers),
    }
    if errors:
        after["error"] = {"error_code": UNPRESENTABLE, "message": "; ".join(errors)}
    topic = dump_json(shape.topic)
    return b'{"topic":%b,"key":%b,"value":%b,%b' % (topic, key, value, dump_json(after)[1:])


def _render_part(data: bytes | None, form: Form, what: str, errors: list[str]) -> bytes:
    if data is None:
        return b"null"
    if form is Form.BINARY:
        return b'"%b"' % base64.b64encode(data)
    try:
        if form is Form.STRING:
            return dump_json(data.decode())
        if len(data) > REST_RECORD_BYTES_MAX:
            raise JsonError(f"it has {len(data)} bytes, too many to be read as JSON here")
        require_few_parts(data, REST_RECORD_TOKENS_MAX)
        return dump_json(load_json(data), is_large=len(data) > SMALL_BYTES)
    except JsonError as error:
        errors.append(f"the {what} is no JSON: {error}")
    except UnicodeDecodeError as error:
        errors.append(f"the {what} is no text: byte {error.start} is not UTF-8")
    return b"null"


def _render_headers(headers: Headers) -> list[dict[str, str | None]]:
    return [
        {"key": name, "value": None if value is None else base64.b64encode(value).decode()}
        for name, value in headers
    ]


def _is_abort(data: Buffer, position: int, header: BatchHeader) -> bool:
    if not header.is_transactional:
        return False
    markers = map(decode_end_of_transaction, iter_records(data, position))
    return any(marker is not None and marker.type is ControlType.ABORT for marker in markers)
