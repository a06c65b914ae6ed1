"""SCRAM credentials: what is kept of a password, and how it is derived (RFC 5802, RFC 7677).

Only the keys that verify a login are kept, as in Kafka's `ScramCredential`. Neither the password
nor the salted password can be had from them, and the salted password is as good as the password:
it is never stored, logged or sent on.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class ScramMechanism(IntEnum):
    """Kafka's numbers of mechanisms (`ScramMechanism`)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name that clients ask for: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash function in `hashlib`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """The length of a salted password and of both keys."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64


MIN_ITERATIONS: Final = 4096
"""RFC 7677 asks for at least as many, and so does Kafka."""
MAX_ITERATIONS: Final = 16384
"""Kafka's bound: clients have to compute what a credential says."""
DEFAULT_ITERATIONS: Final = 4096
"""As Kafka's tools choose, and everything here: users by whomever look alike (R32)."""
MIN_SALT_BYTES: Final = 1
MAX_SALT_BYTES: Final = 64
SALT_SEED_BYTES: Final = 26
_SALT_ALPHABET: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What verifies that somebody knows the password of a user for one mechanism."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def credential_problem(credential: ScramCredential) -> str:
    """Say why a credential is not one to keep, or nothing; nothing of its keys is shown.

    Kafka checks the iterations alone (`ScramControlManager`). Here a salt is not empty, and is
    bounded; how long it is, is for whoever makes the credential to choose.
    """
    if not MIN_ITERATIONS <= credential.iterations <= MAX_ITERATIONS:
        return f"iterations are {MIN_ITERATIONS} to {MAX_ITERATIONS}"
    if not MIN_SALT_BYTES <= len(credential.salt) <= MAX_SALT_BYTES:
        return f"a salt has {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes"
    expected = credential.mechanism.key_bytes
    if len(credential.stored_key) != expected or len(credential.server_key) != expected:
        return f"keys of {credential.mechanism.sasl_name} have {expected} bytes"
    return ""


def build_salt(seed: bytes) -> bytes:
    """Return a salt like those that Kafka's tools make: `SALT_SEED_BYTES` digits of base 36.

    Clients see salts before they log in, so one of a user who is not there must look the same.
    """
    return bytes(_SALT_ALPHABET[byte % len(_SALT_ALPHABET)] for byte in seed[:SALT_SEED_BYTES])


def derive(
    mechanism: ScramMechanism,
    password: str,
    iterations: int,
    salt: bytes,
) -> ScramCredential:
    """Return what is kept of a password.

    It takes milliseconds of computing, during which the interpreter's lock is released: call it
    in a thread where a loop must go on. The password is taken as its UTF-8 bytes, as in Kafka,
    without SASLprep.
    """
    salted_password = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return credential_of(mechanism, salted_password, iterations, salt)


def credential_of(
    mechanism: ScramMechanism,
    salted_password: bytes,
    iterations: int,
    salt: bytes,
) -> ScramCredential:
    """Return what is kept of a salted password (RFC 5802, section 3)."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        mechanism,
        iterations,
        salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
    )
