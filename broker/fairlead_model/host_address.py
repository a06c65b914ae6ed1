"""Hosts and ports as text, and addresses as they are compared. Pure.

An IPv6 address stands in brackets wherever a port may follow, and bare wherever it is by itself, as
in Kafka's Metadata. `split_address` and `join_address` are the only places that know this.
"""

from ipaddress import IPv6Address, ip_address
from typing import Final

PORT_MAX: Final = 65_535
_NEVER_IN_NAMES: Final = frozenset(":[]/@,")


def split_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT`, an IPv6 address in brackets; the host may be empty. ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return unbracketed(host), int(port)


def unbracketed(host: str) -> str:
    """Return a host as it is by itself, of how it stands before a port; ValueError."""
    if host.startswith("[") and host.endswith("]"):
        inside = host[1:-1]
        if not is_ipv6(inside) or not _is_name(inside.partition("%")[2]):
            raise ValueError(f"{inside!r} stands in brackets and is no IPv6 address")
        return inside
    if is_ipv6(host):
        raise ValueError(f"the IPv6 address {host} needs brackets before a port: [{host}]:PORT")
    if not _is_name(host):
        raise ValueError(f"{host!r} is neither a name nor an address")
    return host


def join_address(host: str, port: int | str) -> str:
    """Return `HOST:PORT`, an IPv6 address in brackets."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """Return a host as it stands before a port and in URLs."""
    return f"[{host}]" if ":" in host else host


def is_every_address(host: str) -> bool:
    """Tell whether to listen there is to listen at every address, of IPv4 and of IPv6."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def is_ipv6(host: str) -> bool:
    """Tell whether a host is an IPv6 address, without brackets."""
    try:
        return isinstance(ip_address(host), IPv6Address)
    except ValueError:
        return False


def normal_address(address: str) -> str:
    """Return an address in its one form; ValueError for what is none.

    IPv6 is written as RFC 5952 says. An IPv4 address that is mapped into IPv6, which is how a
    socket for both shows a client that comes over IPv4, is the IPv4 address, as it is for Java.
    """
    known = ip_address(address)
    if isinstance(known, IPv6Address) and known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(known)


def peer_address(address: str) -> str:
    """Return the address of the other end of a socket in its one form.

    A host that is no address, such as that of a socket without one, stays as it is.
    """
    # Most come over IPv4 to a socket for both; what has no colon is in its one form already.
    if ":" not in address:
        return address
    try:
        return normal_address(address)
    except ValueError:
        return address


def _is_name(text: str) -> bool:
    return _NEVER_IN_NAMES.isdisjoint(text) and text.isprintable() and " " not in text
