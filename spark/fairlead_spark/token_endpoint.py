"""Tokens for clients that log in by OAUTHBEARER, fetched with id and secret (RFC 6749, 4.4).

As librdkafka does with `sasl.oauthbearer.method=oidc`. The process keeps a token for four fifths of
its lifetime, and then fetches a new one. If that fails, it uses the old one until it expires. No
error text contains a secret or a token.
"""

import base64
import json
import logging
import math
import ssl
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from fairlead_spark import limits
from fairlead_spark.errors import SourceError
from fairlead_spark.verifying_context import build_verifying_context

logger = logging.getLogger(__name__)

LIFE_SHARE: Final = 0.8
_PASSING: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_SAID: Final = ("error", "error_description")
_SHOWN: Final = 200

_lock: Final = threading.Lock()
_kept: dict["TokenEndpoint", "_Token"] = {}


@dataclass(frozen=True)
class TokenEndpoint:
    """The address of the tokens, and the client's credentials."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    ca_file: str | None = None


class _Token(NamedTuple):
    """A token of this process, with the times of its renewal and its end (monotonic clock)."""

    token: str
    fetch_at: float
    ends_at: float


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Sends the secret to no other address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirect: the answer is then an error."""


def read_token(endpoint: TokenEndpoint) -> str:
    """Return a token that is valid for a while.

    ConnectionError if a retry may help, SourceError if not.
    """
    with _lock:
        now = time.monotonic()
        kept = _kept.get(endpoint)
        if kept is None or now >= kept.fetch_at:
            _kept[endpoint] = kept = _renew(endpoint, kept, now)
        return kept.token


def forget_token(endpoint: TokenEndpoint) -> None:
    """Fetch a new token next time, because a broker has refused this one."""
    with _lock:
        _kept.pop(endpoint, None)


def _renew(endpoint: TokenEndpoint, kept: _Token | None, now: float) -> _Token:
    try:
        token, life_s = _fetch(endpoint)
    except ConnectionError as error:
        if kept is None or now >= kept.ends_at:
            raise
        logger.warning("the token of before is used on: %s", error)
        return kept._replace(fetch_at=now + limits.TOKEN_RETRY_S)
    # Counted from the request: the token is valid from then on, or from later.
    return _Token(token, now + life_s * LIFE_SHARE, now + life_s)


def _fetch(endpoint: TokenEndpoint) -> tuple[str, float]:
    """Return a token, and for how many seconds it is valid."""
    fields = {"grant_type": "client_credentials"}
    if endpoint.scope:
        fields["scope"] = endpoint.scope
    # Unencoded: librdkafka and Java do not encode them, unlike RFC 6749, 2.3.1.
    pair = f"{endpoint.client_id}:{endpoint.client_secret}"
    request = urllib.request.Request(  # noqa: S310  # The settings allow https alone.
        endpoint.url,
        urlencode(fields).encode(),
        {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    try:
        context = build_verifying_context(endpoint.ca_file)
    except OSError as error:
        raise SourceError(f"https.ca.location: {endpoint.ca_file} cannot be read") from error
    https = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(https, _NoRedirects)
    try:
        with opener.open(request, timeout=limits.TOKEN_TIMEOUT_S) as answer:
            data = answer.read(limits.TOKEN_ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(endpoint, error) from None
    except urllib.error.URLError as error:
        text = f"{endpoint.url} cannot be asked for a token: {error.reason}"
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise SourceError(f"{text}. Check https.ca.location") from None
        raise ConnectionError(text) from None
    except (OSError, HTTPException) as error:
        raise ConnectionError(f"{endpoint.url} gives no token: {error}") from None
    return _parse(endpoint, data)


def _refusal(endpoint: TokenEndpoint, error: urllib.error.HTTPError) -> Exception:
    text = f"{endpoint.url} gives client {endpoint.client_id} no token: it answers {error.code}"
    try:
        found = json.loads(error.read(limits.TOKEN_ANSWER_BYTES_MAX))
        said = ": ".join(str(found[each]) for each in _SAID if each in found)[:_SHOWN]
    except (ValueError, TypeError, OSError, HTTPException, RecursionError):
        said = ""
    if said and endpoint.client_secret not in said:
        text += f", {said}"
    if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR or error.code in _PASSING:
        return ConnectionError(text)
    return SourceError(f"{text}. Check the file that clientConfig names")


def _parse(endpoint: TokenEndpoint, data: bytes) -> tuple[str, float]:
    text = f"{endpoint.url} answers with what is no token"
    if len(data) > limits.TOKEN_ANSWER_BYTES_MAX:
        raise SourceError(f"{text}: more than {limits.TOKEN_ANSWER_BYTES_MAX} bytes")
    try:
        found = json.loads(data)
        token = found["access_token"]
        if (
            not isinstance(token, str)
            or not token.isascii()
            or not token.isprintable()
            or not token
        ):
            raise TypeError
        said = found.get("expires_in")
        life_s = _life_by_claim(token) if said is None else _seconds(said)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise SourceError(text) from None
    return token, life_s


def _life_by_claim(token: str) -> float:
    """Return the lifetime of a JWT from its claims; 0 if they have none."""
    parts = token.split(".")
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return max(0.0, _seconds(claims["exp"]) - time.time())
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return 0.0


def _seconds(said: Any) -> float:
    """Return a finite number of seconds; ValueError, TypeError. JSON may contain NaN here."""
    try:
        seconds = float(said)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ValueError("a token that never ends is asked for never again")
    return seconds
