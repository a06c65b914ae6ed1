"""Where brokers and controllers listen: one socket for the addresses of both families."""

import errno
import socket
from typing import Final

from fairlead_model.host_address import is_every_address, is_ipv6, join_address
from fairlead_sockets.addresses import SocketAddress, ipv4_first, no_such_name

_WITHOUT_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""How a kernel without IPv6 answers to a socket, or to its address."""


def open_listening_socket(
    host: str, port: int, *, backlog: int = 128, receive_buffer_bytes: int = 0
) -> socket.socket:
    """Listen at an address; OSError names it. `0.0.0.0`, `::` and no host mean every address.

    As with Kafka's, whose sockets are Java's: every address is one of IPv4 and of IPv6, by one
    socket, and of IPv4 alone where the kernel has no IPv6. Whoever wants one family names the
    address of an interface.
    """
    try:
        return _open(host, port, backlog, receive_buffer_bytes)
    except OSError as error:
        where = join_address(host or "*", port)
        raise OSError(error.errno, f"{where}: {error.strerror}") from error


def bound_port(listening: socket.socket) -> int:
    """Return the port that a socket listens at."""
    return int(listening.getsockname()[1])


def _open(host: str, port: int, backlog: int, receive_buffer_bytes: int) -> socket.socket:
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
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:
        raise no_such_name(host) from None
    family, where = ipv4_first(found)[0]
    return _listen(family, where, backlog, receive_buffer_bytes)


def _listen(
    family: socket.AddressFamily, where: SocketAddress, backlog: int, receive_buffer_bytes: int
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
