"""A broker's connection to another one over TLS, with certificates on both sides.

The handshake computes in threads. From then on the socket is the connection's own, as without TLS:
what has come is decrypted in the turn in which it came, straight into the buffer of replies.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

from fairlead_broker.peer_check import PeerProofError
from fairlead_broker.tasks.leader_connection import LeaderConnection, connect_to_broker
from fairlead_model.host_address import join_address
from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.limits import HANDSHAKE_STEP_BYTES
from fairlead_tls.peer_check import check_called
from fairlead_tls.peer_names import PeerName
from fairlead_tls.tls_stream import TlsStream

if TYPE_CHECKING:
    import ssl

    from fairlead_tls.certificates import PeerIdentity


async def open_tls(
    host: str,
    port: int,
    leader_id: int,
    own: PeerIdentity,
    *,
    client_id: str,
    timeout_s: float,
) -> TlsLeaderConnection:
    """Connect to a broker that shows the certificate of `leader_id`; `own` is what it is shown.

    PeerProofError if its certificate is another one, OSError or TimeoutError.
    """
    async with asyncio.timeout(timeout_s):
        sock = await connect_to_broker(host, port)
        stream = TlsStream(sock)
        try:
            await _shake_hands(stream, own.client_context)
            check_called(stream.certificate(), PeerName(own.name.cluster, leader_id))
        except TlsRefusedError as error:
            stream.send_alert()
            sock.close()
            where = join_address(host, port)
            raise PeerProofError(f"no TLS with {where}: {error}") from None
        except BaseException:
            sock.close()
            raise
    return TlsLeaderConnection(stream, client_id)


async def _shake_hands(stream: TlsStream, context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    stream.begin_client(context)
    while not await asyncio.to_thread(stream.step_handshake):
        await _send_all(stream)
        data = await loop.sock_recv(stream.socket, HANDSHAKE_STEP_BYTES)
        if not data:
            raise TlsRefusedError(
                "it has closed the connection in the handshake; its log says why, unless its "
                "listener.security.protocol.map lacks INTERNAL:SSL"
            )
        stream.feed_handshake(data, context)
    await _send_all(stream)


async def _send_all(stream: TlsStream) -> None:
    if stream.outgoing.pending:
        await asyncio.get_running_loop().sock_sendall(stream.socket, stream.outgoing.read())


class TlsLeaderConnection(LeaderConnection):
    """The same over a stream whose handshake is done."""

    def __init__(self, stream: TlsStream, client_id: str) -> None:
        super().__init__(stream.socket, client_id)
        self._stream = stream
        self._source = stream
        self._is_due = False
        self._read_on()

    def send_frame(self, data: bytes) -> None:
        try:
            self._stream.tls.write(data)
        except OSError:
            # What came last was damaged: whoever waits for replies hears that there are none.
            self.close()
            return
        super().send_frame(self._stream.outgoing.read())

    def has_hung_up(self) -> bool:
        """Tell whether the leader has closed the connection, though the loop has yet to notice.

        It says goodbye by TLS before, so that there are bytes in front of the end.
        """
        if self.closed.done():
            return True
        poll = select.poll()
        poll.register(self._stream.socket, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _on_readable(self) -> None:
        """Read what has come; what of it is still inside TLS then has a turn of its own."""
        self._is_due = False
        if self.closed.done():
            return
        super()._on_readable()
        if self.closed.done():
            return
        if self._stream.outgoing.pending:
            # An answer of TLS itself: the peer has asked for new keys.
            super().send_frame(self._stream.outgoing.read())
        self._read_on()

    def _read_on(self) -> None:
        if not self._is_due and self._stream.has_more:
            self._is_due = True
            self._loop.call_soon(self._on_readable)
