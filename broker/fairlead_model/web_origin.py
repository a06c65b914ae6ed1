"""Origins of web pages: a scheme, a host, and a port if it is not the scheme's default. Pure.

Browsers write an origin in one form (RFC 6454, and the URL standard for hosts): in lower case, IPv6
in brackets and as short as possible, and without the scheme's default port.
"""

import re
from ipaddress import IPv6Address
from typing import Final

_DIGITS: Final = "[0-9A-Fa-f]{1,4}"
_IPV6: Final = "|".join(
    (
        f"({_DIGITS}:){{7}}{_DIGITS}",
        f"({_DIGITS}:){{1,7}}:",
        *(f"({_DIGITS}:){{1,{7 - behind}}}(:{_DIGITS}){{1,{behind}}}" for behind in range(1, 7)),
        f":((:{_DIGITS}){{1,7}}|:)",
    )
)
_PORT: Final = (
    "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
)
ORIGIN_PATTERN: Final = rf"https?://([A-Za-z0-9._-]+|\[({_IPV6})\])(:({_PORT}))?"
"""What is accepted as an origin, as a whole; for Python and for the API server's RE2."""
ORIGIN_HINT: Final = (
    "an origin is http:// or https://, a name or address, and perhaps a port, such as "
    "https://example.com or http://[::1]:3000"
)
_OWN_PORTS: Final = {"http": "80", "https": "443"}


def web_origin(text: str) -> str:
    """Return an origin in the form of browsers; ValueError if the text is not an origin."""
    if re.fullmatch(ORIGIN_PATTERN, text, re.ASCII | re.IGNORECASE) is None:
        raise ValueError(f"{text!r} is no origin: {ORIGIN_HINT}")
    scheme, _, address = text.lower().partition("://")
    if address.startswith("["):
        inside, _, port = address[1:].partition("]")
        host, port = f"[{_shortest(IPv6Address(inside))}]", port.removeprefix(":")
    else:
        host, _, port = address.partition(":")
    is_own_port = port in ("", _OWN_PORTS[scheme])
    return f"{scheme}://{host}" if is_own_port else f"{scheme}://{host}:{port}"


def _shortest(address: IPv6Address) -> str:
    """Return an address as browsers show it: in hexadecimal, also if it holds one of IPv4.

    Such a one Python shows with dots, from 3.13 on.
    """
    ipv4 = address.ipv4_mapped
    if ipv4 is None:
        return str(address)
    high, low = divmod(int(ipv4), 1 << 16)
    return f"::ffff:{high:x}:{low:x}"
