"""How salts look: a user who is not there has one that looks like those of users who are (R32).

Each program that makes users makes salts of its own kind: `kafka-configs.sh` numbers of 130 bits in
base 36, Fairlead 26 digits of that base, others bytes of any length. Whoever makes a user chooses
the iterations, too. Clients see all of that before they log in. So a user who is not there gets one
of the kinds that there are, each as often as users have it, and always the same: only where users
come and go may some names get another one.
"""

from __future__ import annotations

import hmac
import math
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.limits import SALT_LOOKS_MAX
from fairlead_model.security.scram import (
    DEFAULT_ITERATIONS,
    MIN_ITERATIONS,
    SALT_ALPHABET,
    SALT_SEED_BYTES,
    build_salt,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_model.security.scram import ScramCredential, ScramMechanism

_BASE: Final = len(SALT_ALPHABET)
_NUMBERS_END: Final = 1 << 130
"""Kafka's `ScramFormatter` makes a number below this."""
_HASHES_END: Final = 1 << 64


class SaltLook(NamedTuple):
    """What clients see of a credential, besides what differs between any two users."""

    iterations: int
    size: int
    is_digits: bool
    """Whether all bytes of the salt are digits of base 36."""
    is_number: bool
    """Whether they are a number of 130 bits without zeros in front."""


_STANDARD: Final = SaltLook(DEFAULT_ITERATIONS, SALT_SEED_BYTES, is_digits=True, is_number=False)
"""The one of users whom Fairlead makes."""


def look_of(credential: ScramCredential) -> SaltLook:
    """Return how a credential looks."""
    salt = credential.salt
    is_digits = bool(salt) and not salt.strip(SALT_ALPHABET)
    is_number = is_digits and salt[:1] != SALT_ALPHABET[:1] and int(salt, _BASE) < _NUMBERS_END
    return SaltLook(credential.iterations, len(salt), is_digits, is_number)


def fake_salt(
    mechanism: ScramMechanism, user: str, secret: bytes, looks: Mapping[SaltLook, int]
) -> tuple[bytes, int]:
    """Return the salt and the iterations of a user who is not there; `looks` says who is."""
    name = b"fairlead scram salt %d " % mechanism + user.encode()
    look = _choose(name, secret, looks)
    if not look.is_digits:
        return hmac.digest(secret, name, "sha512")[: look.size], look.iterations
    if look.is_number:
        begin, end = _BASE ** (look.size - 1), min(_BASE**look.size, _NUMBERS_END)
        number = int.from_bytes(hmac.digest(secret, name, "sha512"))
        return _digits(begin + number % (end - begin)), look.iterations
    seed = hmac.digest(secret, name, "sha256")
    if look.size > SALT_SEED_BYTES:
        seed = hmac.digest(secret, name, "sha512")
    return build_salt(seed, look.size), look.iterations


def _choose(name: bytes, secret: bytes, looks: Mapping[SaltLook, int]) -> SaltLook:
    """Choose by weighted rendezvous: a look that comes or goes moves no name between others."""

    def distance(look: SaltLook) -> float:
        drawn = hmac.digest(secret, b"%b %b" % (repr(tuple(look)).encode(), name), "sha256")
        return -math.log((int.from_bytes(drawn[:8]) + 1) / _HASHES_END) / looks[look]

    return min(looks, key=distance, default=_STANDARD)


def _digits(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, _BASE)
        digits.append(SALT_ALPHABET[digit])
    return bytes(reversed(digits))


class LookCounts:
    """How many credentials of each mechanism have which look."""

    def __init__(self) -> None:
        self._looks: dict[tuple[ScramMechanism, str], SaltLook] = {}
        self._counts: dict[ScramMechanism, Counter[SaltLook]] = {}

    def of(self, mechanism: ScramMechanism) -> Mapping[SaltLook, int]:
        """Return the looks of a mechanism's credentials, and how many have each."""
        return self._counts.get(mechanism, {})

    def note(
        self, mechanism: ScramMechanism, user: str, credential: ScramCredential | None
    ) -> None:
        """Note the credential that a user has now; None for none."""
        counts = self._counts.setdefault(mechanism, Counter())
        before = self._looks.pop((mechanism, user), None)
        if before is not None:
            counts[before] -= 1
            if not counts[before]:
                del counts[before]
        if credential is None or credential.iterations < MIN_ITERATIONS:
            # A weak one lets nobody in, and is refused before clients see it.
            return
        look = look_of(credential)
        if look in counts or len(counts) < SALT_LOOKS_MAX:
            self._looks[mechanism, user] = look
            counts[look] += 1
