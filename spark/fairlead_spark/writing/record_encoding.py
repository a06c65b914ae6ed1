"""Encode Arrow columns as the records of Kafka's batches, without a Python object for each row.

numpy computes the numbers before and between keys and values, and Arrow joins them. The format of a
record is documented in `fairlead_wire/records.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairlead_spark.errors import SinkError
from fairlead_spark.writing.key_partitions import binary_spans

RECORD_OVERHEAD_MAX: Final = 22
"""Attributes, the difference of times, and four numbers of up to five bytes."""
_NOTHING: Final = pa.scalar(b"", pa.binary())
_NO_HEADERS: Final = pa.scalar(b"\0", pa.binary())


@dataclass(frozen=True)
class RecordCells:
    """The contents of some rows' records. `headers` are already encoded; None: no row has any."""

    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None
    headers: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Any) -> "RecordCells":
        """Return these rows, in this order."""
        chosen = pa.array(rows)
        return RecordCells(
            *(None if each is None else each.take(chosen) for each in self._columns())
        )

    def sizes_max(self) -> Any:
        """Return an upper limit of each record's bytes."""
        sizes = np.full(len(self), RECORD_OVERHEAD_MAX, dtype=np.int64)
        for column in self._columns():
            if column is not None:
                sizes += binary_spans(column)[2]
        return sizes if self.headers is not None else sizes + 1

    def _columns(self) -> tuple[pa.BinaryArray | None, ...]:
        return self.values, self.keys, self.headers


def encode_records(cells: RecordCells, offset_deltas: Any) -> pa.BinaryArray:
    """Return the record of each row; its time is that of its batch."""
    count = len(cells)
    value_sizes = _sizes(cells.values)
    key_sizes = np.full(count, -1) if cells.keys is None else _sizes(cells.keys)
    header_sizes = 1 if cells.headers is None else binary_spans(cells.headers)[2]
    lengths = (
        2  # Attributes, and the difference of times.
        + varint_sizes(offset_deltas)
        + varint_sizes(key_sizes)
        + np.maximum(key_sizes, 0)
        + varint_sizes(value_sizes)
        + np.maximum(value_sizes, 0)
        + header_sizes
    )
    nothing = np.zeros(count, dtype=np.int64)
    start = (lengths, nothing, nothing, offset_deltas, key_sizes)
    pieces: list[Any]
    if cells.keys is None:
        pieces = [encode_varints((*start, value_sizes))]
    else:
        pieces = [encode_varints(start), cells.keys, encode_varints((value_sizes,))]
    pieces += [cells.values, _NO_HEADERS if cells.headers is None else cells.headers]
    return _join(*pieces)


def encode_headers(headers: pa.Array) -> pa.BinaryArray | None:
    """Return the count of each row's headers and the headers; None if no row has any.

    SinkError for a header without a key.
    """
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    if not counts.any():
        return None
    pairs = headers.flatten()
    if pairs.null_count or pairs.field("key").null_count:
        raise SinkError("a row has a header that is null or has no key: leave it out of the array")
    keys, values = as_binary(pairs.field("key")), as_binary(pairs.field("value"))
    each = _join(encode_varints((_sizes(keys),)), keys, encode_varints((_sizes(values),)), values)
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(bounds), each)
    return _join(encode_varints((counts,)), pc.binary_join(lists, _NOTHING))


def as_binary(column: pa.Array) -> pa.BinaryArray:
    """Return text or bytes of any Arrow type as bytes. Text is UTF-8 in Arrow and in the record."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def encode_varints(columns: Sequence[Any]) -> pa.BinaryArray:
    """Return each row's numbers one after the other, as zig-zag varints."""
    octets: list[Any] = []
    # Which rows have the byte; None: all.
    has: list[Any] = []
    for column in columns:
        left = (column << 1) ^ (column >> 63)
        has.append(None)
        while int(left.max(initial=0)) >= 0x80:
            goes_on = left >= 0x80
            octets.append(np.where(goes_on, left & 0x7F | 0x80, left))
            has.append(None if goes_on.all() else goes_on)
            left = np.where(goes_on, left >> 7, 0)
        octets.append(left)
    count = len(columns[0])
    table = np.empty((count, len(octets)), dtype=np.uint8)
    for index, column in enumerate(octets):
        table[:, index] = column
    if all(each is None for each in has):
        bounds = np.arange(0, count * len(octets) + 1, len(octets), dtype=np.int32)
        data = table.ravel()
    else:
        used = np.ones(table.shape, dtype=bool)
        for index, each in enumerate(has):
            if each is not None:
                used[:, index] = each
        bounds = np.zeros(count + 1, dtype=np.int32)
        np.cumsum(used.sum(axis=1), out=bounds[1:])
        data = table[used]
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def varint_sizes(numbers: Any) -> Any:
    """Return how many bytes each number takes."""
    left = (numbers << 1) ^ (numbers >> 63)
    sizes = np.ones(len(left), dtype=np.int64)
    bound, most = 0x80, int(left.max(initial=0))
    while bound <= most:
        sizes += left >= bound
        bound <<= 7
    return sizes


def _sizes(column: pa.BinaryArray) -> Any:
    """Return the length before each cell: -1 for a null."""
    sizes = binary_spans(column)[2]
    if column.null_count:
        sizes = np.where(column.is_null().to_numpy(zero_copy_only=False), -1, sizes)
    return sizes


def _join(*pieces: Any) -> pa.BinaryArray:
    return pc.binary_join_element_wise(
        *pieces, _NOTHING, null_handling="replace", null_replacement=b""
    )
