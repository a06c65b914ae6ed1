"""Connections to the HTTP API: how many, which are closed first, and bounds of request heads.

A connection is a stranger until one of its requests has been let in: by a credential, or, if no
credential is required, by naming an operation. If there are too many strangers, a new connection
closes one of them, from its own address first. If there are too many connections in total, it
closes the one that has been idle longest, or a stranger if more than half of all connections are
strangers. A connection that answers a request stays, so a new connection gets a 503 only if all
others answer requests.

A stranger may stay as long as an idle connection.

aiohttp bounds one line of a head. This module bounds the bytes that neither complete a request nor
belong to a body, and the requests that wait until the one before them is answered.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import HttpRequestParser
from aiohttp.web_protocol import RequestHandler

from fairlead_broker.limits import (
    REST_CONNECTIONS_MAX,
    REST_HEAD_BYTES_MAX,
    REST_HEAD_FIELD_BYTES_MAX,
    REST_HEAD_FIELDS_MAX,
    REST_HEAD_LINE_BYTES_MAX,
    REST_KEEPALIVE_S,
    REST_PIPELINED_MAX,
    REST_RECEIVE_BYTES,
    STRANGERS_MAX,
    STRANGERS_PER_IP_MAX,
)
from fairlead_broker.rest.instances.forwarded_requests import ForwardedConnection
from fairlead_broker.rest.problem_response import add_common_headers, build_problem_response
from fairlead_broker.rest.problems import ProblemError
from fairlead_model.host_address import peer_address
from fairlead_model.session.unproved_peers import UnprovedPeers

if TYPE_CHECKING:
    from fairlead_broker.measures.rest_metrics import RestMetrics

_SWEEP_S: Final = 1.0
_BYTES_OF_REQUEST: Final = re.compile(r":?\n|:$|: b['\"]|: bytearray\(")
"""Where aiohttp's parser begins to show the bytes that it refuses, as Python writes them."""
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class OpenConnections:
    """The connections of one port. Forwarded requests are not counted: they have no descriptor."""

    def __init__(self, metrics: RestMetrics) -> None:
        self._metrics = metrics
        self._open: set[RestConnection] = set()
        self._strangers: UnprovedPeers[RestConnection] = UnprovedPeers(
            total_max=STRANGERS_MAX,
            per_address_max=STRANGERS_PER_IP_MAX,
            patience_s=REST_KEEPALIVE_S,
        )
        self._idle: dict[RestConnection, None] = {}
        """Connections that were let in and answer no request, the longest idle one first."""
        self._sweep_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def arrived(self, connection: RestConnection, address: str) -> bool:
        """Count a new connection and close another one for it if need be; False to refuse it."""
        loop = asyncio.get_running_loop()
        leaving = self._strangers.add(connection, address, loop.time())
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(_SWEEP_S, self._sweep)
        self._open.add(connection)
        if leaving is None and len(self._open) > REST_CONNECTIONS_MAX:
            leaving = self._choose_leaving()
        if leaving is None:
            return True
        self._metrics.connections_refused += 1
        self.left(leaving)
        if leaving is connection:
            return False
        leaving.abort()
        return True

    def close(self) -> None:
        """Stop the timer that closes strangers."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    def _sweep(self) -> None:
        """Close strangers that take too long: aiohttp would wait for a first request for ever."""
        self._sweep_timer = None
        loop = asyncio.get_running_loop()
        for stranger in self._strangers.take_overdue(loop.time()):
            stranger.abort()
        if len(self._strangers):
            self._sweep_timer = loop.call_later(_SWEEP_S, self._sweep)

    def _choose_leaving(self) -> RestConnection | None:
        """Return the connection to close if there are too many; half of them may be strangers."""
        if len(self._strangers) <= REST_CONNECTIONS_MAX // 2 and self._idle:
            return next(iter(self._idle))
        return self._strangers.take_oldest()

    def let_in(self, protocol: RequestHandler) -> None:
        """Note that a connection is no longer a stranger."""
        if isinstance(protocol, RestConnection):
            self._strangers.discard(protocol)

    def begin(self, protocol: RequestHandler) -> None:
        """Note that a connection answers a request, so it is not closed for another one."""
        if isinstance(protocol, RestConnection):
            self._idle.pop(protocol, None)

    def end(self, protocol: RequestHandler) -> None:
        """Note that a connection has answered its request."""
        if (
            isinstance(protocol, RestConnection)
            and protocol in self._open
            and protocol not in self._strangers
        ):
            self._idle[protocol] = None

    def left(self, connection: RestConnection) -> None:
        """Forget a connection that has closed, or is about to."""
        self._open.discard(connection)
        self._strangers.discard(connection)
        self._idle.pop(connection, None)


class RestConnection(RequestHandler):
    """aiohttp's connection; what its parser refuses is answered with the same problem document."""

    __slots__ = ("_head_bytes", "_last_payload", "_others", "_progress")

    def __init__(
        self,
        others: OpenConnections,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        **settings: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **settings)
        # As aiohttp makes it, except for the number of requests that may wait (32 in aiohttp).
        self._parser = HttpRequestParser(
            self,
            loop,
            self._read_bufsize,
            max_line_size=REST_HEAD_LINE_BYTES_MAX,
            max_field_size=REST_HEAD_FIELD_BYTES_MAX,
            max_headers=REST_HEAD_FIELDS_MAX,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=REST_PIPELINED_MAX,
        )
        self._max_msg_queue_size = REST_PIPELINED_MAX
        self._msg_queue_resume_size = REST_PIPELINED_MAX // 2
        self._others = others
        self._head_bytes = 0
        self._last_payload: Any = None
        self._progress = (0, 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("not a stream")
        if not isinstance(transport, ForwardedConnection):
            if hasattr(transport, "max_size"):
                # asyncio reads up to 256 KiB at a time, and all of that may be heads.
                transport.max_size = REST_RECEIVE_BYTES
            peer = transport.get_extra_info("peername")
            if not self._others.arrived(self, peer_address(str(peer[0])) if peer else ""):
                self._force_close = True
                transport.write(_BUSY)
                transport.close()
                return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._others.left(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages:
            self._last_payload = self._messages[-1][1]
        body_bytes = 0 if self._last_payload is None else self._last_payload.total_bytes
        progress = (self._request_count, body_bytes)
        if progress != self._progress:
            self._progress = progress
            self._head_bytes = 0
            return
        if not self._reading_paused and not self._buffer_paused:
            # Data that arrives after a pause waits unread, and no more is read for a while.
            self._head_bytes += len(data)
        if self._head_bytes > REST_HEAD_BYTES_MAX:
            if self._waiter is not None and self.transport is not None:
                self.transport.write(_HEAD_TOO_LARGE)
            self.force_close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        problem = _problem_of_head(exc)
        if problem is None:
            text = _BYTES_OF_REQUEST.split(message or "the request cannot be read", maxsplit=1)[0]
            problem = ProblemError(status, text, closes=True)
        response = build_problem_response(problem, None)
        add_common_headers(response)
        response.force_close()
        return response


def _problem_of_head(error: BaseException | None) -> ProblemError | None:
    """Return the problem of a head that aiohttp's parser finds too large; None for others."""
    if isinstance(error, LineTooLong):
        if error.args[1] == REST_HEAD_LINE_BYTES_MAX:
            message = f"the first line is longer than {REST_HEAD_LINE_BYTES_MAX} bytes"
            return ProblemError(414, message, closes=True)
        message = f"a header is longer than {REST_HEAD_FIELD_BYTES_MAX} bytes"
        return ProblemError(431, message, closes=True)
    if isinstance(error, BadHttpMessage) and error.message.startswith("Too many headers"):
        message = f"there are more than {REST_HEAD_FIELDS_MAX} headers"
        return ProblemError(431, message, closes=True)
    return None


class RestHttp(web.Server):
    """aiohttp's low-level server, with `RestConnection` as its connections."""

    def __init__(self, handler: Any, others: OpenConnections, **settings: Any) -> None:
        super().__init__(handler, **settings)
        self._others = others

    def __call__(self) -> RequestHandler:
        return RestConnection(self._others, self, loop=self._loop, **self._kwargs)
