"""Refusals of HTTP requests: Problem Details (RFC 9457), with Confluent's error codes.

Clients of Confluent's REST Proxy read `error_code` and `message`; these are additional members
beside those of RFC 9457. The code is the HTTP status, or begins with it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBLEM_TYPE: Final = "application/problem+json"
DETAIL_LENGTH_MAX: Final = 400
RETRY_AFTER: Final = {"Retry-After": "1"}

KAFKA_REFUSED: Final = 40002
UNAUTHENTICATED: Final = 40101
FORBIDDEN: Final = 40301
UNKNOWN_TOPIC: Final = 40401
UNKNOWN_PARTITION: Final = 40402
UNKNOWN_INSTANCE: Final = 40403
INSTANCE_EXISTS: Final = 40902
ILLEGAL_STATE: Final = 40903
INVALID_INSTANCE_CONFIG: Final = 42204
KAFKA_ERROR: Final = 50002
RETRIABLE: Final = 50003


class Refusal(NamedTuple):
    """An HTTP status and its error code."""

    status: int
    code: int


_REFUSALS: Final[dict[ErrorCode, Refusal]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Refusal(404, UNKNOWN_TOPIC),
    ErrorCode.UNKNOWN_TOPIC_ID: Refusal(404, UNKNOWN_TOPIC),
    ErrorCode.GROUP_ID_NOT_FOUND: Refusal(404, 404),
    ErrorCode.RESOURCE_NOT_FOUND: Refusal(404, 404),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Refusal(403, FORBIDDEN),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Refusal(403, FORBIDDEN),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Refusal(403, FORBIDDEN),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Refusal(403, FORBIDDEN),
    ErrorCode.SASL_AUTHENTICATION_FAILED: Refusal(401, UNAUTHENTICATED),
    ErrorCode.TOPIC_DELETION_DISABLED: Refusal(403, FORBIDDEN),
    ErrorCode.MESSAGE_TOO_LARGE: Refusal(413, 413),
    ErrorCode.RECORD_LIST_TOO_LARGE: Refusal(413, 413),
    ErrorCode.INVALID_RECORD: Refusal(422, 422),
    ErrorCode.INVALID_TIMESTAMP: Refusal(422, 422),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Refusal(429, 429),
    ErrorCode.INVALID_REGULAR_EXPRESSION: Refusal(422, INVALID_INSTANCE_CONFIG),
    **dict.fromkeys(
        (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ),
        Refusal(409, ILLEGAL_STATE),
    ),
    **dict.fromkeys(
        (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.POLICY_VIOLATION,
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ),
        Refusal(400, KAFKA_REFUSED),
    ),
}
_CODES: Final = {int(code): code for code in ErrorCode}
_RETRIABLE: Final = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NOT_CONTROLLER})


def refusal_of(code: int) -> Refusal:
    """Return the HTTP status and the code for an error of Kafka."""
    known = error_code(code)
    if known in _REFUSALS:
        return _REFUSALS[known]
    if known.retriable or known in _RETRIABLE:
        return Refusal(503, RETRIABLE)
    return Refusal(500, KAFKA_ERROR)


class ProblemError(Exception):
    """Ends a request with this status. `closes`: the connection is closed after the answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int | None = None,
        headers: Mapping[str, str] | None = None,
        closes: bool = False,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = status if code is None else code
        self.headers = dict(headers or {})
        self.closes = closes
        self.members = dict(members or {})
        """Members of the body in addition to those of all problems (RFC 9457, section 3.2)."""

    def document(self) -> dict[str, Any]:
        """Return the body."""
        message = shown(self.message)
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": message,
            "error_code": self.code,
            "message": message,
            **self.members,
        }


def problem_of(error: KafkaError) -> ProblemError:
    """Return the problem for an error of Kafka that ends the request."""
    refusal = refusal_of(error.code)
    headers = RETRY_AFTER if refusal.status in (429, 503) else None
    return ProblemError(refusal.status, error.message, code=refusal.code, headers=headers)


def raise_code(code: int, message: str | None = None) -> None:
    """Raise the KafkaError of a reply's error code; do nothing for NONE."""
    if code:
        raise KafkaError(error_code(code), message)


def error_code(number: int) -> ErrorCode:
    """Return the ErrorCode of a number in a reply; a newer peer may send unknown ones."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def unknown_topic(topic: str) -> ProblemError:
    """Return the problem for a topic that does not exist."""
    return ProblemError(404, f"there is no topic {shown(topic)!r}", code=UNKNOWN_TOPIC)


def shown(text: str) -> str:
    """Return a text as an answer quotes it: cut, and without what a JSON string cannot have."""
    cut = text if len(text) <= DETAIL_LENGTH_MAX else f"{text[:DETAIL_LENGTH_MAX]}…"
    return cut.encode(errors="backslashreplace").decode()
