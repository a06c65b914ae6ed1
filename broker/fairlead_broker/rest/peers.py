"""Requests to other brokers on behalf of HTTP clients: to leaders and coordinators there.

They use the internal listener, as all requests between brokers do, and Kafka's protocol. A broker
answers for what it leads itself and forwards nothing, so there are no loops. A connection carries
one request at a time, because a parked request would delay the requests behind it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
from typing import TYPE_CHECKING, Any

from fairlead_broker.limits import REST_PEER_CONNECTIONS_MAX
from fairlead_broker.peer_check import PeerProofError
from fairlead_broker.tasks.leader_connecting import connect_to_leader
from fairlead_wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fairlead_broker.broker import Broker
    from fairlead_broker.tasks.leader_connection import LeaderConnection
    from fairlead_model.cluster import ClusterImage
    from fairlead_wire.message import Message


logger = logging.getLogger(__name__)


class PeerUnreachableError(Exception):
    """A broker could not be asked. A request that was not sent has certainly changed nothing."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class _Peer:
    """Connections to one broker: being made, in use, or waiting for the next request."""

    def __init__(self, connections_max: int) -> None:
        self.slots = asyncio.Semaphore(connections_max)
        self.idle: list[LeaderConnection] = []
        self.busy: set[LeaderConnection] = set()
        self._connecting: set[asyncio.Task[LeaderConnection]] = set()

    def take(self) -> LeaderConnection | None:
        """Return a connection that is still open; None if there is none."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.has_hung_up():
                return connection
            connection.close()
        return None

    async def connect(self, connecting: Coroutine[Any, Any, LeaderConnection]) -> LeaderConnection:
        """Return a new connection; ConnectionAbortedError if `close` comes first."""
        task = asyncio.get_running_loop().create_task(connecting)
        self._connecting.add(task)
        try:
            await asyncio.wait((task,))
        except BaseException:
            if not task.cancel() and task.exception() is None:
                task.result().close()  # It was made in the same turn.
            raise
        finally:
            self._connecting.discard(task)
        if task.cancelled():
            raise ConnectionAbortedError("it is out of service")
        return task.result()

    def close(self) -> None:
        """Close all connections; requests that are under way end without an answer."""
        for connection in (*self.idle, *self.busy):
            connection.close()
        self.idle.clear()
        for task in self._connecting:
            task.cancel()


def _reason(error: Exception) -> str:
    """Return why a broker could not be asked, without its address: clients see the reason."""
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, PeerProofError):
        return "it does not prove that it is a broker of this cluster"
    if isinstance(error, RemoteProtocolError):
        return str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number in errno.errorcode and not isinstance(error, ssl.SSLError):
        return os.strerror(number)
    return "it cannot be reached"


class Peers:
    """Connections to all other brokers that were asked."""

    def __init__(
        self,
        broker: Broker,
        secret: bytes,
        *,
        connections_max: int = REST_PEER_CONNECTIONS_MAX,
    ) -> None:
        self._broker = broker
        self._secret = secret
        self._client_id = f"rest-{broker.node_id}"
        self._connections_max = connections_max
        self._peers: dict[int, _Peer] = {}

    async def ask(self, broker_id: int, request: Message, version: int, deadline_s: float) -> Any:
        """Send a request to a broker and return its answer; PeerUnreachableError.

        `deadline_s` is the time on the loop's clock until which it waits for the answer.
        """
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = _Peer(self._connections_max)
        was_sent = False
        try:
            async with asyncio.timeout_at(deadline_s), peer.slots:
                connection = peer.take() or await peer.connect(
                    connect_to_leader(
                        self._broker.image,
                        broker_id,
                        self._secret,
                        client_id=self._client_id,
                        certificate=self._broker.peer_certificate,
                    )
                )
                was_sent = True
                return await self._exchange(peer, connection, request, version, deadline_s)
        except (OSError, TimeoutError, PeerProofError, RemoteProtocolError) as error:
            logger.debug("broker %d cannot be asked: %s", broker_id, error)
            raise PeerUnreachableError(
                f"broker {broker_id} cannot be asked: {_reason(error)}", was_sent=was_sent
            ) from error

    async def _exchange(
        self,
        peer: _Peer,
        connection: LeaderConnection,
        request: Message,
        version: int,
        deadline_s: float,
    ) -> Any:
        peer.busy.add(connection)
        try:
            left_s = deadline_s - asyncio.get_running_loop().time()
            answer = await connection.call(request, version, timeout_s=left_s)
        except BaseException:
            connection.close()
            raise
        finally:
            peer.busy.discard(connection)
        peer.idle.append(connection)
        return answer

    def publish(self, image: ClusterImage) -> None:
        """Stop waiting for answers of brokers that the controller has fenced."""
        for broker_id, peer in list(self._peers.items()):
            registration = image.brokers.get(broker_id)
            if registration is None or registration.fenced:
                peer.close()
                if not peer.busy and registration is None:
                    del self._peers[broker_id]

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
