"""What the HTTP API can do: one `Operation` for each path and method.

The router (`routing`) and the OpenAPI document (`openapi`) are both made from these, so each has
the operations of the other. A handler is a coroutine function:

    async def list_topics(request: RestRequest) -> web.StreamResponse:

It raises `ProblemError` or `KafkaError` to refuse a request, and calls Kafka's own handlers with
`request.kafka`. Path and query parameters have been checked against their schemas before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

RequestT = TypeVar("RequestT")
Handler: TypeAlias = "Callable[[RequestT], Awaitable[web.StreamResponse]]"
Schema: TypeAlias = "Mapping[str, Any]"

JSON: Final = "application/json"
V2: Final = "application/vnd.kafka.v2+json"
V2_SHORT: Final = "application/vnd.kafka+json"
V2_JSON: Final = "application/vnd.kafka.json.v2+json"
V2_BINARY: Final = "application/vnd.kafka.binary.v2+json"
V2_TEXT: Final = "application/vnd.kafka.text.v2+json"
EVENT_STREAM: Final = "text/event-stream"
V2_ANSWERS: Final = (V2, V2_SHORT, JSON)

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the path or the query. Each name may occur once in a query."""

    name: str
    schema: Schema
    description: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request: a schema for each media type."""

    schemas: Mapping[str, Schema]
    is_required: bool = True
    example: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a status means; without a schema the answer has no body."""

    description: str
    schema: Schema | None = None
    media_types: tuple[str, ...] = (JSON,)
    streams: tuple[str, ...] = ()
    """Media types of answers that are a text of any length instead of a JSON document."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[RequestT]):
    """An operation of the API. `name` is unique, and is its `operationId` in the document.

    `RequestT` is the parameter of its handler: a `request.RestRequest` for this operation.
    """

    name: str
    method: str
    path: str
    summary: str
    handle: Handler[RequestT]
    answers: Mapping[int, Answer]
    query: tuple[Parameter, ...] = ()
    body: Body | None = None
    refusals: tuple[int, ...] = ()
    """Statuses of refusals, in addition to those that any request may get."""
    is_stream: bool = field(default=False)
    """True if the body or the answer may be of any length: neither is limited as a whole."""

    @property
    def media_types(self) -> tuple[str, ...]:
        """Return the media types of a successful answer, the preferred one first."""
        for answer in self.answers.values():
            if answer.schema is not None:
                return answer.media_types + answer.streams
        return ()

    @property
    def path_names(self) -> tuple[str, ...]:
        """Return the names of the parameters in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))


PATH_PARAMETERS: Final = {
    parameter.name: parameter
    for parameter in (
        Parameter("cluster_id", {"type": "string", "minLength": 1}, "Id of the cluster."),
        Parameter(
            "topic_name",
            {"type": "string", "minLength": 1},
            "Name of a topic; a slash in it, which no topic has, would be %2F.",
        ),
        Parameter(
            "partition_id",
            {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
            "Index of a partition.",
        ),
        Parameter(
            "broker_id",
            {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
            "Id of a broker.",
        ),
        Parameter("name", {"type": "string", "minLength": 1}, "Name of a config."),
        Parameter(
            "consumer_group_id",
            {"type": "string", "minLength": 1},
            "Id of a consumer group, percent-encoded.",
        ),
        Parameter(
            "consumer_id",
            {"type": "string", "minLength": 1},
            "Member id of a consumer, percent-encoded.",
        ),
        Parameter(
            "instance_name",
            {"type": "string", "minLength": 1},
            "Name of a consumer instance, percent-encoded.",
        ),
    )
}
"""By name: a parameter means the same in every path."""
