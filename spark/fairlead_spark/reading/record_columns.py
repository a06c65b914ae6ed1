"""Records of many batches at once, as Arrow columns, without a Python object a record.

A loop finds where each record begins. (A record has its own length, so only the record before it
shows where the next one begins.) Then numpy reads the fields column by column, over all records of
a fetch, and Arrow copies keys and values into its arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from fairlead_wire.errors import RemoteProtocolError

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
# For shorter runs, a numpy array costs more than a step of the loop.
_RUN_MIN: Final = 16
_STEPS_MIN: Final = 64


class BatchBody(NamedTuple):
    """The records of one batch inside the data, and common values from its header.

    `append_timestamp` is None if each record has its own timestamp.
    """

    start: int
    end: int
    records_count: int
    base_offset: int
    base_timestamp: int
    append_timestamp: int | None


@dataclass
class RecordColumns:
    """Columns of the records of some batches, in the order of their offsets.

    Spans are positions in `data`, which is valid only until the next fetch. A key or value that is
    null has an empty span, and its mask is True.
    """

    data: bytes | bytearray
    offsets: Any
    timestamps_ms: Any
    timestamp_types: Any
    key_starts: Any
    key_ends: Any
    key_nulls: Any
    value_starts: Any
    value_ends: Any
    value_nulls: Any
    record_ends: Any

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start_offset: int, until_offset: int) -> "RecordColumns":
        """Return the records with offsets in `[start_offset, until_offset)`."""
        first, last = np.searchsorted(self.offsets, (start_offset, until_offset))
        if first == 0 and last == len(self):
            return self
        return self.rows(int(first), int(last))

    def rows(self, first: int, last: int) -> "RecordColumns":
        """Return rows `[first, last)`."""
        columns = {
            name: column[first:last] for name, column in vars(self).items() if name != "data"
        }
        return RecordColumns(data=self.data, **columns)

    def keys(self) -> pa.Array:
        return _binary_array(self.data, self.key_starts, self.key_ends, self.key_nulls)

    def values(self) -> pa.Array:
        return _binary_array(self.data, self.value_starts, self.value_ends, self.value_nulls)


def decode_records(data: bytes | bytearray, bodies: Sequence[BatchBody]) -> RecordColumns:
    """Return columns of the records in `bodies`; RemoteProtocolError if a batch is inconsistent."""
    octets = np.frombuffer(data, dtype=np.uint8)
    starts = _find_records(data, octets, bodies)
    lengths, at = _read_varints(octets, starts, VARINT_BYTES_MAX)
    ends = at + lengths
    at += 1  # Skip attributes: no bit of a record's own attributes has a meaning.
    counts = np.fromiter((each.records_count for each in bodies), dtype=np.int64)
    deltas, at = _read_varints(octets, at, VARLONG_BYTES_MAX)
    offset_deltas, at = _read_varints(octets, at, VARINT_BYTES_MAX)
    key_starts, key_ends, key_nulls = _read_spans(octets, at)
    value_starts, value_ends, value_nulls = _read_spans(octets, key_ends)
    # The count of headers follows.
    if len(ends) and not (value_ends < ends).all():
        raise RemoteProtocolError("a record is longer than it says")
    base_offsets = np.fromiter((each.base_offset for each in bodies), dtype=np.int64)
    timestamps, types = _timestamps(bodies, counts, deltas)
    return RecordColumns(
        data=data,
        offsets=np.repeat(base_offsets, counts) + offset_deltas,
        timestamps_ms=timestamps,
        timestamp_types=types,
        key_starts=key_starts,
        key_ends=key_ends,
        key_nulls=key_nulls,
        value_starts=value_starts,
        value_ends=value_ends,
        value_nulls=value_nulls,
        record_ends=ends,
    )


def _timestamps(bodies: Sequence[BatchBody], counts: Any, deltas: Any) -> tuple[Any, Any]:
    """Return milliseconds since 1970, and the type of each: 0 of its producer, 1 of its broker."""
    bases = np.fromiter((each.base_timestamp for each in bodies), dtype=np.int64)
    timestamps = np.repeat(bases, counts) + deltas
    if all(each.append_timestamp is None for each in bodies):
        return timestamps, np.zeros(len(timestamps), dtype=np.int32)
    appended = np.repeat(
        np.fromiter((each.append_timestamp or 0 for each in bodies), dtype=np.int64), counts
    )
    types = np.repeat(
        np.fromiter((each.append_timestamp is not None for each in bodies), dtype=np.int32), counts
    )
    return np.where(types == 1, appended, timestamps), types


def _find_records(data: bytes | bytearray, octets: Any, bodies: Sequence[BatchBody]) -> Any:
    """Return where each record begins; RemoteProtocolError unless they fill each body exactly."""
    pieces: list[Any] = []
    for body in bodies:
        at, left = body.start, body.records_count
        steps = 0
        try:
            while left > 0 and at < body.end:
                run = _find_run(data, octets, at, body.end, left) if left >= _RUN_MIN else None
                if run is None:
                    # Sizes differ here: step for a while, longer each time, before the next try.
                    steps = min(left, max(2 * steps, _STEPS_MIN))
                    starts, at = _step(data, at, body.end, steps)
                else:
                    starts, at = run
                left -= len(starts)
                pieces.append(starts)
        except IndexError as error:
            raise RemoteProtocolError("a record is cut off") from error
        if at != body.end or left:
            raise RemoteProtocolError(
                f"a batch of {body.records_count} records holds {body.records_count - left} in "
                f"{at - body.start} of its {body.end - body.start} bytes"
            )
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)


def _find_run(
    data: bytes | bytearray, octets: Any, at: int, end: int, left: int
) -> tuple[Any, int] | None:
    """Return the starts of records that are all as long as the one at `at`; None if few.

    If a record is as long as the one before, the next one begins at the same distance. So equal
    lengths at equal distances prove the whole run.
    """
    size, behind = _read_length(data, at)
    stride = behind - at + size
    count = min(left, (end - at) // stride)
    if count < _RUN_MIN:
        return None
    is_same = octets[at : at + stride * count : stride] == data[at]
    for position in range(at + 1, behind):
        is_same &= octets[position : position + stride * (count - 1) + 1 : stride] == data[position]
    if not is_same.all():
        count = int(is_same.argmin())
        if count < _RUN_MIN:
            return None
    behind_last = at + stride * count
    return np.arange(at, behind_last, stride, dtype=np.int64), behind_last


def _step(data: bytes | bytearray, at: int, end: int, count: int) -> tuple[Any, int]:
    """Return the starts of up to `count` records from `at`, and where the next would begin."""
    starts: list[int] = []
    add = starts.append
    while at < end and count:
        count -= 1
        add(at)
        size = data[at]
        if size < 0x80:
            at += (size >> 1) + 1
            continue
        more = data[at + 1]
        if more < 0x80:
            at += ((size & 0x7F | more << 7) >> 1) + 2
        else:
            size, at = _read_length(data, at)
            at += size
    return np.array(starts, dtype=np.int64), at


def _read_length(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return the length at `at`, and the position after it."""
    value = 0
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        octet = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value >> 1, at
    raise RemoteProtocolError("the length of a record has more than five bytes")


def _read_varints(octets: Any, at: Any, bytes_max: int) -> tuple[Any, Any]:
    """Return the zig-zag numbers at the positions `at`, and the positions after them.

    A position after the data reads the last byte: the caller checks where the record ends.
    """
    first = octets.take(at, mode="clip")
    values = (first & 0x7F).astype(np.int64)
    at = at + 1
    going_on = np.flatnonzero(first >= 0x80)
    shift = 7
    while len(going_on):
        if shift >= 7 * bytes_max:
            raise RemoteProtocolError(f"a varint of more than {bytes_max} bytes")
        more = octets.take(at[going_on], mode="clip")
        values[going_on] |= (more & 0x7F).astype(np.int64) << shift
        at[going_on] += 1
        going_on = going_on[more >= 0x80]
        shift += 7
    # Unsigned during the shift, because a varlong uses all 64 bits.
    half = (values.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return half ^ -(values & 1), at


def _read_spans(octets: Any, at: Any) -> tuple[Any, Any, Any]:
    """Return start and end of the bytes after a length at `at`, and which of them are null."""
    sizes, at = _read_varints(octets, at, VARINT_BYTES_MAX)
    nulls = sizes < 0
    if len(sizes) and sizes.min() < -1:
        raise RemoteProtocolError("a key or value has a negative length")
    return at, at + np.maximum(sizes, 0), nulls


def _binary_array(data: bytes | bytearray, starts: Any, ends: Any, nulls: Any) -> pa.Array:
    """Return an array with its own bytes: Arrow copies each span out of `data`."""
    count = len(starts)
    if not count or nulls.all():
        return pa.nulls(count, pa.binary())
    # An array over the whole data, in which spans and the bytes between them alternate.
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    spans_and_gaps = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    wanted = np.arange(0, 2 * count - 1, 2, dtype=np.int32)
    is_any_null = bool(nulls.any())
    return spans_and_gaps.take(pa.array(wanted, mask=nulls if is_any_null else None))
