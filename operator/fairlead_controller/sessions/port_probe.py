"""Connects to a port to see whether a process listens: tells a dead process from a slow one."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

from fairlead_model.broker import Endpoint
from fairlead_sockets.addresses import ipv4_first
from fairlead_sockets.connecting import look_up

PROBE_TIMEOUT_S: Final = 0.1


async def is_refused(endpoints: Sequence[Endpoint]) -> bool:
    """Tell whether the process behind these endpoints is certainly gone.

    Only a refused connection proves it: silence may mean a broken network or a full queue.
    """
    internal = [endpoint for endpoint in endpoints if endpoint.is_internal]
    for endpoint in internal or list(endpoints)[:1]:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                if await _refuses(endpoint):
                    return True
        except (OSError, TimeoutError):
            return False
    return False


async def _refuses(endpoint: Endpoint) -> bool:
    """Tell whether every address of a host refuses: a name may have IPv4 and IPv6 addresses."""
    loop = asyncio.get_running_loop()
    addresses = ipv4_first(await look_up(endpoint.host, endpoint.port))
    for family, where in addresses:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, where)
            except ConnectionRefusedError:
                continue
            return False
    return bool(addresses)
