"""TLS connections, a new one for each request, a few at a time.

Each does a full handshake of TLS 1.3 with one suite: no session is resumed.
"""

import json
import socket
import ssl
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fairlead_bench.loads import wire_bytes
from fairlead_bench.loads.load_process import serve_load

TIMEOUT_S: Final = 30


def connect(port: int, context: ssl.SSLContext, request: bytes) -> None:
    """Open a connection, send a request, and read the whole answer."""
    with (
        socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            answer.read(size)


def main() -> None:
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    context = ssl.create_default_context(cafile=arguments["ca"])
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    request = wire_bytes.metadata_request([])
    port, count = arguments["port"], arguments["count"]
    with ThreadPoolExecutor(arguments["connections"]) as pool:
        connect(port, context, request)

        def work() -> dict[str, Any]:
            asked = [pool.submit(connect, port, context, request) for _ in range(count)]
            for each in asked:
                each.result()
            return {"records": count}

        serve_load(work)


if __name__ == "__main__":
    main()
