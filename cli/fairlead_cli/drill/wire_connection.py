"""One connection with Kafka's protocol, one request at a time, for a drill's measurements.

A Kafka client would hide what a drill measures: it retries, waits and refreshes on its own. Apache
Kafka supports the versions that are used here, too.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from fairlead_cli.client.access import build_context, login_settings
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.header import decode_response, encode_request_frame
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest
from fairlead_wire.sasl_login import LoginRefusedError, begin_login

if TYPE_CHECKING:
    from typing import Self

CLIENT_ID = "fairlead-drill"
# Names are resolved at most this often: a dead broker is tried every few milliseconds, and each
# resolution costs a thread and several requests in a pod. Short, as a new pod has a new address.
NAME_AGE_S_MAX = 0.5
_resolved: dict[str, tuple[float, str]] = {}
FRAME_BYTES_MAX = 16 << 20
LENGTH = struct.Struct(">i")
# The errors of a connection; a request that timed out is an `OSError`, too.
WireErrors = (OSError, EOFError, RemoteProtocolError)


class WireConnection:
    """A connection from `open`; it cannot be used after an error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect, and log in if the client's settings have credentials; OSError."""
        context = build_context()
        reader, writer = await asyncio.open_connection(
            await resolve(host),
            port,
            ssl=context,
            server_hostname=None if context is None else host,
        )
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = cls(reader, writer)
        try:
            await connection._log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    async def _log_in(self) -> None:
        settings = login_settings()
        if settings is None:
            return
        handshake = await self.call(SaslHandshakeRequest(settings.mechanism), 1)
        if handshake.error_code:
            raise RemoteProtocolError(f"it does not take {settings.mechanism}")
        login = begin_login(*settings)
        try:
            token = next(login)
            while True:
                reply = await self.call(SaslAuthenticateRequest(token), 2)
                if reply.error_code:
                    raise RemoteProtocolError(reply.error_message or "the login is refused")
                token = login.send(bytes(reply.auth_bytes))
        except StopIteration:
            return
        except LoginRefusedError as error:
            raise RemoteProtocolError(str(error)) from None

    async def call(self, message: Any, version: int) -> Any:
        """Send a request and return its reply. The caller sets a limit with `asyncio.timeout`."""
        self._correlation_id += 1
        api_key = message.API_KEY
        frame = encode_request_frame(api_key, version, self._correlation_id, CLIENT_ID, message)
        self._writer.writelines(bytes(segment) for segment in frame)  # type: ignore[arg-type]
        (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise RemoteProtocolError(f"a reply of {size} bytes")
        reply = await self._reader.readexactly(size)
        correlation_id, response = decode_response(memoryview(reply), api_key, version)
        if correlation_id != self._correlation_id:
            raise RemoteProtocolError("the reply to another request")
        return response

    def close(self) -> None:
        """Close the connection, without waiting for outstanding answers."""
        self._writer.transport.abort()


async def resolve(host: str) -> str:
    """Return an address of a host, at most half a second old; OSError if there is none."""
    now = time.monotonic()
    asked_at, address = _resolved.get(host, (0.0, ""))
    if not address or now - asked_at > NAME_AGE_S_MAX:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        address = str(found[0][4][0])
        _resolved[host] = (now, address)
    return address
