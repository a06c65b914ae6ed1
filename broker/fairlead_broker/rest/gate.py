"""Which requests the HTTP API answers: protection from pages in a user's browser. Pure.

A page of any site may send requests to an internal address (CSRF), and may give that address a name
of its own domain (DNS rebinding). So a request must name a host that is known here. If a browser
says that a page sent the request, the origin of that page must be allowed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fairlead_broker.rest.problems import ProblemError, shown
from fairlead_model.host_address import is_address
from fairlead_model.web_origin import web_origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_EXPOSED: Final = "Retry-After, Location, Link, Fairlead-Next-Offset"
_PREFLIGHT_MAX_AGE_S: Final = 600


class Gate:
    """`hosts` and `origins` come from the settings; IP addresses are always allowed as hosts."""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._origins = {web_origin(origin) for origin in origins}

    def check(self, headers: Mapping[str, str], own_origin: str, target: str = "/") -> None:
        """Raise ProblemError 421 for an unknown host, 403 for a page of an origin not allowed.

        The host is that of the request's target if this is a whole URL: Host counts for nothing
        then (RFC 9112, section 3.2.2).
        """
        host = _host_of(target)
        if host is None:
            host = headers.get("Host", "")
        if not host:
            raise ProblemError(421, "the request says no Host")
        if not self._is_known(_without_port(host)):
            raise ProblemError(
                421, f"Host {shown(host)} is not known here; see fairlead.rest.allowed.hosts"
            )
        origin = headers.get("Origin")
        site = headers.get("Sec-Fetch-Site")
        if origin is not None and _is_same(origin, own_origin):
            return
        if origin is None:
            if site in ("cross-site", "same-site"):
                raise ProblemError(403, "pages of other sites may not use this")
        elif not self.allows(origin):
            raise ProblemError(
                403,
                f"pages of {shown(origin)} may not use this; see fairlead.rest.allowed.origins",
            )

    def allows(self, origin: str) -> bool:
        """Tell whether pages of this origin may read answers."""
        return _known_form(origin) in self._origins

    def cors_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that let a page read the answer, if its origin is allowed."""
        if not self._origins:
            return {}
        origin = headers.get("Origin")
        if origin is None or not self.allows(origin):
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": _EXPOSED,
        }

    def preflight_headers(
        self, headers: Mapping[str, str], methods: Iterable[str]
    ) -> dict[str, str]:
        """Return the headers that a browser needs before it lets a page send a request."""
        cors = self.cors_headers(headers)
        if "Access-Control-Allow-Origin" in cors:
            cors["Access-Control-Allow-Methods"] = ", ".join(methods)
            cors["Access-Control-Allow-Headers"] = (
                "Authorization, Content-Type, Content-Encoding, Accept, Last-Event-ID"
            )
            cors["Access-Control-Max-Age"] = str(_PREFLIGHT_MAX_AGE_S)
        return cors

    def _is_known(self, host: str) -> bool:
        name = host.lower().rstrip(".")
        # No owner of a domain can make an IP address lead to another host.
        return name in self._hosts or is_address(name.removeprefix("[").removesuffix("]"))


def _host_of(target: str) -> str | None:
    """Return host and port of a whole URL; None for a path."""
    if target.startswith("/") or "://" not in target:
        return None
    authority = re.split("[/?#]", target.partition("://")[2], maxsplit=1)[0]
    return authority.rpartition("@")[2]


def _is_same(origin: str, other: str) -> bool:
    known = _known_form(origin)
    return known is not None and known == _known_form(other)


def _known_form(origin: str) -> str | None:
    """Return a browser's origin in normal form; None for other values, such as `null`."""
    try:
        return web_origin(origin)
    except ValueError:
        return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
