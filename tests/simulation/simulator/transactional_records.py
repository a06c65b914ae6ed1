"""Records of topics with transactions, and of transactional ids, as the observer reads them.

Batches are real. They are parsed here by the published layouts (KIP-98,
`TransactionLogKey.json`, `TransactionLogValue.json`), without the code with which brokers decide.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import Record, decode_batch, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fairlead_wire.segments import Buffer

_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
NO_VALUE: Final = -1
COMMIT: Final = "commit"
ABORT: Final = "abort"

_CONTROL_TYPES: Final = {0: ABORT, 1: COMMIT}
_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")
_STATE_HEAD: Final = struct.Struct(">hqhib")
_DECISIONS: Final = {2: COMMIT, 3: ABORT}
_COMPLETED: Final = (4, 5)
_NAME_POSITION: Final = 4


class LoggedRecord(NamedTuple):
    """One record. Two logs agree on an offset if their entries are equal."""

    leader_epoch: int
    sequence: int
    producer_id: int
    producer_epoch: int
    value: int
    """Its number, which clients know; -1 for records of brokers."""
    attributes: int = 0
    end: str = ""
    """The outcome in a marker."""
    coordinator_epoch: int = -1
    content: tuple[bytes | None, bytes | None] = (None, None)
    """Key and value of a coordinator's record."""

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)


class LoggedBatch(NamedTuple):
    """A reader's view of one batch."""

    first_offset: int
    next_offset: int
    entries: tuple[tuple[int, LoggedRecord], ...]


class IdState(NamedTuple):
    """The content of a transactional id's record, as far as the observer needs it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    decision: str
    """The decided end of a transaction whose markers are being written; else empty."""
    is_complete: bool
    partitions: frozenset[tuple[str, int]]


def encode_transactional(
    values: Sequence[int], *, producer_id: int, producer_epoch: int, sequence: int, now_ms: int
) -> bytes:
    """Return a producer's batch in a transaction; `sequence` is that of the first record."""
    return encode_batch(
        [Record(place, now_ms, None, b"%d" % value) for place, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def decode_transactional(content: Buffer) -> Iterator[LoggedBatch]:
    """Read whole batches; each is checked against its CRC on the way."""
    position, size = 0, len(content)
    while position < size:
        end = position + decode_batch_header(content, position).size
        yield _decode(bytes(content[position:end]))
        position = end


@lru_cache(maxsize=2000)
def _decode(batch: bytes) -> LoggedBatch:
    """Decode a batch; cached, because a leader, its followers and consumers all read it."""
    header = decode_batch_header(batch)
    entries = []
    for record in decode_batch(batch):
        entry = LoggedRecord(
            header.partition_leader_epoch,
            header.base_sequence,
            header.producer_id,
            header.producer_epoch,
            NO_VALUE,
            header.attributes,
        )
        if header.attributes & _CONTROL:
            _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
            _, coordinator_epoch = _CONTROL_VALUE.unpack_from(record.value or b"")
            entry = entry._replace(end=_CONTROL_TYPES[kind], coordinator_epoch=coordinator_epoch)
        elif record.key is None:
            sequence = header.base_sequence + record.offset - header.base_offset
            entry = entry._replace(value=int(record.value or b""), sequence=sequence)
        else:
            entry = entry._replace(content=(record.key, record.value))
        entries.append((record.offset, entry))
    return LoggedBatch(header.base_offset, header.next_offset, tuple(entries))


def decode_state(key: bytes, value: bytes) -> IdState:
    """Read a record of `__transaction_state`; its value is of version 1, which is flexible."""
    version, producer_id, epoch, _, state = _STATE_HEAD.unpack_from(value)
    if version != 1:
        raise AssertionError(f"a record of a transactional id in version {version}")
    return IdState(
        key[_NAME_POSITION:].decode(),
        producer_id,
        epoch,
        _DECISIONS.get(state, ""),
        state in _COMPLETED,
        frozenset(_read_partitions(value, _STATE_HEAD.size)),
    )


def _read_partitions(data: bytes, at: int) -> Iterator[tuple[str, int]]:
    """Read partitions. Counts and lengths are varints, larger by one than the number."""

    def read_count() -> int:
        nonlocal at
        found = shift = 0
        while True:
            byte = data[at]
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return max(found - 1, 0)

    for _ in range(read_count()):
        size = read_count()
        topic = data[at : at + size].decode()
        at += size
        for _ in range(read_count()):
            yield topic, int.from_bytes(data[at : at + 4], "big")
            at += 4
        at += 1  # No tagged fields.
