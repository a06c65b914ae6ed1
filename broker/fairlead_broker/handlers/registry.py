"""Which Kafka APIs this broker serves, in which versions, and what a handler is given.

A handler module declares its API once:

    @handles(ApiKey.LIST_OFFSETS, versions=(1, 7))
    def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:

The ApiVersions reply and `docs/apis.md` are derived from these lines. A handler is a plain
function that runs on the loop and answers in one of four ways:

* it returns the response message, or `bytes`: an already encoded response *body*;
* it returns `PENDING` after it has parked something that will call `context.respond` later;
* it returns `context.later(coroutine)`: admin requests that wait for the controller;
* it returns `NO_REPLY`, which is for acks=0 only.

It raises `KafkaError` only inside a slot of its own reply. An exception that leaves a handler is
logged and closes the connection; the broker lives on. What a decoded request refers to stays valid
after the handler has returned, except where `borrows_frame=True`: there the memory is the receive
buffer, writable, and must be copied before it is kept.
"""

from __future__ import annotations

import importlib
import pkgutil
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from fairlead_wire.messages import FLEXIBLE_FROM, REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fairlead_broker.broker import Broker
    from fairlead_broker.listener import Listener
    from fairlead_broker.peer_check import PeerCheck
    from fairlead_wire.api_keys import ApiKey
    from fairlead_wire.segments import Segment


class Outcome(Enum):
    """What a handler returns when it doesn't return a response."""

    PENDING = "pending"
    NO_REPLY = "no reply"


PENDING: Final = Outcome.PENDING
NO_REPLY: Final = Outcome.NO_REPLY
Pending: TypeAlias = Literal[Outcome.PENDING]
NoReply: TypeAlias = Literal[Outcome.NO_REPLY]

VersionRange: TypeAlias = tuple[int, int]
_NEVER: Final = 1 << 15


class Parked(Protocol):
    """Whatever waits on behalf of a request and must be let go when its connection closes."""

    def cancel(self) -> None: ...


class ReplyChannel(Protocol):
    """What a request came in on, as far as handlers may know it; `net` implements it."""

    broker: Broker
    listener: Listener
    client_host: str
    peer_check: PeerCheck | None
    """How far the peer has proved that it is a broker; only on the brokers' listener."""

    def on_response(self, context: RequestContext, response: Any) -> None: ...
    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None: ...
    def close(self, reason: str) -> None: ...


class RequestContext:
    """One request, and at the same time its place in the order of replies of its connection.

    `segments` is the encoded reply once there is one; the connection sends it when all earlier
    slots have theirs. `parked` is set by a handler that returns `PENDING`. `arrived_ns` and
    `parked_ns` are for metrics: `dispatch` sets both when the request has been parked.
    """

    __slots__ = (
        "api_key",
        "arrived_ns",
        "channel",
        "client_id",
        "correlation_id",
        "parked",
        "parked_ns",
        "segments",
        "version",
    )

    def __init__(
        self,
        channel: ReplyChannel,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.channel = channel
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.segments: list[Segment] | None = None
        self.parked: Parked | None = None
        self.arrived_ns: int
        self.parked_ns = 0

    @property
    def broker(self) -> Broker:
        return self.channel.broker

    @property
    def listener(self) -> Listener:
        return self.channel.listener

    @property
    def client_host(self) -> str:
        return self.channel.client_host

    def respond(self, response: Any) -> None:
        """Complete a parked request; harmless if the connection is gone."""
        self.parked = None
        self.channel.on_response(self, response)

    def later(self, coroutine: Coroutine[Any, Any, Any]) -> Pending:
        """Answer with what `coroutine` returns. For admin requests: it costs a task."""
        self.channel.run_later(self, coroutine)
        return PENDING

    def close_connection(self, reason: str) -> None:
        """Close with a logged reason: the only answer to a failed acks=0 produce."""
        self.channel.close(reason)


class Handler:
    """An API that is served: its ranges and its function.

    `flexible_from` is the first version whose request header carries tagged fields.
    """

    __slots__ = (
        "advertised",
        "answer_unknown_version",
        "api_key",
        "borrows_frame",
        "call",
        "decode",
        "flexible_from",
        "internal_versions",
        "is_internal_only",
        "versions",
    )

    def __init__(
        self,
        api_key: ApiKey,
        call: Callable[[Any, RequestContext], Any],
        *,
        versions: VersionRange,
        advertised: VersionRange,
        internal_versions: VersionRange,
        is_internal_only: bool,
        borrows_frame: bool,
        answer_unknown_version: Callable[[RequestContext], bytes] | None,
    ) -> None:
        self.is_internal_only = is_internal_only
        self.api_key = api_key
        self.call = call
        self.versions = versions
        self.advertised = advertised
        self.internal_versions = internal_versions
        self.borrows_frame = borrows_frame
        self.answer_unknown_version = answer_unknown_version
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = REQUESTS[api_key].decode
        self.flexible_from: int = FLEXIBLE_FROM.get(api_key, _NEVER)

    def is_served_on(self, listener: Listener) -> bool:
        """Whether the API exists there at all."""
        return listener.is_internal or not self.is_internal_only

    def versions_on(self, listener: Listener) -> VersionRange:
        """What is served there."""
        return self.internal_versions if listener.is_internal else self.versions

    def advertised_on(self, listener: Listener) -> VersionRange:
        """What ApiVersions says there."""
        return self.internal_versions if listener.is_internal else self.advertised


HANDLERS: Final[dict[int, Handler]] = {}
"""By API key; complete after `load_handlers`."""

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def handles(
    api_key: ApiKey,
    *,
    versions: VersionRange,
    advertise: VersionRange | None = None,
    internal_versions: VersionRange | None = None,
    internal_only: bool = False,
    borrows_frame: bool = False,
    answer_unknown_version: Callable[[RequestContext], bytes] | None = None,
) -> Callable[[_Function], _Function]:
    """Register the decorated function for `api_key`.

    `versions` are served. `advertise` differs from them only where clients judge by the range
    alone (Produce from 0). `internal_versions` are served, and told, on the brokers' listener.
    `internal_only` APIs do not exist for clients.
    `answer_unknown_version` gives the body, in version 0, for a version outside all of these;
    without it the connection is closed.
    """

    def register(function: _Function) -> _Function:
        HANDLERS[int(api_key)] = Handler(
            api_key,
            function,
            versions=versions,
            advertised=advertise or versions,
            internal_versions=internal_versions or versions,
            is_internal_only=internal_only,
            borrows_frame=borrows_frame,
            answer_unknown_version=answer_unknown_version,
        )
        return function

    return register


def load_handlers() -> dict[int, Handler]:
    """Import every handler module of this package, so that each registers its API."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return HANDLERS
