"""The client's side of a login, for programs that use Kafka's protocol without a client library."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms that need a name and a password."""
OAUTHBEARER: Final = "OAUTHBEARER"
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS_MIN: Final = 4096
"""As in Kafka's clients: with fewer, a proof could be used to try very many passwords."""
_ITERATIONS_MAX: Final = 1 << 20
"""A broker that asks for more would block its clients for long."""
_NONCE_BYTES: Final = 24
_HEADER: Final = b"n,,"
_STATUS_SHOWN: Final = 200


class LoginRefusedError(Exception):
    """The broker refuses the login, or does not prove that it knows the password."""


Login: TypeAlias = "Generator[bytes, bytes, None]"
"""Yields tokens for the broker, and takes the broker's answer to each."""


def log_in(mechanism: str, user: str, password: str, send: Callable[[bytes], bytes]) -> None:
    """Log in; `send` takes a token and returns the broker's. LoginRefusedError."""
    _exchange(begin_login(mechanism, user, password), send)


def log_in_by_token(
    token: str, extensions: Sequence[tuple[str, str]], send: Callable[[bytes], bytes]
) -> None:
    """Log in by OAUTHBEARER (RFC 7628, KIP-342); `send` as above. LoginRefusedError."""
    _exchange(_show_token(token, extensions), send)


def _exchange(login: Login, send: Callable[[bytes], bytes]) -> None:
    with suppress(StopIteration):
        token = next(login)
        while True:
            token = login.send(send(token))


def begin_login(mechanism: str, user: str, password: str) -> Login:
    """Return the exchange of a login, which may raise LoginRefusedError."""
    if mechanism == "PLAIN":
        yield b"\0".join((b"", user.encode(), password.encode()))
        return
    if mechanism not in _HASHES:
        raise LoginRefusedError(
            f"sasl.mechanism={mechanism} is none that is served here: {', '.join(MECHANISMS)}"
        )
    yield from _prove_by_scram(_HASHES[mechanism], user, password)


def _show_token(token: str, extensions: Sequence[tuple[str, str]]) -> Login:
    pairs = (("auth", f"Bearer {token}"), *extensions)
    said = "".join(f"{name}={text}\x01" for name, text in pairs)
    status = yield _HEADER + f"\x01{said}\x01".encode()
    if status:
        # The status has the reason. The broker fails the login when the client acknowledges it.
        yield b"\x01"
        raise LoginRefusedError(f"it answers {status[:_STATUS_SHOWN].decode(errors='replace')}")


def _prove_by_scram(hash_name: str, user: str, password: str) -> Login:
    """Prove that the client knows the password, and check that the broker does (RFC 5802)."""
    name = user.replace("=", "=3D").replace(",", "=2C").encode()
    nonce = b64encode(secrets.token_bytes(_NONCE_BYTES))
    bare = b"n=" + name + b",r=" + nonce
    challenge = yield _HEADER + bare
    try:
        fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
        salt, iterations = b64decode(fields[b"s"], validate=True), int(fields[b"i"])
        whole = fields[b"r"]
    except (ValueError, KeyError, Base64Error):
        raise LoginRefusedError("the broker's challenge cannot be read") from None
    if not whole.startswith(nonce):
        raise LoginRefusedError("the broker's challenge is not an answer to ours")
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise LoginRefusedError(
            f"the broker asks for {iterations} iterations, and this client takes "
            f"{_ITERATIONS_MIN} to {_ITERATIONS_MAX}"
        )
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    last = b"c=" + b64encode(_HEADER) + b",r=" + whole
    signed = b",".join((bare, challenge, last))
    mask = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
    signature = yield last + b",p=" + b64encode(proof)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    wanted = b"v=" + b64encode(hmac.digest(server_key, signed, hash_name))
    if not hmac.compare_digest(signature, wanted):
        raise LoginRefusedError("the broker does not know the password")
