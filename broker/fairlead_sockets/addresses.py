"""Addresses of sockets of both families, in the order in which they are tried."""

import socket
from collections.abc import Sequence

SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
FoundAddresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, SocketAddress]]
"""What `getaddrinfo` answers."""


def ipv4_first(found: FoundAddresses) -> list[tuple[socket.AddressFamily, SocketAddress]]:
    """Return families and addresses, those of IPv4 first, as Java's sockets take them."""
    ordered = sorted(found, key=lambda each: each[0] != socket.AF_INET)
    return [(family, where) for family, _, _, _, where in ordered]


def no_such_name(host: str) -> OSError:
    """Return the error of a host that is no name in DNS, such as one with two dots in a row.

    Python tells of such a host by a UnicodeError, and of one that nobody knows by an OSError.
    """
    return socket.gaierror(socket.EAI_NONAME, f"{host!r} is no name of a host")
