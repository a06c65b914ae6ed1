"""Listening sockets of brokers and controllers: one socket for IPv4 and IPv6."""

import errno
import socket
from typing import Final

from fairlead_model.host_address import is_every_address, is_ipv6, join_address
from fairlead_sockets.addresses import SocketAddress, ipv4_first, no_such_name

_WITHOUT_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
"""Errors of a kernel without IPv6, for the socket or for its address."""


def open_listening_socket(
    host: str, port: int, *, backlog: int = 128, receive_buffer_bytes: int = 0
) -> socket.socket:
    """Listen at an address; OSError names it. `0.0.0.0`, `::` and no host mean every address.

    As in Kafka, with Java's sockets, every address means those of IPv4 and IPv6, with one socket;
    or only those of IPv4 if the kernel has no IPv6. To listen at one family only, name the address
    of an interface.
    """
    try:
        return _open(host, port, backlog, receive_buffer_bytes)
    except OSError as error:
        where = join_address(host or "*", port)
        raise OSError(error.errno, f"{where}: {error.strerror}") from error


def bound_port(listening: socket.socket) -> int:
    """Return the port at which a socket listens."""
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
            # Without this option, net.ipv6.bindv6only decides.
            is_one_family = where[0] != "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, is_one_family)
        sock.setblocking(False)
        if receive_buffer_bytes > 0:
            # Accepted sockets inherit the size. It must be set before listen(), because the first
            # window is offered to a client before its connection is accepted.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.bind(where)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock
