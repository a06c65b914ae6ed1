"""A connection whose client has to log in first.

Until then it takes small frames only, one at a time, and of few kinds. A login that fails is
answered after a while, in the same words whatever was wrong, and the connection ends.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.api_registry import HANDLERS, PENDING
from fairlead_broker.authorization import ANONYMOUS, Principal
from fairlead_broker.limits import (
    LOGIN_AFTER_WAIT_S,
    REFUSED_LOGIN_LINGER_S,
    STRANGER_UNSENT_BYTES_MAX,
    UNSENT_BYTES_MAX,
)
from fairlead_broker.net.connection import Connection
from fairlead_broker.net.logins import TooManyLoginsError
from fairlead_broker.security.sasl.exchange import Answer, LoginError, Work
from fairlead_broker.security.sasl.login_session import (
    LoginState,
    NotNowError,
    UnknownMechanismError,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateResponse
from fairlead_wire.messages.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    import asyncio
    import socket
    from concurrent.futures import Future

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.listener import Listener
    from fairlead_broker.net.connection_host import ConnectionHost
    from fairlead_broker.net.logins import Logins
    from fairlead_broker.net.transport import OpenTransport
    from fairlead_model.security.scram import ScramMechanism

_HEADER: Final = struct.Struct(">hh")
_LENGTH: Final = struct.Struct(">i")
_LOGIN_API_KEYS: Final = (
    ApiKey.SASL_HANDSHAKE.to_bytes(2),
    ApiKey.SASL_AUTHENTICATE.to_bytes(2),
)
_FAILED: Final = "Authentication failed: the credentials are not those of a user."


class SaslConnection(Connection):
    """`_is_open` from the first login on; `_is_busy` while a step or a failure is under way.

    A login is over at `_timer`; with `_ends_after_answers` it is, and requests wait yet.
    """

    __slots__ = (
        "_ends_after_answers",
        "_ends_after_mute",
        "_entered_by",
        "_is_busy",
        "_is_open",
        "_logins",
        "_receive_size_max",
        "_session",
        "_timer",
    )

    def __init__(
        self,
        server: ConnectionHost[Connection],
        listener: Listener,
        sock: socket.socket,
        client_host: str,
        open_transport: OpenTransport,
        *,
        logins: Logins,
    ) -> None:
        self._logins = logins
        self._session = logins.begin(listener.name)
        self._receive_size_max = logins.settings[listener.name].receive_size_max
        self._is_open = False
        self._is_busy = False
        self._ends_after_answers = False
        self._ends_after_mute = False
        self._entered_by: tuple[ScramMechanism, str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        super().__init__(server, listener, sock, client_host, open_transport)
        self.login = self
        self._unsent_bytes_max = STRANGER_UNSENT_BYTES_MAX

    @property
    def frame_size_max(self) -> int:
        size_max = self._server.frame_size_max
        return size_max if self._is_open else min(self._receive_size_max, size_max)

    @property
    def is_known(self) -> bool:
        return self._is_open

    def is_over_limits(self) -> bool:
        return self._is_busy or super().is_over_limits()

    def on_secure(self, principal: Principal) -> None:
        """Go on with the login: a certificate names nobody here."""

    def handle_frame(self, frame: memoryview) -> None:
        """One request, or one bare token."""
        if self._session.state is LoginState.BARE_TOKENS:
            self._take_token(bytes(frame), None)
            return
        if not self._is_open and len(frame) >= _HEADER.size:
            api_key, version = _HEADER.unpack_from(frame)
            handler = HANDLERS.get(api_key)
            lowest, highest = handler.versions if handler is not None else (0, -1)
            try:
                self._session.check_request(api_key, is_known_version=lowest <= version <= highest)
            except LoginError as error:
                self.refuse(str(error))
                return
        if self._ends_after_answers and bytes(frame[:2]) not in _LOGIN_API_KEYS:
            self.close("it asks for more under a login that is over")
            return
        super().handle_frame(frame)

    def refuse(self, reason: str) -> None:
        """Close because the peer broke the protocol; strangers learn that no sooner than others."""
        if self._is_open:
            super().refuse(reason)
            return
        self.metrics.protocol_errors += 1
        self._end_later(reason)

    def choose_mechanism(
        self, mechanism: str, context: RequestContext
    ) -> SaslHandshakeResponse | Pending:
        """Answer SaslHandshake."""
        session = self._session
        try:
            session.choose(mechanism, version=context.version, now_ms=self._now_ms())
        except NotNowError:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        except UnknownMechanismError as error:
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=session.mechanisms
            )
            self._fail(error, context, response)
            return PENDING
        return SaslHandshakeResponse(mechanisms=session.mechanisms)

    def authenticate(
        self, token: bytes, context: RequestContext
    ) -> SaslAuthenticateResponse | Pending:
        """Answer SaslAuthenticate."""
        response = self._take_token(token, context)
        return PENDING if response is None else response

    def _take_token(
        self, token: bytes, context: RequestContext | None
    ) -> SaslAuthenticateResponse | None:
        """Take a token; its answer, or None if that comes later. Bare ones have no context."""
        try:
            step = self._session.receive(token)
            if isinstance(step, Work):
                done = partial(self._on_work, context, step)
                self._logins.work(step, self.client_host, done)
                # Not before: work that is refused is a failure like others, to be answered.
                self._is_busy = True
                return None
            return self._answer(step, context)
        except NotNowError:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="No login is under way on this connection.",
            )
        except LoginError as error:
            self._fail(error, context, _refusal())
        except TooManyLoginsError:
            self.close("too many logins wait to be looked at")
        return None

    def _on_work(self, context: RequestContext | None, work: Work, future: Future[Answer]) -> None:
        """Go on when the thread has looked at a password or a token."""
        if self.is_closed:
            return
        self._is_busy = False
        try:
            answer = future.result()
            work.confirm()
            response = self._answer(answer, context)
        except LoginError as error:
            self._fail(error, context, _refusal())
            return
        if context is not None:
            context.respond(response)
        self._reader.maybe_resume()

    def _answer(
        self, answer: Answer, context: RequestContext | None
    ) -> SaslAuthenticateResponse | None:
        lifetime_ms = self._session.finish(answer, now_ms=self.broker.clock.now_ms())
        if answer.login is not None:
            self._enter(lifetime_ms)
        if context is None:
            self._send_bare(answer.token)
            return None
        return SaslAuthenticateResponse(
            auth_bytes=answer.token, session_lifetime_ms=lifetime_ms if context.version else 0
        )

    def _enter(self, lifetime_ms: int) -> None:
        """Let the client in, or let it stay."""
        login = self._session.login
        if login is None:
            return
        self.metrics.logins_succeeded += 1
        self._forget_credential()
        if login.verified_by is not None:
            self._entered_by = (login.verified_by, login.user)
            self._logins.enter(self, *self._entered_by)
        self._cancel_timer()
        self._ends_after_answers = self._ends_after_mute = False
        if lifetime_ms:
            self._timer = self._server.loop.call_later(lifetime_ms / 1000, self._on_login_over)
        if not self._is_open:
            self._is_open = True
            self._unsent_bytes_max = UNSENT_BYTES_MAX
            self.principal = Principal(ANONYMOUS.type, login.user)
            self.quotas = self._server.quotas_for(self)
            self._server.on_let_in(self)

    def _on_login_over(self) -> None:
        self._timer = None
        if self._slots:
            # Nor can the client log in again while its request waits: answers come in order.
            self._ends_after_answers = True
        elif self._mute_timer is not None:
            self._end_soon(self._mute_timer)
        else:
            self._end_login()

    def _end_soon(self, mute_timer: asyncio.TimerHandle | None) -> None:
        """End a login that is over, unless the client repeats it as soon as it can.

        It cannot while nobody reads what it says. It may do so afterwards, but not by being held
        back once more.
        """
        loop = self._server.loop
        self._ends_after_mute = mute_timer is not None
        begin_s = loop.time() if mute_timer is None else mute_timer.when()
        self._timer = loop.call_at(begin_s + LOGIN_AFTER_WAIT_S, self._end_login)

    def send_answered(self) -> None:
        """Send all replies whose turn has come; a login that is over ends soon after the last."""
        super().send_answered()
        if self._ends_after_answers and not self._slots and not self.is_closed:
            self._ends_after_answers = False
            self._end_soon(self._mute_timer)

    def unmute(self) -> None:
        """Go on with requests; a login that is over ends soon, also where quotas have changed."""
        if self._ends_after_mute and self._mute_timer is not None:
            self._cancel_timer()
            self._end_soon(None)
        super().unmute()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_login(self) -> None:
        self.close("its login is over and was not repeated")

    def _fail(self, error: LoginError, context: RequestContext | None, response: Any) -> None:
        """Answer and close after a while; nothing is read until then."""
        self.metrics.logins_failed += 1
        self._end_later(str(error), context, response)

    def _end_later(
        self, reason: str, context: RequestContext | None = None, response: Any = None
    ) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        delay_s = self._logins.failure_delay_s()
        self._server.loop.call_later(delay_s, self._end, reason, context, response)

    def _end(self, reason: str, context: RequestContext | None, response: Any) -> None:
        if self.is_closed:
            return
        if context is None:
            self.close(reason)
            return
        context.respond(response)
        self.send_answered()
        # kafka-python drops an answer that it reads together with the end behind it.
        self._server.loop.call_later(REFUSED_LOGIN_LINGER_S, self._end, reason, None, None)

    def _send_bare(self, token: bytes) -> None:
        self._out.append(_LENGTH.pack(len(token)) + token)
        self._send()

    def _forget_credential(self) -> None:
        if self._entered_by is not None:
            self._logins.leave(self, *self._entered_by)
            self._entered_by = None

    def _now_ms(self) -> int:
        return int(self._server.loop.time() * 1000)

    def _close_now(self, reason: str) -> None:
        self._cancel_timer()
        self._forget_credential()
        super()._close_now(reason)


def _refusal() -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=_FAILED
    )
