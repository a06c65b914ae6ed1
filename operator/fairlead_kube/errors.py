"""How a request to the Kubernetes API fails: with an answer, or without one."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

TOO_MANY_REQUESTS: Final = 429

MESSAGE_LENGTH_MAX: Final = 500
"""A server's longer texts are cut, with an ellipsis: they reach logs, conditions and Events."""


class CredentialsError(Exception):
    """There are no usable credentials for the API server; the text says why."""


class ApiError(Exception):
    """The API server answered, but not with success."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_s: float | None = None,
        causes: Collection[str] = (),
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if message else f"{status} {reason}")
        self.status = status
        self.reason = reason
        """The reason in the API's own words, such as AlreadyExists."""
        self.message = message
        self.retry_after_s = retry_after_s
        """How long the server asks the client to wait."""

        self.causes = frozenset(causes)
        """The reasons of the Status' causes, in the API's own words."""

    @property
    def is_namespace_going(self) -> bool:
        """Whether the request was refused because its namespace is being deleted."""
        return "NamespaceTerminating" in self.causes

    @property
    def is_conflict(self) -> bool:
        """Whether the object has another version, or exists already."""
        return self.status == 409

    @property
    def is_not_found(self) -> bool:
        """Whether there is no such object (or no such kind)."""
        return self.status == 404

    @property
    def is_forbidden(self) -> bool:
        """Whether this client has no permission for the request."""
        return self.status == 403

    @property
    def is_gone(self) -> bool:
        """Whether the requested version is too old to continue from."""
        return self.status == 410

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later: too many requests, or an error of the server.

        A write that got 429 was not carried out; a write that got another of these may have been.
        """
        return self.status == TOO_MANY_REQUESTS or self.status >= 500


class ApiUnavailableError(Exception):
    """There was no answer."""

    def __init__(self, message: str, *, may_have_landed: bool) -> None:
        super().__init__(message)
        self.may_have_landed = may_have_landed
        """Whether the server may have got the request, and may still carry it out."""


class HiddenError(ApiUnavailableError):
    """Objects may not be read, so nobody can tell whether they exist."""

    def __init__(self, kinds: str, namespace: str) -> None:
        super().__init__(
            f"{kinds} of the namespace {namespace} may not be read", may_have_landed=False
        )


def build_api_error(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """Return the error of an answer: from the API's Status object if it has one, else its text."""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and answer.get("kind") == "Status":
        error = status_error(answer, status)
    else:
        error = ApiError(status, "", _shortened(content.decode(errors="replace").strip()))
    header = headers.get("Retry-After", "")
    if header.isdigit():
        error.retry_after_s = float(header)
    return error


def status_error(status: Mapping[str, Any], code: int = 500) -> ApiError:
    """Return the error that a Status object of the API describes."""
    details = status.get("details") or {}
    retry_after_s = details.get("retryAfterSeconds")
    return ApiError(
        int(status.get("code") or code),
        str(status.get("reason") or ""),
        _shortened(str(status.get("message") or "")),
        float(retry_after_s) if retry_after_s else None,
        [str(cause.get("reason")) for cause in details.get("causes") or ()],
    )


def _shortened(text: str) -> str:
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 1] + "…"
