"""Connections between brokers: the real fetcher and the real handlers, frame by frame.

Only the socket is simulated. A follower's `ReplicaFetcher` sends the same bytes as in production;
the leader's side passes them to `dispatch`, and sends replies in the order of requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from simulator.virtual_loop import PROCESS

from fairlead_broker.authorization import BROKER
from fairlead_broker.listener import Listener
from fairlead_broker.net.dispatch import dispatch, encode_reply
from fairlead_broker.tasks.leader_connection import LeaderConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from simulator.network import End, Network

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker

HELLO: Final = b"a broker asks to be let in"
WELCOME: Final = b"\0\0\0\0"
_LENGTH_SIZE: Final = 4
INTERNAL: Final = Listener("INTERNAL", "", 9192, "", 9192, is_internal=True)


class SimLeaderConnection:
    """Replaces `LeaderConnection`. The proof of the secret is one round trip, part of `open`."""

    network: Network

    def __init__(self, end: End, client_id: str) -> None:
        self.on_reply: Callable[[memoryview], None] | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._end = end
        self._client_id = client_id
        self._correlation_id = 0
        end.on_message = self._receive
        end.on_close = self.close

    @classmethod
    async def open(
        cls, host: str, port: int, *, client_id: str, timeout_s: float
    ) -> SimLeaderConnection:
        process = PROCESS.get()
        assert process is not None
        connection = cls(cls.network.connect(process, host, client_id), client_id)
        welcomed = asyncio.get_running_loop().create_future()
        connection.on_reply = lambda _: welcomed.set_result(None)
        connection._end.send(HELLO)
        await asyncio.wait(
            (welcomed, connection.closed),
            timeout=timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not welcomed.done():
            connection.close()
            raise ConnectionRefusedError(f"{host} cannot be reached")
        connection.on_reply = None
        return connection

    async def prove(self, secret: bytes) -> None: ...

    send = LeaderConnection.send

    def next_correlation_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def send_frame(self, data: bytes) -> None:
        self._end.send(data)

    def has_hung_up(self) -> bool:
        return self.closed.done()

    def abort(self) -> None:
        """Close. Messages may still arrive late, as if the network itself holds them."""
        self.close()

    def close(self) -> None:
        self._end.close()
        if not self.closed.done():
            self.closed.set_result(None)

    def _receive(self, frame: bytes) -> None:
        if self.on_reply is not None and not self.closed.done():
            self.on_reply(memoryview(frame)[_LENGTH_SIZE:])


class FollowerConnection:
    """Replaces `Connection` on the internal listener, for a follower that has authenticated."""

    listener = INTERNAL
    principal = BROKER
    authorizer = None
    quotas = None
    peer_check = None
    replica_ids = range(2**31)
    run_api_key = -1
    arrived_ns = 0
    answered_count = 0

    def __init__(self, broker: Broker, end: End) -> None:
        self.broker = broker
        self.metrics = broker.metrics
        self.client_host = end.peer_host
        self._end = end
        self._slots: deque[RequestContext] = deque()
        end.on_message = self._on_frame
        end.on_close = self._on_close
        end.send(WELCOME)

    def client_id_of(self, client_id: bytes) -> str:
        return client_id.decode()

    def begin_run(self, api_key: int) -> None:
        self.run_api_key = api_key

    def on_response(self, context: RequestContext, response: Any) -> None:
        context.segments = encode_reply(context, response)
        self._send_answers()

    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None:
        raise AssertionError("a follower asks for what only the controller decides")

    def on_proved(self) -> None: ...

    def close(self, reason: str) -> None:
        raise AssertionError(f"{self.client_host} broke the protocol: {reason}")

    def _on_frame(self, frame: bytes) -> None:
        context = dispatch(self, memoryview(frame)[_LENGTH_SIZE:])  # type: ignore[arg-type]
        if context is not None:
            self._slots.append(context)
        self._send_answers()

    def _send_answers(self) -> None:
        while self._slots and self._slots[0].segments is not None:
            segments: Any = self._slots.popleft().segments
            self._end.send(b"".join(bytes(each) for each in segments))

    def _on_close(self) -> None:
        for context in self._slots:
            if context.parked is not None:
                context.parked.cancel()
