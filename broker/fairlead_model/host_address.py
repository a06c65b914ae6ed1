"""Hosts and ports as text, and addresses in a form that can be compared. Pure.

An IPv6 address has brackets wherever a port may follow, and none where it stands alone, as in
Kafka's Metadata. Only `split_address` and `join_address` know this rule.
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
    """Return a host without the brackets that it has before a port; ValueError."""
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
    """Return a host in the form for URLs and before a port: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def is_every_address(host: str) -> bool:
    """Tell whether a listener at this host listens at every IPv4 and IPv6 address."""
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


def is_name_of_others(host: str) -> bool:
    """Tell whether a Host header has a name that its owner can make lead to this machine.

    A page of such a name can read, in a browser on this machine, what only this machine may (DNS
    rebinding). `localhost` and addresses have no owner; a client that is no browser may send none.
    """
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    name = name.lower().rstrip(".")
    if name in ("", "localhost"):
        return False
    return not is_address(name.removeprefix("[").removesuffix("]"))


def is_address(host: str) -> bool:
    """Tell whether a host is an address, without brackets: nobody can make it lead elsewhere."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def normal_address(address: str) -> str:
    """Return the normal form of an address; ValueError if it is not an address.

    IPv6 is written as in RFC 5952. A socket for IPv4 and IPv6 shows an IPv4 client as an IPv4
    address mapped into IPv6; that becomes the IPv4 address, as in Java.
    """
    known = ip_address(address)
    if isinstance(known, IPv6Address) and known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(known)


def peer_address(address: str) -> str:
    """Return the normal form of the address of a socket's peer.

    A host that is not an address, as of a Unix socket, stays as it is.
    """
    # Fast path: an address without a colon is IPv4, and is in normal form already.
    if ":" not in address:
        return address
    try:
        return normal_address(address)
    except ValueError:
        return address


def _is_name(text: str) -> bool:
    return _NEVER_IN_NAMES.isdisjoint(text) and text.isprintable() and " " not in text
