"""A refusal as an HTTP response: Problem Details in the media type that the client accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from fairlead_broker.rest.documents.json_text import dump_json
from fairlead_broker.rest.negotiation import choose_problem

if TYPE_CHECKING:
    from fairlead_broker.rest.problems import ProblemError


def add_common_headers(response: web.StreamResponse) -> None:
    """Add the headers of all answers; else aiohttp would name itself and its version."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Server"] = "fairlead"


def build_problem_response(problem: ProblemError, accept: str | None) -> web.Response:
    """Return the answer for a request with this `Accept`."""
    headers: dict[str, Any] = {**problem.headers, "Content-Type": choose_problem(accept)}
    response = web.Response(
        status=problem.status, body=dump_json(problem.document()), headers=headers
    )
    if problem.closes:
        response.force_close()
    return response
