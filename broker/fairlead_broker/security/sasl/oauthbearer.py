"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768), over TLS only: a signed token names the user.

The broker answers a token that it refuses with a status in JSON. The client acknowledges that with
one byte, and only then gets the error of its login. Extensions are claims without a signature:
clients may send them, and the broker reads and drops them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.limits import TOKEN_BYTES_MAX
from fairlead_broker.security.sasl.exchange import Answer, Login, LoginError, Work

if TYPE_CHECKING:
    from fairlead_broker.security.sasl.exchange import Step

_SEPARATOR: Final = b"\x01"
_REFUSAL: Final = b'{"status":"invalid_token"}'
_KEY: Final = re.compile(rb"[A-Za-z]+")
_VALUE: Final = re.compile(rb"[\x21-\x7E \t\r\n]*")


class TokenError(Exception):
    """A token that is not valid; the text is for the log."""


class TokenJudge(Protocol):
    """Verifies tokens. Called in a thread."""

    def judge(self, token: str) -> Login:
        """Return the login of a token; TokenError if the token is not valid."""
        ...


class OAuthBearerExchange:
    """One login."""

    __slots__ = ("_judge", "_refused")

    def __init__(self, judge: TokenJudge) -> None:
        self._judge = judge
        self._refused: str | None = None

    def receive(self, token: bytes) -> Step:
        """Take the token, or the acknowledgement of a refusal."""
        if self._refused is not None:
            raise LoginError(self._refused)
        authorization, bearer = _parse(token)

        def verify() -> Answer:
            try:
                login = self._judge.judge(bearer)
                if authorization not in ("", login.user):
                    raise TokenError("it wants to act for somebody else")
            except TokenError as error:
                self._refused = f"a token that is refused: {error}"
                return Answer(_REFUSAL, is_refusal=True)
            return Answer(b"", login)

        return Work(verify)


def _parse(message: bytes) -> tuple[str, str]:
    """Split the client's message: the authorization id and the token."""
    if len(message) > TOKEN_BYTES_MAX:
        raise LoginError(f"a token of {len(message)} bytes")
    header, _, rest = message.partition(_SEPARATOR)
    flag, _, authorization = header.partition(b",")
    if flag != b"n" or not authorization.endswith(b",") or not rest.endswith(b"\x01\x01"):
        raise LoginError("a message that cannot be read")
    fields: dict[bytes, bytes] = {}
    for pair in rest[:-2].split(_SEPARATOR):
        key, separator, value = pair.partition(b"=")
        if not separator or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise LoginError("a message with a pair that cannot be read")
        if key in fields:
            raise LoginError("a message that says something twice")
        fields[key] = value
    scheme, _, bearer = fields.get(b"auth", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not bearer:
        raise LoginError("a message without a token")
    name = authorization[:-1]
    if name and not name.startswith(b"a="):
        raise LoginError("a header that cannot be read")
    try:
        return name[2:].decode(), bearer.decode("ascii")
    except UnicodeDecodeError:
        raise LoginError("a message that is not UTF-8") from None
