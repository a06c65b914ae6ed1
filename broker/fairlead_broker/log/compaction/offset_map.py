"""The newest offset of each key, for compaction, in a fixed number of bytes. Pure.

It is an open-addressing table of 24-byte slots: a token of 16 bytes for the key, and its newest
offset. The token of a key of up to 15 bytes has the key itself, so it is unique. The token of a
longer key has 120 bits of keyed BLAKE2b. If two keys had the same token, the older one would lose
its records. Among ten million keys the probability of that is 4 in 10^23. The hash's key is random
for each map, so nobody can search for such keys beforehand.

A dictionary would take about 150 bytes a key and grow by doubling; here the bound is exact.
"""

from array import array
from hashlib import blake2b
from typing import Final

TOKEN_BYTES: Final = 16
SLOT_BYTES: Final = TOKEN_BYTES + 8
LOAD_MAX: Final = 0.75
"""With a higher load, the search for an absent key takes too many steps."""
NO_OFFSET: Final = -1

_EXACT_MAX: Final = TOKEN_BYTES - 1
_DIGEST_MARK: Final = b"\xff"
_LENGTH_MARKS: Final = tuple(
    bytes(_EXACT_MAX - length) + bytes((length,)) for length in range(TOKEN_BYTES)
)
"""The bytes that complete a key to a token, by the key's length: zeros, and the length."""


class OffsetMap:
    """Holds up to `capacity` keys; `len` is their current number."""

    __slots__ = ("_count", "_offsets", "_salt", "_slots", "_tokens", "capacity")

    def __init__(self, *, keys_expected: int, bytes_max: int, salt: bytes) -> None:
        """Make room for the expected keys, within `bytes_max` bytes.

        `salt` is the hash's key: up to 64 random bytes, different for each map.
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
        """Note `key` at `offset`, which is above all noted before; False if there is no room."""
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
