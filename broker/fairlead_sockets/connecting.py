"""Connect from a broker to another one, by an address or a name, over IPv4 or IPv6."""

import asyncio
import socket
from collections.abc import Callable

from fairlead_sockets.addresses import FoundAddresses, ipv4_first, no_such_name


async def connect_to(
    host: str, port: int, configure: Callable[[socket.socket], None]
) -> socket.socket:
    """Return a non-blocking connection; OSError. The addresses of a name are tried in turn.

    IPv4 addresses come first, as in Java's clients: a name with unreachable IPv6 addresses works as
    it does there. `configure` is called before the connection is opened.
    """
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, where in ipv4_first(await look_up(host, port)):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            configure(sock)
            await loop.sock_connect(sock, where)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure or OSError(f"{host} has no address")


async def look_up(host: str, port: int) -> FoundAddresses:
    """Return the addresses of a host; OSError. Only a name, not an address, needs a thread."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise no_such_name(host) from None
