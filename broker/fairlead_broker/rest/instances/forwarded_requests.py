"""Requests that other brokers forward: answered as if their clients had connected to this broker.

Each request has its own connection in memory, so all rules for requests apply to it, too. Its
sender is an attribute of that connection, which a client cannot set by anything that it sends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from fairlead_broker.rest.instances.envelopes import ForwardedAnswer, pack_answer, unpack_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.authorization import Principal
    from fairlead_broker.broker import ForwardedHttp
    from fairlead_broker.rest.instances.envelopes import ForwardedRequest
    from fairlead_wire.messages.envelope import EnvelopeRequest

SENDER: Final = "fairlead_forwarded_sender"
"""Extra information of a transport: who sent the request that another broker forwards."""
_PASSED_BACK: Final = ("Content-Type", "Vary", "Retry-After", "Cache-Control", "WWW-Authenticate")


def sender_of(http: web.BaseRequest) -> Principal | None:
    """Return who sent a request that another broker has forwarded; None for other requests."""
    transport = http.transport
    found: Principal | None = None if transport is None else transport.get_extra_info(SENDER)
    return found


def serve_forwarded(serve: Callable[[], asyncio.Protocol]) -> ForwardedHttp:
    """Return a function that passes forwarded requests to the HTTP server behind `serve`."""

    def answer(envelope: EnvelopeRequest, respond: Callable[[bytes], None]) -> ForwardedConnection:
        request = unpack_request(envelope)
        connection = ForwardedConnection(serve(), request, respond)
        connection.begin(request.to_http())
        return connection

    return answer


class ForwardedConnection(asyncio.Transport):
    """A connection in memory for one request, which takes the answer before it is written."""

    def __init__(
        self,
        served: asyncio.Protocol,
        request: ForwardedRequest,
        respond: Callable[[bytes], None],
    ) -> None:
        super().__init__({SENDER: request.principal, "peername": (request.client_host, 0)})
        self._served = served
        self._respond = respond
        self._is_closing = False
        self._answer = ForwardedAnswer(500, {}, b"")

    def begin(self, request: bytes) -> None:
        """Pass the request to the server."""
        self._served.connection_made(self)
        self._served.data_received(request)

    def take(self, response: web.StreamResponse) -> None:
        """Keep a response as the answer of this connection."""
        body = response.body if isinstance(response, web.Response) else None
        headers = {
            name: response.headers[name] for name in _PASSED_BACK if name in response.headers
        }
        self._answer = ForwardedAnswer(
            response.status, headers, body if isinstance(body, bytes) else b""
        )

    def cancel(self) -> None:
        """End a request that no broker waits for any more, as if its client had disconnected."""
        self._respond = _say_nothing
        self.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Drop the data: `close` sends the answer as a whole."""

    def close(self) -> None:
        """Send the answer, and close."""
        if self._is_closing:
            return
        self._is_closing = True
        asyncio.get_running_loop().call_soon(self._served.connection_lost, None)
        self._respond(pack_answer(self._answer))

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._served

    def is_reading(self) -> bool:
        return not self._is_closing

    def pause_reading(self) -> None:
        """Do nothing: the whole request has been read."""

    def resume_reading(self) -> None:
        """Do nothing: the whole request has been read."""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: no data waits to be written."""

    def can_write_eof(self) -> bool:
        return False


def _say_nothing(_: Any) -> None:
    """Drop the answer: the broker that waited for it is gone."""
