"""Columns of the source for Spark: names and types of Spark's Kafka source."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from fairlead_spark import limits
from fairlead_spark.reading.record_columns import RecordColumns
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.zigzag import read_varint

_HEADERS_TYPE: Final = pa.list_(
    pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
)
# A producer may write any number as a time; a time that is too large for Spark is lowered.
_MILLISECONDS_MAX: Final = (2**63 - 1) // 1000
_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
)


class RowBuilder:
    """Makes Arrow batches of one partition's records."""

    def __init__(self, topic: str, partition: int, *, include_headers: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._include_headers = include_headers
        fields = (*_FIELDS, pa.field("headers", _HEADERS_TYPE)) if include_headers else _FIELDS
        self._schema = pa.schema(fields)
        self._constants = self._build_constants(0)

    def build(self, columns: RecordColumns) -> Iterator[pa.RecordBatch]:
        """Yield batches of RECORD_BATCH_ROWS_MAX rows at most; none for no rows."""
        for first in range(0, len(columns), limits.RECORD_BATCH_ROWS_MAX):
            last = min(first + limits.RECORD_BATCH_ROWS_MAX, len(columns))
            yield self._build_one(columns.rows(first, last))

    def _build_one(self, columns: RecordColumns) -> pa.RecordBatch:
        count = len(columns)
        if len(self._constants[0]) < count:
            self._constants = self._build_constants(2 * count)
        topics, partitions = (each.slice(0, count) for each in self._constants)
        in_range = columns.timestamps_ms.clip(-_MILLISECONDS_MAX, _MILLISECONDS_MAX)
        microseconds = pa.array(in_range * 1000, type=pa.int64())
        arrays = [
            columns.keys(),
            columns.values(),
            topics,
            partitions,
            pa.array(columns.offsets),
            microseconds.view(pa.timestamp("us", tz="UTC")),
            pa.array(columns.timestamp_types),
        ]
        if self._include_headers:
            arrays.append(_headers(columns))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _build_constants(self, count: int) -> tuple[pa.Array, pa.Array]:
        return (
            pa.repeat(pa.scalar(self._topic, pa.string()), count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), count),
        )


def _headers(columns: RecordColumns) -> pa.Array:
    """Return headers of each record, null if it has none, as in Spark's Kafka source."""
    octets = np.frombuffer(columns.data, dtype=np.uint8)
    # A count of 0 is one byte of 0: only records with headers are decoded one by one.
    some = np.flatnonzero(octets.take(columns.value_ends, mode="clip"))
    if not len(some):
        return pa.nulls(len(columns), _HEADERS_TYPE)
    rows: list[list[dict[str, Any]] | None] = [None] * len(columns)
    try:
        for index in some.tolist():
            at, end = int(columns.value_ends[index]), int(columns.record_ends[index])
            rows[index] = _read_headers(columns.data, at, end)
    except IndexError as error:
        raise RemoteProtocolError("the headers of a record are cut off") from error
    return pa.array(rows, type=_HEADERS_TYPE)


def _read_headers(data: bytes | bytearray, at: int, end: int) -> list[dict[str, Any]]:
    count, at = read_varint(data, at)
    if not 0 <= count <= (end - at) // 2:
        raise RemoteProtocolError(f"a record claims {count} headers in {end - at} bytes")
    headers = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            raise RemoteProtocolError("a header without a key")
        key = bytes(data[at : at + size]).decode(errors="replace")
        at += size
        size, at = read_varint(data, at)
        headers.append({"key": key, "value": None if size < 0 else bytes(data[at : at + size])})
        at += max(size, 0)
        if at > end:
            raise RemoteProtocolError("the headers of a record are longer than it says")
    return headers
