"""The newest offset of each key, in a fixed number of bytes: what compaction remembers.

Pure. An open-addressing table of 24-byte slots: a token of 16 bytes that stands for the key, and
its newest offset. A key of up to 15 bytes is its own token: nothing can go wrong with it. A longer
one is stood for by 120 bits of keyed BLAKE2b. Two keys with the same token would cost the older one
its records; among ten million keys the odds of that are 4 in 10^23, and because the hash's key is
drawn for each map, nobody can look for such keys beforehand.

A dictionary would take about 150 bytes a key and grow by doubling; here the bound is exact.
"""

from array import array
from hashlib import blake2b
from typing import Final

TOKEN_BYTES: Final = 16
SLOT_BYTES: Final = TOKEN_BYTES + 8
LOAD_MAX: Final = 0.75
"""Beyond, looking for a key that is not there takes too many steps."""
NO_OFFSET: Final = -1

_EXACT_MAX: Final = TOKEN_BYTES - 1
_DIGEST_MARK: Final = b"\xff"
_LENGTH_MARKS: Final = tuple(
    bytes(_EXACT_MAX - length) + bytes((length,)) for length in range(TOKEN_BYTES)
)
"""What makes a token of a key, by its length: zeros, and the length."""


class OffsetMap:
    """Holds up to `capacity` keys; `len` is how many there are."""

    __slots__ = ("_count", "_offsets", "_salt", "_slots", "_tokens", "capacity")

    def __init__(self, *, keys_expected: int, bytes_max: int, salt: bytes) -> None:
        """Room for the keys that are expected, as far as `bytes_max` bytes go.

        `salt` keys the hash: up to 64 random bytes, others for each map.
        """
        self._slots = max(min(int(keys_expected / LOAD_MAX) + 1, bytes_max // SLOT_BYTES), 1)
        self.capacity = max(int(self._slots * LOAD_MAX), 1)
        self._tokens = bytearray(self._slots * TOKEN_BYTES)
        self._offsets = array("q", (NO_OFFSET,)) * self._slots
        self._count = 0
        self._salt = salt

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> bool:
        """Note that `key` is at `offset`, above all noted before; False if there is no room."""
        token = self._token(key)
        offsets, tokens = self._offsets, self._tokens
        slot = hash(token) % self._slots
        while offsets[slot] != NO_OFFSET:
            at = slot * TOKEN_BYTES
            if tokens[at : at + TOKEN_BYTES] == token:
                offsets[slot] = offset
                return True
            slot += 1
            if slot == self._slots:
                slot = 0
        if self._count >= self.capacity:
            return False
        at = slot * TOKEN_BYTES
        tokens[at : at + TOKEN_BYTES] = token
        offsets[slot] = offset
        self._count += 1
        return True

    def newest(self, key: bytes) -> int:
        """Return the newest offset noted for `key`, `NO_OFFSET` if there is none."""
        token = self._token(key)
        offsets, tokens = self._offsets, self._tokens
        slot = hash(token) % self._slots
        while (offset := offsets[slot]) != NO_OFFSET:
            at = slot * TOKEN_BYTES
            if tokens[at : at + TOKEN_BYTES] == token:
                return offset
            slot += 1
            if slot == self._slots:
                slot = 0
        return NO_OFFSET

    def _token(self, key: bytes) -> bytes:
        length = len(key)
        if length <= _EXACT_MAX:
            return key + _LENGTH_MARKS[length]
        return blake2b(key, digest_size=_EXACT_MAX, key=self._salt).digest() + _DIGEST_MARK
