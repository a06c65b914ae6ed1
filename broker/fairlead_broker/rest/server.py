"""The port of the HTTP API: connections, authentication, and the way of a request to its answer.

aiohttp implements HTTP; this module sets its bounds that are off by default. A request passes the
gate (Host and Origin), the router finds its operation, and the handler answers it. Every error
becomes Problem Details. Requests of Kafka clients do not pass through this code.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from aiohttp import web

from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.limits import (
    ACCEPTS_PER_TURN,
    FRAME_RATE_MIN_BYTES_PER_S,
    LISTEN_BACKLOG,
    REST_BODY_BYTES_MAX,
    REST_KEEPALIVE_S,
    REST_REQUESTS_MAX,
    REST_WRITE_STALL_S,
)
from fairlead_broker.rest.bodies import BodyMemory, BodyReader, require_known_coding
from fairlead_broker.rest.calls import CallHost, KafkaCalls
from fairlead_broker.rest.connections import OpenConnections, RestHttp
from fairlead_broker.rest.gate import Gate
from fairlead_broker.rest.instances.forwarded_requests import (
    ForwardedConnection,
    sender_of,
    serve_forwarded,
)
from fairlead_broker.rest.instances.forwarding import Forwarding
from fairlead_broker.rest.instances.registry import ConsumerInstances
from fairlead_broker.rest.negotiation import accept_of
from fairlead_broker.rest.peers import Peers
from fairlead_broker.rest.problem_response import add_common_headers, build_problem_response
from fairlead_broker.rest.problems import RETRY_AFTER, ProblemError, problem_of
from fairlead_broker.rest.records.fetching import Fetches
from fairlead_broker.rest.request import RestOperation, RestRequest
from fairlead_broker.rest.routing import Router, read_query
from fairlead_broker.rest.slices import Slices
from fairlead_broker.rest.table import OPERATIONS
from fairlead_model.broker import REST_ENDPOINT
from fairlead_model.host_address import join_address, peer_address
from fairlead_sockets.accepting import Acceptor
from fairlead_sockets.listening import bound_port, open_listening_socket
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    import socket

    from fairlead_broker.broker import Broker
    from fairlead_broker.measures.rest_metrics import RestMetrics
    from fairlead_broker.net.logins import Logins
    from fairlead_broker.net.peer_log import PeerLog
    from fairlead_broker.net.tls_transport import TlsTransport
    from fairlead_broker.rest.authentication import Authenticator
    from fairlead_broker.rest.tls_door import TlsDoor
    from fairlead_broker.settings import RestAddress

LINGER_S: Final = 2.0
"""How long the rest of a refused body is read and dropped, so that the client sees the answer."""
_SILENT: Final = logging.getLogger(f"{__name__}.aiohttp")
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())


class RestServer:
    """`bind` takes the port, `start` answers, `stop` lets requests finish."""

    def __init__(
        self,
        broker: Broker,
        address: RestAddress,
        secret: bytes,
        peer_log: PeerLog,
        *,
        logins: Logins | None = None,
        tls: TlsTransport | None = None,
    ) -> None:
        """With `tls` the port speaks only https."""
        self._broker = broker
        self._address = address
        self._metrics: RestMetrics = broker.metrics.rest
        self._router = Router(OPERATIONS)
        self._gate = Gate(
            (address.host, address.advertised_host, *address.allowed_hosts),
            address.allowed_origins,
        )
        clients = next(each for each in broker.settings.listeners if not each.is_internal)
        self._fetches = Fetches(broker, secret)
        self._calls = CallHost(broker, clients, Peers(broker, secret), self._fetches)
        self._instances = ConsumerInstances(
            broker.node_id, address.consumer_instance_timeout_ms, broker.metrics.rest
        )
        self._forwarding = Forwarding(broker, secret)
        self._memory = BodyMemory()
        self._slices = Slices()
        self._peer_log = peer_log
        self._authenticator: Authenticator | None = None
        if tls is not None or (logins is not None and REST_ENDPOINT in logins.settings):
            # A port without authentication does not import the code that verifies credentials.
            from fairlead_broker.rest.authentication import Authenticator

            self._authenticator = Authenticator(logins, broker.clock, broker.metrics, peer_log)
        self._stopping = asyncio.Event()
        self._tls = tls
        self._door: TlsDoor | None = None
        self._connections = OpenConnections(self._metrics)
        self._http = RestHttp(
            self._answer,
            self._connections,
            handler_cancellation=True,
            keepalive_timeout=REST_KEEPALIVE_S,
            lingering_time=LINGER_S,
            auto_decompress=False,
            access_log=None,
            logger=_SILENT,
        )
        self._socket: socket.socket | None = None
        self._acceptor: Acceptor | None = None
        self._base_url = ""
        self._in_flight = 0

    def bind(self) -> tuple[str, int]:
        """Take the port; return the address to tell others. OSError."""
        address = self._address
        self._socket = open_listening_socket(address.host, address.port, backlog=LISTEN_BACKLOG)
        port = address.advertised_port or bound_port(self._socket)
        host = address.advertised_host
        scheme = "http" if self._tls is None else "https"
        self._base_url = f"{scheme}://{join_address(host, port)}"
        return host, port

    async def start(self) -> None:
        """Answer connections."""
        if self._socket is None:
            raise RuntimeError("the port has not been taken")
        if self._tls is not None:
            from fairlead_broker.rest.tls_door import TlsDoor

            metrics = self._broker.metrics
            self._door = TlsDoor(self._tls, self._http, metrics, self._peer_log, self._on_room)
        self._broker.forwarded_http = serve_forwarded(self._http)
        self._acceptor = Acceptor(
            self._socket, self._open, per_turn=ACCEPTS_PER_TURN, has_room=self._has_room
        )
        self._acceptor.resume()

    def publish(self) -> None:
        """Use the new image of the cluster."""
        self._calls.publish()
        self._forwarding.publish(self._broker.image)

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, give those under way `grace_s` to end, and close."""
        self._stopping.set()
        self._broker.forwarded_http = None
        self._fetches.end_waits()
        if self._acceptor is not None:
            await self._acceptor.close()
        elif self._socket is not None:
            self._socket.close()
        if self._door is not None:
            self._door.close()
        self._connections.close()
        self._http.pre_shutdown()
        with suppress(TimeoutError):
            await self._http.shutdown(grace_s)
        await self._instances.stop()
        self._slices.close()
        self._forwarding.close()
        self._calls.close()

    def _open(self) -> asyncio.BaseProtocol:
        return self._http() if self._door is None else self._door.open()

    def _has_room(self) -> bool:
        return self._door is None or self._door.handshakes.has_room

    def _on_room(self) -> None:
        if self._acceptor is not None:
            self._acceptor.resume()

    async def _answer(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, with a problem if it fails."""
        self._connections.begin(http.protocol)
        try:
            with ExitStack() as held:
                return await self._answer_and_write(http, held)
        finally:
            self._connections.end(http.protocol)

    async def _answer_and_write(self, http: web.BaseRequest, held: ExitStack) -> web.StreamResponse:
        """Answer one request; the caller closes `held` when the answer is written."""
        began_ns = perf_counter_ns()
        operation: RestOperation | None = None
        self._in_flight += 1
        self._metrics.in_flight = self._in_flight
        try:
            operation, response = await self._find_and_handle(http, held)
        except ProblemError as error:
            operation = self._operation_of(http)
            response = build_problem_response(error, accept_of(http))
        except ConnectionError:
            raise
        except Exception:
            self._peer_log.warn(
                "handler failed", "%s %s failed", http.method, ascii(http.path), trace=True
            )
            problem = ProblemError(500, "this broker has failed", code=50002, closes=True)
            response = build_problem_response(problem, accept_of(http))
        finally:
            self._in_flight -= 1
            self._metrics.in_flight = self._in_flight
        if not response.prepared:
            self._decorate(http, response)
        if self._stopping.is_set():
            response.force_close()
        if isinstance(http.transport, ForwardedConnection):
            http.transport.take(response)
        name = "none" if operation is None else operation.name
        self._metrics.note(name, response.status, perf_counter_ns() - began_ns)
        return await self._finish(http, response)

    def _decorate(self, http: web.BaseRequest, response: web.StreamResponse) -> None:
        """Add the headers that all answers have."""
        for name, value in self._gate.cors_headers(http.headers).items():
            response.headers[name] = _with_vary(response, name, value)
        add_common_headers(response)

    async def _finish(
        self, http: web.BaseRequest, response: web.StreamResponse
    ) -> web.StreamResponse:
        """Write the answer within its time limit; close the connection of a client that is slow."""
        try:
            async with asyncio.timeout(_write_timeout_s(response)):
                await response.prepare(http)
                await response.write_eof()
        except TimeoutError as error:
            if http.transport is not None:
                http.transport.abort()
            raise ConnectionResetError("the client takes nothing of its answer") from error
        return response

    async def _find_and_handle(
        self, http: web.BaseRequest, held: ExitStack
    ) -> tuple[RestOperation | None, web.StreamResponse]:
        self._gate.check(http.headers, self._base_url, http.raw_path)
        require_known_coding(http.headers)
        if http.method == "OPTIONS":
            return None, self._options(http)
        url = http.rel_url
        match = self._router.find(http.method, url.raw_path)
        operation = match.operation
        if self._stopping.is_set():
            raise ProblemError(503, "this broker is stopping", headers=RETRY_AFTER, closes=True)
        if self._in_flight > REST_REQUESTS_MAX:
            raise ProblemError(429, "too many requests at once", headers=RETRY_AFTER)
        sender = sender_of(http)
        if sender is None:
            sender = ANONYMOUS
            if self._authenticator is not None:
                sender = await self._authenticator.find_sender(http, held)
        self._connections.let_in(http.protocol)
        query = read_query(operation.query, url.raw_query_string)
        body = BodyReader(
            http, self._memory, bytes_max=0 if operation.is_stream else REST_BODY_BYTES_MAX
        )
        request = RestRequest(
            http,
            operation,
            path=match.parameters,
            query=query,
            kafka=KafkaCalls(
                self._calls, peer_address(http.remote or ""), sender, self._broker.authorizer
            ),
            body=body,
            base_url=self._base_url,
            stopping=self._stopping,
            memory=self._memory,
            slices=self._slices,
            held=held,
            decorate=partial(self._decorate, http),
            instances=self._instances,
            forwarding=self._forwarding,
        )
        request.negotiate()
        if match.parameters.get("cluster_id", self._broker.cluster_id) != self._broker.cluster_id:
            raise ProblemError(404, "this is another cluster")
        try:
            return operation, await operation.handle(request)
        except ConnectionError:
            raise
        except Exception as error:
            if request.has_begun:
                raise self._cut(request) from error
            if isinstance(error, KafkaError):
                raise problem_of(error) from error
            raise
        finally:
            body.release()

    def _cut(self, request: RestRequest) -> ConnectionError:
        """Close the connection, so that the client sees that the answer is incomplete."""
        self._peer_log.warn(
            "answer cut off",
            "%s %s failed in the midst of its answer",
            request.http.method,
            ascii(request.http.path),
            trace=True,
        )
        request.abort()
        return ConnectionResetError("the answer cannot be made whole")

    def _operation_of(self, http: web.BaseRequest) -> RestOperation | None:
        """Return the operation of a refused request, for the metrics."""
        try:
            return self._router.find(http.method, http.rel_url.raw_path).operation
        except ProblemError:
            return None

    def _options(self, http: web.BaseRequest) -> web.Response:
        methods = self._router.methods_at(http.rel_url.raw_path)
        if not methods:
            raise ProblemError(404, "there is nothing here")
        headers = self._gate.preflight_headers(http.headers, methods)
        return web.Response(status=204, headers={"Allow": ", ".join(methods), **headers})


def _write_timeout_s(response: web.StreamResponse) -> float:
    """Return how long a client may take to read a whole answer: the rate is that of frames."""
    return REST_WRITE_STALL_S + (response.content_length or 0) / FRAME_RATE_MIN_BYTES_PER_S


def _with_vary(response: web.StreamResponse, name: str, value: str) -> str:
    before = response.headers.get(name)
    return f"{before}, {value}" if name == "Vary" and before else value
