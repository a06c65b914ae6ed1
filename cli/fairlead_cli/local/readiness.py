"""Ask a process over HTTP whether it serves.

Six lines of HTTP instead of a library: the supervisor lives as long as the cluster, and an HTTP
library would triple its memory.
"""

from __future__ import annotations

import asyncio

# A request stays open while its process has no processor, so that the first answer counts: one that
# took longer for each of them would never be seen to serve. A process that ends closes it.
REPLY_TIMEOUT_S = 10.0
BODY_BYTES_MAX = 1 << 24


async def http_get(
    host: str, port: int, path: str, *, timeout_s: float = REPLY_TIMEOUT_S
) -> tuple[int, bytes] | None:
    """Return status and body; None without an answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                request = f"GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                reply = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = reply[:BODY_BYTES_MAX].partition(b"\r\n\r\n")
    fields = head.split(b" ", 2)
    if len(fields) < 2 or not fields[1].isdigit():
        return None
    return int(fields[1]), body
