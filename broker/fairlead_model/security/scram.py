"""SCRAM credentials: what is stored of a password, and how it is derived (RFC 5802, RFC 7677).

Only the keys that verify a login are stored, as in Kafka's `ScramCredential`. Neither the password
nor the salted password can be computed from them. With the salted password anybody can log in, so
it is never stored, logged or sent.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class ScramMechanism(IntEnum):
    """SCRAM mechanisms, with Kafka's numbers (`ScramMechanism`)."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SASL: `SCRAM-SHA-256`."""
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
"""The minimum of RFC 7677 and of Kafka."""
MAX_ITERATIONS: Final = 16384
"""Kafka's maximum, because clients have to compute that many iterations."""
DEFAULT_ITERATIONS: Final = 4096
"""The number that Kafka's tools use. All of Fairlead uses it, so all users look alike (R32)."""
MIN_SALT_BYTES: Final = 1
MAX_SALT_BYTES: Final = 64
SALT_SEED_BYTES: Final = 26
SALT_ALPHABET: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The keys that verify a user's password for one mechanism."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def credential_problem(credential: ScramCredential) -> str:
    """Return why a credential is invalid, or ""; the text contains nothing of its keys.

    Kafka checks only the iterations (`ScramControlManager`). Fairlead also refuses an empty salt
    and a long one; within these limits the creator of the credential chooses the length.
    """
    if not MIN_ITERATIONS <= credential.iterations <= MAX_ITERATIONS:
        return f"iterations are {MIN_ITERATIONS} to {MAX_ITERATIONS}"
    if not MIN_SALT_BYTES <= len(credential.salt) <= MAX_SALT_BYTES:
        return f"a salt has {MIN_SALT_BYTES} to {MAX_SALT_BYTES} bytes"
    expected = credential.mechanism.key_bytes
    if len(credential.stored_key) != expected or len(credential.server_key) != expected:
        return f"keys of {credential.mechanism.sasl_name} have {expected} bytes"
    return ""


def build_salt(seed: bytes, size: int = SALT_SEED_BYTES) -> bytes:
    """Return a salt of digits of base 36, as many as the longest of Kafka's tools have.

    Clients see salts before they log in, so the salt of an unknown user must look the same.
    """
    return bytes(SALT_ALPHABET[byte % len(SALT_ALPHABET)] for byte in seed[:size])


def derive(
    mechanism: ScramMechanism,
    password: str,
    iterations: int,
    salt: bytes,
) -> ScramCredential:
    """Return the credential for a password.

    This computes for milliseconds, without the interpreter's lock: call it in a thread if an event
    loop has to go on. The password's UTF-8 bytes are used, as in Kafka, without SASLprep.
    """
    salted_password = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return credential_of(mechanism, salted_password, iterations, salt)


def credential_of(
    mechanism: ScramMechanism,
    salted_password: bytes,
    iterations: int,
    salt: bytes,
) -> ScramCredential:
    """Return the credential for a salted password (RFC 5802, section 3)."""
    name = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        mechanism,
        iterations,
        salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
    )
