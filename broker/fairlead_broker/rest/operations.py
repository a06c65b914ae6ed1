"""What the HTTP API can do: one `Operation` for each path and method.

The router (`routing`) and the OpenAPI document (`openapi`) are both made from these, so neither can
tell of something that the other does not know. A handler is a coroutine function:

    async def list_topics(request: RestRequest) -> web.StreamResponse:

It raises `ProblemError` or `KafkaError` for what it refuses, and asks Kafka's own handlers by
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
    """A parameter of the path or the query. Of a query each name may stand once."""

    name: str
    schema: Schema
    description: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries: by media type the schema of it."""

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
    """Media types of answers that are no document but a text of any length."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[RequestT]):
    """One thing that can be done. `name` is unique, and the `operationId` of the document.

    `RequestT` is what its handler takes: `request.RestRequest`, which has found its operation.
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
    """Statuses beyond those that any request may be refused with."""
    is_stream: bool = field(default=False)
    """True where body or answer may be of any length: neither is limited as a whole."""

    @property
    def media_types(self) -> tuple[str, ...]:
        """Return what a success may be answered in, the preferred one first."""
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
"""By name: each means the same wherever it stands in a path."""
