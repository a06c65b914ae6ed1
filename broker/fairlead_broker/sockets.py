"""Sockets of both families: where a broker listens, and how it reaches another one."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final

from fairlead_model.host_address import is_every_address, is_ipv6

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Where = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
    Found = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Where]]


_WITHOUT_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""How a kernel without IPv6 answers to a socket, or to its address."""


def open_listening_socket(
    host: str, port: int, *, backlog: int, receive_buffer_bytes: int = 0
) -> socket.socket:
    """Listen at an address; OSError. `0.0.0.0`, `::` and no host mean every address.

    As with Kafka's, whose sockets are Java's: every address is one of IPv4 and of IPv6, by one
    socket, and of IPv4 alone where the kernel has no IPv6. Whoever wants one family names the
    address of an interface.
    """
    if is_every_address(host):
        try:
            return _listen(socket.AF_INET6, ("::", port), backlog, receive_buffer_bytes)
        except OSError as error:
            if error.errno not in _WITHOUT_IPV6:
                raise
        every_ipv4 = ("0.0.0.0", port)  # noqa: S104 (it is what was asked for)
        return _listen(socket.AF_INET, every_ipv4, backlog, receive_buffer_bytes)
    if is_ipv6(host):
        return _listen(socket.AF_INET6, (host, port), backlog, receive_buffer_bytes)
    family, where = _ipv4_first(
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    )[0]
    return _listen(family, where, backlog, receive_buffer_bytes)


def bound_port(listening: socket.socket) -> int:
    """Return the port that a socket listens at."""
    return int(listening.getsockname()[1])


async def connect_to(
    host: str, port: int, configure: Callable[[socket.socket], None]
) -> socket.socket:
    """Return a connection that does not block; OSError. The addresses of a name are tried in turn.

    Those of IPv4 come first, as with Java's clients: a name whose IPv6 addresses lead nowhere works
    as it does there. `configure` is called before the connection is asked for.
    """
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, where in _ipv4_first(await _look_up(host, port)):
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


async def _look_up(host: str, port: int) -> Found:
    """Return the addresses of a host; an address needs no thread."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _ipv4_first(found: Found) -> list[tuple[socket.AddressFamily, Where]]:
    ordered = sorted(found, key=lambda each: each[0] != socket.AF_INET)
    return [(family, where) for family, _, _, _, where in ordered]


def _listen(
    family: socket.AddressFamily, where: Where, backlog: int, receive_buffer_bytes: int
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # The default is the machine's own choice (net.ipv6.bindv6only).
            is_one_family = where[0] != "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_one_family)
        sock.setblocking(False)
        if receive_buffer_bytes > 0:
            # Accepted sockets inherit it. The window that a client is offered first is settled
            # before a connection can be accepted.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.bind(where)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
