"""Who sends an HTTP request: found by a password, a token, or the certificate of the connection.

The code that verifies passwords (RFC 7617) and tokens (RFC 6750) is that for Kafka clients: it runs
in the thread of logins, with its limits, and with its delay after a wrong credential. The broker
verifies each request; a credential that was right a moment ago costs a look-up, until it changes.
A request that waits or streams ends when its credential is no longer valid.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from fairlead_broker.authorization import ANONYMOUS, Principal
from fairlead_broker.limits import REST_TOKEN_REMEMBERED_S, REST_TOKENS_REMEMBERED_MAX
from fairlead_broker.net.logins import TooManyLoginsError
from fairlead_broker.net.tls_peers import Peer
from fairlead_broker.rest.problems import RETRY_AFTER, UNAUTHENTICATED, ProblemError
from fairlead_broker.security.sasl.exchange import Answer, LoginError, Work
from fairlead_model.broker import REST_ENDPOINT
from fairlead_model.host_address import peer_address
from fairlead_tls.tls_layer import PEER

if TYPE_CHECKING:
    from concurrent.futures import Future
    from contextlib import ExitStack

    from aiohttp import web

    from fairlead_broker.clock import Clock
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.net.logins import Logins
    from fairlead_broker.net.peer_log import PeerLog
    from fairlead_broker.security.sasl.exchange import Exchange, Login

_BASIC: Final = "basic"
_BEARER: Final = "bearer"
_MECHANISMS: Final = {_BASIC: "PLAIN", _BEARER: "OAUTHBEARER"}
_CHALLENGES: Final = {
    "PLAIN": 'Basic realm="fairlead", charset="UTF-8"',
    "OAUTHBEARER": 'Bearer realm="fairlead"',
}
_REFUSED: Final = "the credentials are not those of a user"
_ACKNOWLEDGED: Final = b"\x01"


class Credentials(NamedTuple):
    """The credentials of a request: a SASL mechanism, and a SASL message with the same content."""

    mechanism: str
    message: bytes


def read_credentials(header: str) -> Credentials:
    """Return the credentials in an Authorization header; LoginError if it is malformed. Pure."""
    scheme, _, given = header.partition(" ")
    scheme, given = scheme.lower(), given.strip(" ")
    if scheme == _BASIC:
        try:
            user, colon, password = base64.b64decode(given, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            raise LoginError("Basic credentials that are no base64") from None
        if not colon:
            raise LoginError("Basic credentials without a password")
        return Credentials(_MECHANISMS[_BASIC], b"\0%b\0%b" % (user, password))
    if scheme == _BEARER:
        token = given.encode(errors="replace")
        return Credentials(_MECHANISMS[_BEARER], b"n,,\x01auth=Bearer %b\x01\x01" % token)
    raise LoginError("a scheme that is neither Basic nor Bearer")


class Authenticator:
    """Tells who sends a request, and ends requests whose credentials are no longer valid."""

    def __init__(
        self,
        logins: Logins | None,
        clock: Clock,
        metrics: BrokerMetrics,
        peer_log: PeerLog,
    ) -> None:
        """Without `logins`, or settings of REST in them, only certificates authenticate clients."""
        settings = None if logins is None else logins.settings.get(REST_ENDPOINT)
        self._logins = logins
        self._mechanisms = () if settings is None else settings.mechanisms
        self._reauth_ms = {} if settings is None else settings.reauth_ms
        self._clock = clock
        self._metrics = metrics
        self._peer_log = peer_log
        self._tokens = _GoodTokens()
        self._challenge = ", ".join(_CHALLENGES[each] for each in self._mechanisms)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """SASL mechanisms that clients may use; empty if clients need not log in."""
        return self._mechanisms

    async def find_sender(self, http: web.BaseRequest, held: ExitStack) -> Principal:
        """Return who sends a request. ProblemError 401, 429 or 503.

        The request ends if its credential expires or changes before `held` is closed.
        """
        transport = http.transport
        peer = None if transport is None else transport.get_extra_info(PEER)
        if self._mechanisms and (given := http.headers.getall("Authorization", ())):
            if len(given) > 1:
                raise ProblemError(400, "Authorization stands more than once", closes=True)
            return await self._log_in(http, given[0], held)
        if isinstance(peer, Peer) and peer.until is not None:
            left_ms = int(peer.until.timestamp() * 1000) - self._clock.now_ms()
            if left_ms <= 0:
                raise ProblemError(
                    401, "the certificate is over", code=UNAUTHENTICATED, closes=True
                )
            self._end_after(http, left_ms, held)
            return peer.principal
        if self._mechanisms:
            raise self._unauthenticated("say who you are")
        return ANONYMOUS

    async def _log_in(self, http: web.BaseRequest, header: str, held: ExitStack) -> Principal:
        try:
            credentials = read_credentials(header)
            if credentials.mechanism not in self._mechanisms:
                raise LoginError(f"{credentials.mechanism} is not enabled")
            login = await self._verify(credentials, peer_address(http.remote or ""))
        except LoginError as error:
            await self._refuse(http, error)
        lifetimes = [self._reauth_ms.get(credentials.mechanism, 0)]
        if login.expires_at_ms is not None:
            lifetimes.append(max(login.expires_at_ms - self._clock.now_ms(), 1))
        lifetime_ms = min((each for each in lifetimes if each), default=0)
        if lifetime_ms:
            self._end_after(http, lifetime_ms, held)
        if login.verified_by is not None and self._logins is not None:
            entered = _Entered(http)
            self._logins.enter(entered, login.verified_by, login.user)
            held.callback(self._logins.leave, entered, login.verified_by, login.user)
        return Principal(ANONYMOUS.type, login.user)

    async def _verify(self, credentials: Credentials, client_host: str) -> Login:
        """Return the login of these credentials; LoginError, ProblemError 503."""
        logins = self._logins
        if logins is None:
            raise LoginError("nobody logs in here")
        mechanism, message = credentials
        known = self._tokens.find(message, self._clock.now_ms())
        if known is not None:
            return known
        exchange = logins.exchange(REST_ENDPOINT, mechanism)
        step = exchange.receive(message)
        if isinstance(step, Answer):
            return _login_of(step)
        answer = await _work(logins, exchange, step, client_host)
        step.confirm()
        self._metrics.logins_succeeded += 1
        login = _login_of(answer)
        if login.verified_by is None:
            self._tokens.add(message, login, self._clock.now_ms())
        return login

    async def _refuse(self, http: web.BaseRequest, error: LoginError) -> NoReturn:
        """Refuse after a delay; the message does not say what was wrong."""
        self._metrics.logins_failed += 1
        self._peer_log.warn(
            "login failed", "HTTP API: a login from %s failed: %s", http.remote, error
        )
        if self._logins is not None:
            await asyncio.sleep(self._logins.failure_delay_s())
        raise self._unauthenticated(_REFUSED, closes=True)

    def _unauthenticated(self, message: str, *, closes: bool = False) -> ProblemError:
        headers = {"WWW-Authenticate": self._challenge}
        return ProblemError(401, message, code=UNAUTHENTICATED, headers=headers, closes=closes)

    def _end_after(self, http: web.BaseRequest, lifetime_ms: int, held: ExitStack) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(lifetime_ms / 1000, _Entered(http).close, "its login is over")
        held.callback(timer.cancel)


class _Entered:
    """A request that a credential has let in."""

    __slots__ = ("_http",)

    def __init__(self, http: web.BaseRequest) -> None:
        self._http = http

    def close(self, reason: str) -> None:
        """Cut the connection off: a request that is under way gets no answer."""
        if self._http.transport is not None:
            self._http.transport.abort()


class _GoodTokens:
    """Tokens that were valid a moment ago, by their hashes, which do not reveal them."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Login, int]] = OrderedDict()

    def find(self, message: bytes, now_ms: int) -> Login | None:
        """Return the login of a token; None if the token has to be verified."""
        if not self._known:
            return None
        found = self._known.get(hashlib.sha256(message).digest())
        if found is None or now_ms >= found[1]:
            return None
        return found[0]

    def add(self, message: bytes, login: Login, now_ms: int) -> None:
        """Remember a token, until it expires at the latest."""
        until_ms = now_ms + REST_TOKEN_REMEMBERED_S * 1000
        if login.expires_at_ms is not None:
            until_ms = min(until_ms, login.expires_at_ms)
        name = hashlib.sha256(message).digest()
        self._known[name] = (login, until_ms)
        self._known.move_to_end(name)
        if len(self._known) > REST_TOKENS_REMEMBERED_MAX:
            self._known.popitem(last=False)


async def _work(logins: Logins, exchange: Exchange, step: Work, client_host: str) -> Answer:
    """Verify a password or a token in a thread. LoginError, ProblemError 503."""

    def run() -> Answer:
        answer = step.run()
        if answer.login is None:
            # The token is refused; the next step of the exchange raises the reason.
            exchange.receive(_ACKNOWLEDGED)
        return answer

    found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def done(future: Future[Answer]) -> None:
        if found.done():
            return
        error = future.exception()
        if error is None:
            found.set_result(future.result())
        else:
            found.set_exception(error)

    try:
        logins.work(Work(run), client_host, done)
    except TooManyLoginsError:
        raise ProblemError(
            503, "too many logins wait to be looked at", headers=RETRY_AFTER, closes=True
        ) from None
    return await found


def _login_of(answer: Answer) -> Login:
    if answer.login is None:
        raise LoginError("a login that is not over")
    return answer.login
