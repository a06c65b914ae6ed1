"""Which media type a body has, and which one an answer may have (RFC 9110, section 12). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import REST_ACCEPT_LENGTH_MAX
from fairlead_broker.rest.operations import JSON, V2, V2_SHORT
from fairlead_broker.rest.problems import PROBLEM_TYPE, ProblemError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiohttp import web

_V2_CODE_OF_ACCEPT = 40601


def media_type_of(content_type: str | None, allowed: Iterable[str]) -> str:
    """Return the media type of a body, which must be one of `allowed`; ProblemError 415."""
    names = ", ".join(allowed)
    if content_type is None:
        raise ProblemError(415, f"Content-Type is missing; it can be {names}")
    media_type, parameters = _parse(content_type)
    charset = parameters.get("charset", "utf-8").lower()
    if charset not in ("utf-8", "utf8"):
        raise ProblemError(415, f"charset={shown(charset)}: JSON is UTF-8")
    if media_type not in allowed:
        raise ProblemError(415, f"Content-Type {shown(media_type)} does not fit; it can be {names}")
    return media_type


def accept_of(http: web.BaseRequest) -> str | None:
    """Return all Accept headers of a request as one list."""
    lines = http.headers.getall("Accept", [])
    return ", ".join(lines) if lines else None


def choose_answer(accept: str | None, offered: Sequence[str]) -> str | None:
    """Return the media type that the client prefers, None if it accepts none of them.

    Among equally preferred types the first one in `offered` wins.
    """
    if accept is None or not accept.strip():
        return offered[0]
    ranges = _ranges(accept)
    best, best_quality = None, 0.0
    for media_type in offered:
        fitting = [(exactness, q) for name, q, exactness in ranges if _fits(name, media_type)]
        quality = max(fitting)[1] if fitting else 0.0
        if quality > best_quality:
            best, best_quality = media_type, quality
    return best


def require_answer(accept: str | None, offered: Sequence[str]) -> str:
    """Return the media type of an answer; ProblemError 406."""
    chosen = choose_answer(accept, offered)
    if chosen is None:
        code = _V2_CODE_OF_ACCEPT if V2 in offered else None
        raise ProblemError(406, f"Accept fits none of {', '.join(offered)}", code=code)
    return chosen


def choose_problem(accept: str | None) -> str:
    """Return the media type of an error: plain JSON for clients that only accept that."""
    return choose_answer(accept, (PROBLEM_TYPE, JSON, V2, V2_SHORT)) or PROBLEM_TYPE


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Tell whether an answer may be compressed."""
    if accept_encoding is None:
        return False
    found = {name: q for name, q, _ in _ranges(accept_encoding)}
    return found.get("gzip", found.get("*", 0.0)) > 0


def _fits(wanted: str, media_type: str) -> bool:
    if wanted in ("*/*", media_type):
        return True
    return wanted.endswith("/*") and media_type.startswith(wanted[:-1])


def _parse(text: str) -> tuple[str, dict[str, str]]:
    name, *rest = text.split(";")
    parameters = {}
    for part in rest:
        key, _, value = part.partition("=")
        parameters[key.strip().lower()] = value.strip().strip('"')
    return name.strip().lower(), parameters


def _ranges(text: str) -> list[tuple[str, float, int]]:
    """Return the ranges of a list, without those beyond a maximum length.

    A head may have thousands of them, from a client that may not be authenticated yet. To parse
    them all would block the event loop, once for each connection that does it.
    """
    if len(text) > REST_ACCEPT_LENGTH_MAX:
        text = text[:REST_ACCEPT_LENGTH_MAX].rpartition(",")[0]
    return [_quality(part) for part in text.split(",") if part.strip()]


def _quality(text: str) -> tuple[str, float, int]:
    """Return a range, its quality, and how exact it is."""
    name, parameters = _parse(text)
    try:
        quality = float(parameters.get("q", "1"))
    except ValueError:
        quality = 1.0
    exactness = 0 if name in ("*/*", "*") else 1 if name.endswith("/*") else 2
    return name, quality, exactness
