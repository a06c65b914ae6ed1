"""Batches of the offsets topic as its coordinator writes them. Pure.

They have many small records with a key, a value or none, no headers, and one timestamp.
`records.encode_batch` of the wire package is the slow obvious version; tests compare the two.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from fairlead_wire.record_batch import (
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    batch_crc,
)
from fairlead_wire.zigzag import varint

if TYPE_CHECKING:
    from collections.abc import Iterable

_SMALL: Final = tuple(varint(number) for number in range(1024))
_SMALL_COUNT: Final = len(_SMALL)
_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 17
_ATTRIBUTES_AND_TIMESTAMP: Final = b"\0\0"
RECORD_OVERHEAD_MAX: Final = 12
"""Most bytes that a record needs in a batch beside those of `encode_body`."""


def encode_body(key: bytes, value: bytes | None) -> bytes:
    """Return the part of a record that does not depend on its place: key, value, no headers."""
    key_size = len(key)
    head = _SMALL[key_size] if key_size < _SMALL_COUNT else varint(key_size)
    if value is None:
        return head + key + b"\1\0"
    size = len(value)
    return b"%b%b%b%b\0" % (
        head,
        key,
        _SMALL[size] if size < _SMALL_COUNT else varint(size),
        value,
    )


def build_batch(
    bodies: Iterable[bytes],
    *,
    timestamp_ms: int,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """Build an uncompressed batch with base offset 0 from bodies of `encode_body`; at least one.

    A coordinator has no sequences, even if it writes for a producer.
    """
    batch = bytearray(BATCH_HEADER_SIZE)
    count = 0
    for body in bodies:
        delta = _SMALL[count] if count < _SMALL_COUNT else varint(count)
        size = len(body) + len(delta) + 2
        batch += _SMALL[size] if size < _SMALL_COUNT else varint(size)
        batch += _ATTRIBUTES_AND_TIMESTAMP
        batch += delta
        batch += body
        count += 1
    BATCH_HEADER.pack_into(
        batch,
        0,
        0,
        BATCH_LENGTH_MIN + len(batch) - BATCH_HEADER_SIZE,
        -1,
        MAGIC_V2,
        0,
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    _CRC.pack_into(batch, _CRC_POSITION, batch_crc(batch, 0, len(batch)))
    return batch
