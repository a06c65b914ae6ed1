"""One broker's session on the controller's side, and the messages that wait to be sent."""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from aiohttp import web

from fairlead_model.codec import text, whole
from fairlead_model.ids import BrokerEpoch, BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError
from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import MessageType

OUTBOUND_BYTES_MAX: Final = 64 << 20
"""Bytes of messages that may wait for a broker that does not read. Beyond that its session ends,
and the broker starts again from the image."""
CALLS_IN_FLIGHT_MAX: Final = 1000
FAULT_TIMEOUT_S: Final = 2


class BrokerSession:
    """One session, from the registration to the end of the connection."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        request: web.BaseRequest,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        start_position: tuple[int, int],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.start_position = start_position
        """The broker may serve once its image has reached this position."""
        self.position: tuple[int, int] | None = None
        """The position of the broker's image at its last heartbeat."""
        self.has_said_goodbye = False
        self.is_unfencing = False
        self.is_cordoning = False
        self.calls: set[asyncio.Task[None]] = set()
        self._socket = socket
        self._request = request
        self._outbound: deque[bytes | Iterator[bytes]] = deque()
        self._outbound_size = 0
        self._wake = asyncio.Event()
        self._faults: dict[int, asyncio.Future[str]] = {}
        self._next_fault = 0

    @property
    def has_caught_up(self) -> bool:
        """True once the broker has all that was durable when it connected."""
        return self.position is not None and self.position >= self.start_position

    async def inject_fault(
        self, fault: str, duration_ms: int, turns: tuple[int, int] = (0, 0)
    ) -> None:
        """Inject a fault into the broker; raise RefusedError with its reason if it refuses."""
        number = self._next_fault
        self._next_fault += 1
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._faults[number] = answer
        message: dict[str, Any] = {"id": number, "fault": fault, "duration_ms": duration_ms}
        if any(turns):
            message |= {"stall_ms": turns[0], "run_ms": turns[1]}
        self.send(pack_message(MessageType.FAULT, **message))
        try:
            async with asyncio.timeout(FAULT_TIMEOUT_S):
                problem = await answer
        except TimeoutError:
            raise RefusedError(
                RefusalCode.REQUEST_TIMED_OUT,
                f"broker {self.broker_id} has not answered within {FAULT_TIMEOUT_S} s",
            ) from None
        finally:
            del self._faults[number]
        if problem:
            raise RefusedError(RefusalCode.POLICY_VIOLATION, problem)

    def on_fault_reply(self, message: dict[str, Any]) -> None:
        """Take the broker's answer to a fault."""
        answer = self._faults.get(whole(message.get("id")))
        problem = text(message.get("error"))
        if answer is not None and not answer.done():
            answer.set_result(problem)

    def on_closed(self) -> None:
        """Note that the connection is over: the broker answers no waiting call any more."""
        for answer in self._faults.values():
            if not answer.done():
                answer.set_result("")

    def send(self, data: bytes) -> None:
        """Queue a message; end the session if too much waits already."""
        self._outbound.append(data)
        self._outbound_size += len(data)
        self._wake.set()
        if self._outbound_size > OUTBOUND_BYTES_MAX:
            self.abort()

    def send_all(self, messages: Iterator[bytes]) -> None:
        """Queue messages, each made only when it can be sent, before all queued later."""
        self._outbound.append(messages)
        self._wake.set()

    def abort(self) -> None:
        """Abort the connection: a peer that does not answer would not close it in order."""
        transport = self._request.transport
        if transport is not None:
            transport.abort()

    async def write(self) -> None:
        """Send what is queued, for as long as the connection lasts."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbound:
                item = self._outbound.popleft()
                if isinstance(item, bytes):
                    self._outbound_size -= len(item)
                    await self._socket.send_bytes(item)
                    continue
                for message in item:
                    await self._socket.send_bytes(message)
                    # A long image must not block the other sessions on the loop.
                    await asyncio.sleep(0)
