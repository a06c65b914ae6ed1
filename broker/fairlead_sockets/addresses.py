"""Socket addresses of IPv4 and IPv6, in the order in which they are tried."""

import socket
from collections.abc import Sequence

SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
FoundAddresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, SocketAddress]]
"""The result of `getaddrinfo`."""


def ipv4_first(found: FoundAddresses) -> list[tuple[socket.AddressFamily, SocketAddress]]:
    """Return families and addresses, IPv4 first, which is the order of Java's sockets."""
    ordered = sorted(found, key=lambda each: each[0] != socket.AF_INET)
    return [(family, where) for family, _, _, _, where in ordered]


def no_such_name(host: str) -> OSError:
    """Return the error for a host that is no valid DNS name, such as one with two dots in a row.

    Python raises UnicodeError for an invalid name, and OSError for an unknown one.
    """
    return socket.gaierror(socket.EAI_NONAME, f"{host!r} is no name of a host")
