"""Calls to another broker, one at a time, over a connection that is made when it is needed.

Requests of brokers to each other about transactions use the internal listener, as fetches do, but
not the same connections: a parked fetch would delay the replies behind it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.peer_check import PeerProofError
from fairlead_broker.tasks.leader_connecting import connect_to_leader
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.header import decode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.broker import Broker
    from fairlead_broker.tasks.leader_connection import LeaderConnection
    from fairlead_model.cluster import ClusterImage
    from fairlead_wire.message import Message

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 5.0
"""A broker in service that is silent for so long gets a new connection."""


class PeerLink:
    """To one broker. `on_reply` of a call gets the response, or None if there is none."""

    def __init__(self, broker: Broker, peer_id: int, secret: bytes, *, client_id: str) -> None:
        self.peer_id = peer_id
        self._broker = broker
        self._secret = secret
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._connection: LeaderConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._call: tuple[Message, int, Callable[[Any | None], None]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_silent = False

    @property
    def is_busy(self) -> bool:
        """True from a call until its reply has been handed over."""
        return self._call is not None

    def call(self, request: Message, version: int, on_reply: Callable[[Any | None], None]) -> None:
        """Send a request. `on_reply` is called later, once; only then may the next one be sent."""
        self._call = (request, version, on_reply)
        self._timer = self._loop.call_later(CALL_TIMEOUT_S, self._give_up, "it does not answer")
        if self._connection is None:
            self._connecting = self._loop.create_task(self._connect())
        else:
            self._connection.send(request, version)

    def interrupt(self, reason: str) -> None:
        """End the call that is under way without a reply, because none is to be expected."""
        if self.is_busy:
            self._give_up(reason)

    def close(self) -> None:
        """Let go of the connection; a call that is under way has no reply."""
        self._call = None
        self._disconnect()

    async def _connect(self) -> None:
        try:
            connection = await connect_to_leader(
                self._broker.image,
                self.peer_id,
                self._secret,
                client_id=self._client_id,
                certificate=self._broker.peer_certificate,
            )
        except (OSError, TimeoutError, PeerProofError, RemoteProtocolError) as error:
            self._connecting = None
            self._give_up(str(error) or type(error).__name__)
            return
        self._connecting = None
        self._connection = connection
        connection.on_reply = self._on_reply
        connection.closed.add_done_callback(lambda _: self._on_closed(connection))
        self._is_silent = False
        if self._call is not None:
            request, version, _ = self._call
            connection.send(request, version)

    def _on_reply(self, frame: memoryview) -> None:
        if self._call is None:
            raise RemoteProtocolError("a reply that nobody has asked for")
        request, version, on_reply = self._call
        _, response = decode_response(frame, request.API_KEY, version)
        self._end_call()
        on_reply(response)

    def _on_closed(self, connection: LeaderConnection) -> None:
        if self._connection is connection:
            self._connection = None
            if self.is_busy:
                self._give_up("it has closed the connection")

    def _give_up(self, reason: str) -> None:
        if not self._is_silent:
            self._is_silent = True
            logger.info("broker %d cannot be asked: %s", self.peer_id, reason)
        call = self._call
        self._end_call()
        self._disconnect()
        if call is not None:
            call[2](None)

    def _end_call(self) -> None:
        self._call = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _disconnect(self) -> None:
        self._end_call()
        connection, self._connection = self._connection, None
        if connection is not None:
            # A request that was given up is sent again, maybe to another broker. If the network
            # delivers the old one later, it may be outdated.
            connection.abort()
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()


class PeerLinks:
    """Links to all brokers that were called, except those without a registration."""

    def __init__(self, broker: Broker, secret: bytes, *, client_id: str) -> None:
        self._broker = broker
        self._secret = secret
        self._client_id = client_id
        self._links: dict[int, PeerLink] = {}

    def to(self, peer_id: int) -> PeerLink:
        """Return the link to a broker, made if need be."""
        link = self._links.get(peer_id)
        if link is None:
            link = self._links[peer_id] = PeerLink(
                self._broker, peer_id, self._secret, client_id=self._client_id
            )
        return link

    def publish(self, image: ClusterImage) -> None:
        """Wait for no reply of a broker that the controller has fenced."""
        for peer_id, link in list(self._links.items()):
            registration = image.brokers.get(peer_id)
            if registration is None or registration.fenced:
                link.interrupt("it is fenced")
            if registration is None and not link.is_busy:
                link.close()
                del self._links[peer_id]

    def close(self) -> None:
        """Close all connections; calls under way are not answered."""
        for link in self._links.values():
            link.close()
        self._links.clear()
