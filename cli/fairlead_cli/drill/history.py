"""The records that a drill has sent and their outcomes, in eight bytes each. Pure.

A record is (key, sequence number): each key has one writer, which numbers its records 0, 1, 2, … .
A key always goes to the same partition. So its records must be there in the order of their numbers,
each at most once, and each acknowledged record must be there.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

# Values in place of an offset.
UNKNOWN = -1
"""Sent, without an answer so far: the record may be in the log or not."""
REFUSED = -2
"""The client gave up with an error: the record may be in the log or not."""
ACKNOWLEDGED_SOMEWHERE = -3
"""Acknowledged without an offset, as a broker does for a batch that it already has."""
PADDING = b"."


class FoundRecord(NamedTuple):
    """A record as a reader found it."""

    partition: int
    offset: int
    key: str
    sequence: int


@dataclass(slots=True)
class KeyHistory:
    """All records of one key; `offsets[sequence]` has each one's offset or outcome."""

    key: str
    partition: int
    offsets: array[int] = field(default_factory=lambda: array("q"))

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next record."""
        return len(self.offsets)

    def note_sent(self) -> int:
        """Note that another record is sent; return its sequence number."""
        self.offsets.append(UNKNOWN)
        return len(self.offsets) - 1

    def note_acknowledged(self, sequence: int, offset: int | None) -> None:
        """Note that a broker has acknowledged a record.

        If a retry was a duplicate of a record written long ago, the offset is None or negative,
        depending on the client.
        """
        if offset is None or offset < 0:
            offset = ACKNOWLEDGED_SOMEWHERE
        self.offsets[sequence] = offset

    def note_refused(self, sequence: int) -> None:
        """Note that the client reported an error for a record."""
        self.offsets[sequence] = REFUSED

    def is_acknowledged(self, sequence: int) -> bool:
        """Tell whether a record was acknowledged."""
        offset = self.offsets[sequence]
        return offset >= 0 or offset == ACKNOWLEDGED_SOMEWHERE


@dataclass(slots=True)
class History:
    """The histories of all keys of a drill."""

    keys: dict[str, KeyHistory] = field(default_factory=dict)

    def add_key(self, key: str, partition: int) -> KeyHistory:
        """Return the history of a new key for one writer."""
        if key in self.keys:
            raise ValueError(f"two writers for key {key}")
        self.keys[key] = KeyHistory(key, partition)
        return self.keys[key]

    @property
    def sent(self) -> int:
        return sum(len(history.offsets) for history in self.keys.values())

    @property
    def acknowledged(self) -> int:
        return sum(
            history.is_acknowledged(sequence)
            for history in self.keys.values()
            for sequence in range(len(history.offsets))
        )

    @property
    def refused(self) -> int:
        return sum(history.offsets.count(REFUSED) for history in self.keys.values())


def encode_value(key: str, sequence: int, size: int) -> bytes:
    """Return a record's value: its key and number, padded to `size` bytes."""
    return f"{key}:{sequence}:".encode().ljust(size, PADDING)


def decode_value(value: bytes) -> tuple[str, int]:
    """Return the key and number in a value of `encode_value`; ValueError for anything else."""
    key, _, rest = value.partition(b":")
    number, separator, padding = rest.partition(b":")
    if not separator or padding.strip(PADDING) or not number.isdigit():
        raise ValueError("not a record of this drill")
    return key.decode(), int(number)
