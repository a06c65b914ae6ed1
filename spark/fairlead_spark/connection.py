"""One blocking connection to a broker. Several requests may be sent before their replies.

A reply is in a buffer that the next reply overwrites: copy bytes that you keep.

A login may have a lifetime, from the broker (KIP-368) or from the token. Then the connection logs
in again by itself, before a request.
"""

import math
import random
import socket
import struct
import time
from typing import Any, Final

from fairlead_spark import limits
from fairlead_spark.client_security import ClientSecurity, Login
from fairlead_spark.errors import SourceError
from fairlead_spark.token_endpoint import forget_token, read_token
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.header import decode_response, encode_request_frame
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest
from fairlead_wire.sasl_login import LoginRefusedError, log_in, log_in_by_token

_LENGTH: Final = struct.Struct(">i")
# Every broker supports version 0, and it has all that is needed.
_API_VERSIONS_VERSION: Final = 0
_SASL_HANDSHAKE_VERSION: Final = 1
_SASL_AUTHENTICATE_VERSION: Final = 2
_LOGIN_BUFFER_BYTES: Final = 4096


class Connection:
    """Open from the start; after an error it cannot be used any more and must be closed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        receive_buffer_bytes: int,
        timeout_s: float,
        security: ClientSecurity,
    ) -> None:
        """Connect, ask for the versions that the broker supports, and log in.

        OSError if that fails, SourceError if the broker refuses the login.
        """
        self.address = _shown(host, port)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._buffer = bytearray(64 * 1024)
        self._served: dict[int, tuple[int, int]] = {}
        self._login = security.login
        self._waiting = 0
        self._due = math.inf
        # Fetched first, so that the broker does not wait for it.
        token = _read_token(security.login)
        self._socket = _open_socket(
            host, port, receive_buffer_bytes, min(timeout_s, limits.CONNECT_TIMEOUT_S)
        )
        try:
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
            reply = self._call_in(ApiVersionsRequest(), _API_VERSIONS_VERSION)
            self._served = {
                each.api_key: (each.min_version, each.max_version) for each in reply.api_keys
            }
            if security.login is not None:
                self._log_in(security.login, token)
        except BaseException:
            self._socket.close()
            raise

    def version_of(self, api_key: int, wanted: int) -> int:
        """Return the highest version served, up to `wanted`; RemoteProtocolError if none."""
        lowest, highest = self._served.get(api_key, (0, -1))
        version = min(wanted, highest)
        if version < lowest:
            raise RemoteProtocolError(
                f"broker {self.address} does not serve API {api_key} up to version {wanted}"
            )
        return version

    def call(self, message: Any, wanted_version: int, *, timeout_s: float | None = None) -> Any:
        """Send a request and wait for its reply. OSError includes time-outs and closed sockets.

        `timeout_s`: for a reply that the broker delays; default: the connection's time-out.
        """
        version = self.version_of(message.API_KEY, wanted_version)
        return self._call_in(message, version, timeout_s=timeout_s)

    def send(self, message: Any, version: int) -> int:
        """Send a request; return its id for `receive`.

        ConnectionError also if the broker refuses to renew the login.
        """
        if not self._waiting and time.monotonic() >= self._due:
            self._log_in_again()
        self._correlation_id += 1
        frame = encode_request_frame(
            message.API_KEY, version, self._correlation_id, self._client_id, message
        )
        self._socket.settimeout(self._timeout_s)
        self._socket.sendall(b"".join(frame))  # type: ignore[arg-type]
        self._waiting += 1
        return self._correlation_id

    def receive(self, api_key: int, version: int, sent: int, *, timeout_s: float) -> Any:
        """Return the reply to request `sent`, which must be the oldest without a reply."""
        deadline = time.monotonic() + timeout_s
        self._receive_into(memoryview(self._buffer)[: _LENGTH.size], deadline)
        (size,) = _LENGTH.unpack_from(self._buffer)
        if not 0 <= size <= limits.FRAME_BYTES_MAX:
            raise RemoteProtocolError(f"broker {self.address} announces a reply of {size} bytes")
        if size > len(self._buffer):
            self._buffer = bytearray(size + size // 4)
        frame = memoryview(self._buffer)[:size]
        self._receive_into(frame, deadline)
        correlation_id, reply = decode_response(frame, api_key, version)
        if correlation_id != sent:
            raise RemoteProtocolError(f"broker {self.address} answers another request")
        self._waiting -= 1
        return reply

    def close(self) -> None:
        """Close the connection, without waiting for outstanding replies."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for a reply."""
        return self._socket.fileno()

    @property
    def frame(self) -> bytearray:
        """The buffer with the last reply."""
        return self._buffer

    def _log_in_again(self) -> None:
        """Log in before the lifetime ends. The last reply stays in its buffer."""
        login = self._login
        if login is None:
            return
        kept = self._buffer
        try:
            token = _read_token(login)
            self._due = math.inf
            self._buffer = bytearray(_LOGIN_BUFFER_BYTES)
            self._log_in(login, token)
        except SourceError as refused:
            # The password may have changed. A new connection reads the file again, and shows
            # whether that was the reason.
            raise ConnectionError(str(refused)) from refused
        finally:
            self._buffer = kept

    def _log_in(self, login: Login, bearer: str) -> None:
        """Log in; SourceError if the broker refuses, because a retry would not help."""
        lifetime_ms = 0

        def send(token: bytes) -> bytes:
            nonlocal lifetime_ms
            reply = self.call(SaslAuthenticateRequest(token), _SASL_AUTHENTICATE_VERSION)
            if reply.error_code:
                raise LoginRefusedError(reply.error_message or f"error {reply.error_code}")
            lifetime_ms = reply.session_lifetime_ms
            return bytes(reply.auth_bytes)

        try:
            handshake = self.call(SaslHandshakeRequest(login.mechanism), _SASL_HANDSHAKE_VERSION)
            if handshake.error_code:
                enabled = ", ".join(handshake.mechanisms)
                raise LoginRefusedError(f"it takes {enabled}, not {login.mechanism}")
            began = time.monotonic()
            if login.tokens is None:
                log_in(login.mechanism, login.user, login.password, send)
            else:
                log_in_by_token(bearer, login.extensions, send)
        except LoginRefusedError as refused:
            whose = f"user {login.user}"
            if login.tokens is not None:
                forget_token(login.tokens)
                whose = f"client {login.user} with a token of {login.tokens.url}"
            reason = str(refused).rstrip(".")
            raise SourceError(
                f"broker {self.address} does not let {whose} in: {reason}. Check the file that "
                "clientConfig names"
            ) from refused
        if lifetime_ms > 0:
            # Random, because many connections may have begun at the same time.
            share = random.uniform(*limits.REAUTHENTICATION_SHARES)  # noqa: S311
            wait_s = lifetime_ms / 1000 * share
            self._due = began + max(wait_s, limits.REAUTHENTICATION_S_MIN)

    def _call_in(self, message: Any, version: int, *, timeout_s: float | None = None) -> Any:
        sent = self.send(message, version)
        patience_s = self._timeout_s if timeout_s is None else timeout_s
        return self.receive(message.API_KEY, version, sent, timeout_s=patience_s)

    def _receive_into(self, target: memoryview, deadline: float) -> None:
        at = 0
        while at < len(target):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"broker {self.address} did not answer in time")
            self._socket.settimeout(left)
            size = self._socket.recv_into(target[at:])
            if not size:
                raise ConnectionError(f"broker {self.address} closed the connection")
            at += size


def _read_token(login: Login | None) -> str:
    return "" if login is None or login.tokens is None else read_token(login.tokens)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _open_socket(
    host: str, port: int, receive_buffer_bytes: int, timeout_s: float
) -> socket.socket:
    """Connect to the first of the name's addresses that accepts; else OSError of the last."""
    reason = OSError(f"{host} has no address")
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        opened = socket.socket(family, kind)
        try:
            if receive_buffer_bytes:
                # Before connecting, because the window is negotiated then.
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.settimeout(timeout_s)
            opened.connect(address)
        except OSError as error:
            opened.close()
            reason = error
        else:
            return opened
    raise OSError(f"{_shown(host, port)}: {reason}") from reason
