"""Which Kafka APIs this broker serves, in which versions, and what a handler is given.

A handler module declares its API once:

    @handles(ApiKey.LIST_OFFSETS, versions=(1, 7), access=Access.BY_RESOURCE)
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
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from fairlead_broker.authorization import (
    AUTHORIZED_OPERATIONS,
    CLUSTER_NAME,
    DENIALS,
    Access,
    Need,
    ResourceType,
)
from fairlead_wire.errors import KafkaError
from fairlead_wire.messages import FLEXIBLE_FROM, REQUESTS, RESPONSES

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine

    from fairlead_broker.authorization import Authorizer, Operation, Principal
    from fairlead_broker.broker import Broker
    from fairlead_broker.listener import Listener
    from fairlead_broker.peer_check import PeerCheck
    from fairlead_model.session.calls import MutationAsker
    from fairlead_wire.api_keys import ApiKey
    from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateResponse
    from fairlead_wire.messages.sasl_handshake import SaslHandshakeResponse
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
    """What waits on behalf of a request and has to be cancelled when its connection closes."""

    def cancel(self) -> None: ...


class ClientLogin(Protocol):
    """The login of a connection whose listener authenticates clients."""

    def choose_mechanism(
        self, mechanism: str, context: RequestContext
    ) -> SaslHandshakeResponse | Pending: ...
    def authenticate(
        self, token: bytes, context: RequestContext
    ) -> SaslAuthenticateResponse | Pending: ...


class RequestQuotas(Protocol):
    """What the client's quotas mean for requests whose handlers have to know them."""

    def fetch_bytes_max(self, context: RequestContext) -> int | None: ...
    def throttle_fetch(self, context: RequestContext, size: int) -> int: ...
    def mutation_asker(
        self, context: RequestContext, *, is_strict: bool
    ) -> MutationAsker | None: ...


class ReplyChannel(Protocol):
    """The connection of a request, as far as handlers may know it; `net` implements it."""

    broker: Broker
    listener: Listener
    client_host: str
    principal: Principal
    authorizer: Authorizer | None
    """None where everything is allowed."""
    peer_check: PeerCheck | None
    """How far the peer has proved that it is a broker; only on the brokers' listener."""
    replica_ids: Container[int]
    """Ids of the brokers that the peer may claim to be."""
    login: ClientLogin | None
    """Only on listeners whose clients log in by SASL."""
    charged_ms: int
    """How long its requests have kept all others waiting, since it last could go on."""
    used_topic_ids: set[bytes]
    """Ids by which the peer has used topics; empty where everything is allowed."""

    @property
    def quotas(self) -> RequestQuotas | None:
        """None if no quota can apply to the client."""
        ...

    def on_response(self, context: RequestContext, response: Any) -> None: ...
    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None: ...
    def close(self, reason: str) -> None: ...
    def on_proved(self) -> None: ...
    def charge(self, spent_ms: int) -> None:
        """Have the peer wait as long as work for its request has kept others waiting."""
        ...


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

    @property
    def principal(self) -> Principal:
        return self.channel.principal

    @property
    def authorizer(self) -> Authorizer | None:
        return self.channel.authorizer

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this to a resource."""
        channel = self.channel
        authorizer = channel.authorizer
        return authorizer is None or authorizer.is_allowed(
            channel.principal, channel.client_host, operation, resource_type, name
        )

    def may_cluster(self, operation: Operation) -> bool:
        """Whether the client may do this to the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def would_allow(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Tell the same as `may`, but log no denial: for lists, or if another right may do."""
        channel = self.channel
        authorizer = channel.authorizer
        return authorizer is None or authorizer.would_allow(
            channel.principal, channel.client_host, operation, resource_type, name
        )

    def would_allow_cluster(self, operation: Operation) -> bool:
        """Tell the same of the cluster."""
        return self.would_allow(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_for_some(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Tell whether the client may do this to any resource of a type."""
        channel = self.channel
        authorizer = channel.authorizer
        return authorizer is None or authorizer.is_allowed_for_some(
            channel.principal, channel.client_host, operation, resource_type
        )

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """Return a bit field of what the client may do to a resource: bit n is operation n."""
        return sum(
            1 << operation
            for operation in AUTHORIZED_OPERATIONS[resource_type]
            if self.would_allow(operation, resource_type, name)
        )

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise the KafkaError of a slot if its resource is denied to the client."""
        channel = self.channel
        authorizer = channel.authorizer
        if authorizer is not None and not authorizer.is_allowed(
            channel.principal, channel.client_host, operation, resource_type, name
        ):
            raise KafkaError(DENIALS[resource_type])

    def respond(self, response: Any) -> None:
        """Complete a parked request; harmless if the connection is gone."""
        self.parked = None
        self.channel.on_response(self, response)

    def later(self, coroutine: Coroutine[Any, Any, Any]) -> Pending:
        """Answer with what `coroutine` returns; only for admin requests: it costs a task."""
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
        "access",
        "advertised",
        "answer_unknown_version",
        "api_key",
        "borrows_frame",
        "call",
        "call_if_allowed",
        "decode",
        "flexible_from",
        "internal_versions",
        "versions",
    )

    def __init__(
        self,
        api_key: ApiKey,
        call: Callable[[Any, RequestContext], Any],
        *,
        access: Need | Access,
        versions: VersionRange,
        advertised: VersionRange,
        internal_versions: VersionRange,
        borrows_frame: bool,
        answer_unknown_version: Callable[[RequestContext], bytes] | None,
    ) -> None:
        self.access = access
        self.api_key = api_key
        self.call = call
        self.call_if_allowed: Callable[[Any, RequestContext], Any] = (
            call if isinstance(access, Access) else partial(self._authorize_and_call, access)
        )
        """Answers a request, or refuses it if the client is not allowed what the request needs."""
        self.versions = versions
        self.advertised = advertised
        self.internal_versions = internal_versions
        self.borrows_frame = borrows_frame
        self.answer_unknown_version = answer_unknown_version
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = REQUESTS[api_key].decode
        self.flexible_from: int = FLEXIBLE_FROM.get(api_key, _NEVER)

    def _authorize_and_call(self, need: Need, request: Any, context: RequestContext) -> Any:
        if context.may(need.operation, need.resource_type, need.name_of(request)):
            return self.call(request, context)
        code = DENIALS[need.resource_type]
        context.broker.metrics.errors[code.name] += 1
        if need.refuse is not None:
            return need.refuse(request, context, code)
        return RESPONSES[self.api_key](error_code=code)  # type: ignore[call-arg]

    def versions_on(self, listener: Listener) -> VersionRange:
        """Return the versions that the broker serves there."""
        return self.internal_versions if listener.is_internal else self.versions

    def advertised_on(self, listener: Listener) -> VersionRange:
        """Return the versions that ApiVersions shows there."""
        return self.internal_versions if listener.is_internal else self.advertised


HANDLERS: Final[dict[int, Handler]] = {}
"""By API key; complete after `load_handlers`."""

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def handles(
    api_key: ApiKey,
    *,
    versions: VersionRange,
    access: Need | Access,
    advertise: VersionRange | None = None,
    internal_versions: VersionRange | None = None,
    borrows_frame: bool = False,
    answer_unknown_version: Callable[[RequestContext], bytes] | None = None,
) -> Callable[[_Function], _Function]:
    """Register the decorated function for `api_key`.

    `versions` are served. `access` is what the client has to be allowed. `advertise` differs from
    `versions` only where clients judge by the range alone (Produce from 0). `internal_versions` are
    served, and told, on the brokers' listener. `answer_unknown_version` gives the body, in version
    0, for a version outside all of these; without it the connection is closed.
    """

    def register(function: _Function) -> _Function:
        HANDLERS[int(api_key)] = Handler(
            api_key,
            function,
            access=access,
            versions=versions,
            advertised=advertise or versions,
            internal_versions=internal_versions or versions,
            borrows_frame=borrows_frame,
            answer_unknown_version=answer_unknown_version,
        )
        return function

    return register


def load_handlers() -> dict[int, Handler]:
    """Import every module below `handlers`, so that each registers its API."""
    package = importlib.import_module("fairlead_broker.handlers")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    return HANDLERS
