"""The SASL state of one connection: which requests may come next, and its login (KIP-43, KIP-368).

Pure, and safe for hostile input. It works like Kafka's `SaslServerAuthenticator`:

    asked ─ApiVersions, once─▶ asked ─SaslHandshake─▶ tokens ─the last─▶ logged in
                                                                           │
                                                tokens ◀─SaslHandshake─────┘  to log in once more

After SaslHandshake of version 0 the tokens follow bare, without a request around them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import TOKEN_BYTES_MAX
from fairlead_broker.security.sasl.exchange import Answer, LoginError
from fairlead_wire.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead_broker.security.sasl.exchange import Exchange, Login, Step

_REPEAT_MIN_MS: Final = 1_000
"""Minimum time between two logins of a connection (KIP-368)."""


class LoginState(Enum):
    """What a connection waits for."""

    HANDSHAKE = "a mechanism"
    TOKENS = "a token in SaslAuthenticate"
    BARE_TOKENS = "a token without a request around it"
    LOGGED_IN = "anything"


class UnknownMechanismError(LoginError):
    """The client wants a mechanism that is not enabled; the answer says which ones are."""


class NotNowError(Exception):
    """A SASL request at the wrong time: ILLEGAL_SASL_STATE, and the connection stays open."""


class LoginSession:
    """The session of one connection. `login` is the latest successful login."""

    __slots__ = (
        "_exchange",
        "_has_asked_versions",
        "_make",
        "_mechanism",
        "_reauth_ms",
        "_repeated_ms",
        "_wrong_mechanism",
        "login",
        "state",
    )

    def __init__(
        self, make: Mapping[str, Callable[[], Exchange]], reauth_ms: Mapping[str, int]
    ) -> None:
        """`make` begins an exchange, by enabled mechanism; `reauth_ms` is 0 for no limit."""
        self.state = LoginState.HANDSHAKE
        self.login: Login | None = None
        self._make = make
        self._reauth_ms = reauth_ms
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._has_asked_versions = False
        self._wrong_mechanism = False
        self._repeated_ms = -_REPEAT_MIN_MS

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms that are enabled."""
        return list(self._make)

    def check_request(self, api_key: int, *, is_known_version: bool) -> None:
        """Raise LoginError, to close, for a request not allowed before a login, by header (R31)."""
        if self.state is LoginState.TOKENS:
            allowed = api_key == ApiKey.SASL_AUTHENTICATE
        else:
            allowed = api_key == ApiKey.SASL_HANDSHAKE
            if api_key == ApiKey.API_VERSIONS and not self._has_asked_versions:
                # After an unknown version the client gets an answer and asks with another version.
                self._has_asked_versions = is_known_version
                allowed = True
        if not allowed:
            raise LoginError(f"request {api_key} where {self.state.value} is due")

    def choose(self, mechanism: str, *, version: int, now_ms: int) -> None:
        """Begin an exchange. LoginError: it is refused; NotNowError: it comes at a wrong time."""
        is_repeated = self.login is not None
        if is_repeated:
            is_soon = now_ms - self._repeated_ms < _REPEAT_MIN_MS
            if self.state is not LoginState.LOGGED_IN or is_soon:
                raise NotNowError
            self._repeated_ms = now_ms
        make = self._make.get(mechanism)
        if make is None:
            raise UnknownMechanismError(f"mechanism {mechanism[:80]!a} is not enabled")
        # The next token gets this error, as in Kafka: SaslHandshake has no error code for it.
        self._wrong_mechanism = is_repeated and mechanism != self._mechanism
        self._mechanism = mechanism if not is_repeated else self._mechanism
        self._exchange = make()
        self.state = LoginState.TOKENS if version else LoginState.BARE_TOKENS

    def receive(self, token: bytes) -> Step:
        """Take a token. LoginError: the login failed; NotNowError: no token is expected."""
        exchange = self._exchange
        if exchange is None:
            raise NotNowError
        if len(token) > TOKEN_BYTES_MAX:
            # Some steps run on the loop, and a client that has logged in may send large requests.
            raise LoginError(f"a token of {len(token)} bytes")
        if self._wrong_mechanism:
            raise LoginError("a login is repeated by the mechanism that it was made by")
        return exchange.receive(token)

    def finish(self, answer: Answer, *, now_ms: int) -> int:
        """Take an answer; return for how many milliseconds its login is valid, 0 for no limit.

        LoginError if a repeated login has another user. `now_ms` is a time of the wall clock.
        """
        login = answer.login
        if login is None:
            return 0
        if self.login is not None and self.login.user != login.user:
            raise LoginError("a connection cannot change its user")
        lifetimes = [self._reauth_ms.get(self._mechanism, 0)]
        if login.expires_at_ms is not None:
            lifetimes.append(max(1, login.expires_at_ms - now_ms))
        self._exchange = None
        self.login = login
        self.state = LoginState.LOGGED_IN
        return min((each for each in lifetimes if each), default=0)
