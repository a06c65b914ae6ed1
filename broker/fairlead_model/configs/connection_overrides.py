"""`max.connections.per.ip.overrides`: addresses with a limit of connections of their own. Pure."""

from typing import Final

from fairlead_model.configs.config_key import INT_MAX
from fairlead_model.host_address import is_address, normal_address

CONNECTIONS_PER_IP_OVERRIDES: Final = "max.connections.per.ip.overrides"
_LOOPBACK: Final = {"localhost": ("127.0.0.1", "::1")}
"""The one name that everybody knows the addresses of (RFC 6761)."""


def connection_overrides(text: str) -> dict[str, int]:
    """Return address → most connections, of `ADDRESS:NUMBER,…`; ValueError says what is wrong.

    As in Kafka the last colon ends the address, so an IPv6 address needs no brackets. Names are not
    looked up: connections arrive from addresses, and a name may change its own at any time.
    """
    limits: dict[str, int] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        host, colon, number = (part.strip() for part in entry.rpartition(":"))
        if not colon or not _is_limit(number):
            raise ValueError(f"{entry!r} is not written as ADDRESS:NUMBER")
        host = host.removeprefix("[").removesuffix("]").lower()
        if host not in _LOOPBACK and not is_address(host):
            raise ValueError(f"{host!r} is neither an IP address nor localhost")
        for address in _LOOPBACK.get(host, (host,)):
            limits[normal_address(address)] = int(number)
    return limits


def _is_limit(text: str) -> bool:
    is_short = 0 < len(text) <= len(str(INT_MAX))
    return is_short and text.isascii() and text.isdecimal() and int(text) <= INT_MAX


def overrides_problem(text: str) -> str | None:
    """Return what is wrong with a value; None if nothing is."""
    try:
        connection_overrides(text)
    except ValueError as error:
        return str(error)
    return None
