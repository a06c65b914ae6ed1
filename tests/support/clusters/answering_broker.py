"""A broker that gives each API one reply, in real bytes on a real socket."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fairlead_cli.wire_exchange import LENGTH, receive_exactly
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.header import decode_request_header, encode_response_frame
from fairlead_wire.messages.api_versions import ApiVersion, ApiVersionsResponse


@contextmanager
def answering_broker(replies: Mapping[ApiKey, Any] | None, *, newest: int = 5) -> Iterator[int]:
    """Yield the port of a broker with these replies; None: it hangs, but its kernel connects.

    It supports each of these APIs up to the version `newest`.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        offered = [ApiVersion(int(api_key), 0, newest) for api_key in replies or ()]
        every = {**(replies or {}), ApiKey.API_VERSIONS: ApiVersionsResponse(api_keys=offered)}
        thread = threading.Thread(target=_serve, args=(server, every), daemon=True)
        if replies is not None:
            thread.start()
        yield server.getsockname()[1]
        if replies is not None:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)


def _serve(server: socket.socket, replies: Mapping[ApiKey, Any]) -> None:
    """Answer one request on each connection, until the socket is shut."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            (size,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
            header, _ = decode_request_header(memoryview(receive_exactly(connection, size)))
            reply = encode_response_frame(
                header.api_key,
                header.api_version,
                header.correlation_id,
                replies[ApiKey(header.api_key)],
            )
            for part in reply:
                assert isinstance(part, bytes | bytearray | memoryview), (
                    "records in a file are not answered here"
                )
                connection.sendall(part)
