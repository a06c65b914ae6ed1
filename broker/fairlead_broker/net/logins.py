"""How clients log in at one broker: what connections of its SASL listeners and HTTP requests share.

One thread checks passwords and tokens, with a short queue in front: a client that guesses fills the
queue, and does not block the event loop. Connections are found by the credential with which they
logged in, so that they end when it changes.
"""

from __future__ import annotations

import hmac
import random
import secrets
from base64 import b64encode
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.limits import (
    LOGIN_FAILING_ADDRESSES_MAX,
    LOGIN_FAILURES_BURST,
    LOGIN_FAILURES_PER_S,
    LOGINS_WAITING_MAX,
)
from fairlead_broker.net.creation_allowance import CreationAllowance
from fairlead_broker.security.sasl.exchange import LoginError
from fairlead_broker.security.sasl.login_session import LoginSession
from fairlead_broker.security.sasl.oauthbearer import OAuthBearerExchange
from fairlead_broker.security.sasl.plain import PlainExchange, RightPasswords
from fairlead_broker.security.sasl.scram import NONCE_BYTES, ScramExchange
from fairlead_model.security.scram import ScramMechanism

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from fairlead_broker.security.credentials import Credentials
    from fairlead_broker.security.sasl.exchange import Answer, Exchange, Work
    from fairlead_broker.security.sasl.jwks import JwksReader
    from fairlead_broker.security.sasl.sasl_settings import SaslSettings
    from fairlead_broker.security.sasl.token_judge import JwtJudge

_SCRAM: Final = {each.sasl_name: each for each in ScramMechanism}
_DELAY_JITTER: Final = 0.25


class Entered(Protocol):
    """What a credential has let in."""

    def close(self, reason: str) -> None:
        """End it."""
        ...


class TooManyLoginsError(Exception):
    """Too many logins wait: whether this one is right is not known yet."""


class Logins:
    """Begins sessions, runs their work, and closes what a changed credential has let in."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Mapping[str, SaslSettings],
        credentials: Credentials,
        *,
        cluster_secret: bytes,
        failure_delay_ms: int,
    ) -> None:
        """Take the settings of SASL listeners by their names."""
        self.settings = settings
        self._loop = loop
        self._credentials = credentials
        # Users who are not there have the same salt on every broker.
        self._salt_secret = hmac.digest(cluster_secret, b"fairlead scram salts", "sha256")
        self._failure_delay_s = failure_delay_ms / 1000
        self._right_passwords = RightPasswords()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting_count = 0
        self._failures: OrderedDict[str, CreationAllowance] = OrderedDict()
        self._by_credential: dict[tuple[ScramMechanism, str], set[Entered]] = {}
        self._readers: dict[str, JwksReader] = {}
        self._judges: dict[str, JwtJudge] = {}
        for name, each in settings.items():
            if each.oauth is not None:
                # 9 MB of memory, for those alone who take tokens.
                from fairlead_broker.security.sasl.jwks import JwksReader
                from fairlead_broker.security.sasl.token_judge import JwtJudge

                reader = self._readers[name] = JwksReader(each.oauth)
                self._judges[name] = JwtJudge(each.oauth, reader)
        credentials.watch(self._on_credential_changed)

    def start(self) -> None:
        """Begin to read the keys of tokens."""
        for reader in self._readers.values():
            reader.start()

    async def stop(self) -> None:
        """End what runs."""
        for reader in self._readers.values():
            await reader.stop()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def begin(self, listener: str) -> LoginSession:
        """Return the session of a new connection."""
        settings = self.settings[listener]
        return LoginSession(
            {each: partial(self.exchange, listener, each) for each in settings.mechanisms},
            settings.reauth_ms,
        )

    def exchange(self, listener: str, mechanism: str) -> Exchange:
        """Return one login by a mechanism of a listener."""
        scram = _SCRAM.get(mechanism)
        if scram is not None:
            nonce = b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
            return ScramExchange(
                scram,
                self._credentials.find,
                nonce=nonce,
                secret=self._salt_secret,
                looks=self._credentials.looks,
            )
        if mechanism == "PLAIN":
            return PlainExchange(
                self._credentials.find,
                self._right_passwords,
                secret=self._salt_secret,
                looks=self._credentials.looks,
            )
        return OAuthBearerExchange(self._judges[listener])

    def failure_delay_s(self) -> float:
        """Return how long an answer to a failed login waits now."""
        # Seconds of waiting are no secret.
        return self._failure_delay_s * random.uniform(1, 1 + _DELAY_JITTER)  # noqa: S311

    def work(self, work: Work, client_host: str, done: Callable[[Future[Answer]], None]) -> None:
        """Do `work` in the thread, then call `done` on the loop.

        LoginError for an address of too many failures; TooManyLoginsError.
        """
        failures = self._failures.get(client_host)
        if failures is not None and failures.available(self._loop.time()) < 1:
            raise LoginError(f"too many logins from {client_host} have failed")
        if self._waiting_count >= LOGINS_WAITING_MAX:
            raise TooManyLoginsError
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "logins")
        self._waiting_count += 1

        def finish(future: Future[Answer]) -> None:
            self._waiting_count -= 1
            error = future.exception()
            if isinstance(error, LoginError) or (error is None and future.result().is_refusal):
                self._note_failure(client_host)
            done(future)

        def finished(future: Future[Answer]) -> None:
            if not future.cancelled() and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(finish, future)

        self._pool.submit(work.run).add_done_callback(finished)

    def _note_failure(self, client_host: str) -> None:
        failures = self._failures.get(client_host)
        if failures is None:
            failures = self._failures[client_host] = CreationAllowance(
                per_s=LOGIN_FAILURES_PER_S, burst=LOGIN_FAILURES_BURST, now_s=self._loop.time()
            )
            if len(self._failures) > LOGIN_FAILING_ADDRESSES_MAX:
                self._failures.popitem(last=False)
        self._failures.move_to_end(client_host)
        failures.spend()

    def enter(self, connection: Entered, mechanism: ScramMechanism, user: str) -> None:
        """Note that a credential has let a connection in."""
        self._by_credential.setdefault((mechanism, user), set()).add(connection)

    def leave(self, connection: Entered, mechanism: ScramMechanism, user: str) -> None:
        """Forget that."""
        there = self._by_credential.get((mechanism, user))
        if there is not None:
            there.discard(connection)
            if not there:
                del self._by_credential[mechanism, user]

    def _on_credential_changed(self, mechanism: ScramMechanism, user: str) -> None:
        for connection in list(self._by_credential.get((mechanism, user), ())):
            connection.close("the credential that let it in has changed")
