"""From the bytes of one frame to a request context that is answered, parked, or nothing.

Everything that a frame can be wrong in ends as `RemoteProtocolError`, which closes the connection
with a logged reason, as Kafka does for an unknown API key, an unknown version or a malformed body.
ApiVersions is the exception: a version of it that we don't know is answered in version 0, so that
clients can choose another.
"""

from __future__ import annotations

import struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairlead_broker.api_registry import HANDLERS, NO_REPLY, PENDING, ReplyChannel, RequestContext
from fairlead_broker.limits import CLIENT_ID_BYTES_MAX, UNDERSTOOD_FRAME_BYTES_MAX
from fairlead_broker.peer_check import BEFORE_PROOF
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.header import encode_response_frame, has_flexible_response_header
from fairlead_wire.primitives import skip_tags

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Handler
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.net.connection_quotas import ConnectionQuotas
    from fairlead_wire.segments import Segment

_FIXED_HEADER: Final = struct.Struct(">hhih")
_REPLY_PREFIX: Final = struct.Struct(">ii")
_FLEXIBLE_PREFIX: Final = struct.Struct(">iiB")
_FIXED_HEADER_SIZE: Final = _FIXED_HEADER.size


class RequestSource(ReplyChannel, Protocol):
    """What a frame came in on: answers go back there, and it keeps count of them for metrics.

    `arrived_ns` is when its frames were read, `answered_count` how many of the API `run_api_key`
    have their answer since.
    """

    run_api_key: int
    answered_count: int
    arrived_ns: int

    @property
    def metrics(self) -> BrokerMetrics: ...
    @property
    def quotas(self) -> ConnectionQuotas | None:
        """None if no quota can apply to the client."""
        ...

    def client_id_of(self, raw: bytes) -> str:
        """Decode a client id."""
        ...

    def begin_run(self, api_key: int) -> None:
        """Note that a frame is of another API than that before."""
        ...


def dispatch(connection: RequestSource, frame: memoryview) -> RequestContext | None:
    """Handle one request; None when there will be no reply.

    The context's `segments` are the encoded reply, or None while the request is parked.
    """
    if len(frame) < _FIXED_HEADER_SIZE:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes has no room for a header")
    api_key, version, correlation_id, client_id_size = _FIXED_HEADER.unpack_from(frame)
    handler = HANDLERS.get(api_key)
    if handler is None:
        raise RemoteProtocolError(f"API {name_api(api_key)} is not served here")
    peer_check = connection.peer_check
    if peer_check is not None and not peer_check.is_passed and api_key not in BEFORE_PROOF:
        raise RemoteProtocolError(f"{name_api(api_key)} from a peer that has not proved itself")
    position = _FIXED_HEADER_SIZE
    client_id: str | None = None
    if client_id_size >= 0:
        position += client_id_size
        if client_id_size > CLIENT_ID_BYTES_MAX or position > len(frame):
            raise RemoteProtocolError(f"a client id of {client_id_size} bytes is not acceptable")
        client_id = connection.client_id_of(bytes(frame[_FIXED_HEADER_SIZE:position]))
    context = RequestContext(connection, api_key, version, correlation_id, client_id)
    lowest, highest = handler.versions_on(connection.listener)
    if not lowest <= version <= highest:
        return _refuse_version(handler, context)
    if version >= handler.flexible_from:
        try:
            position = skip_tags(frame, position) if frame[position] else position + 1
        except IndexError as error:
            raise RemoteProtocolError("the tags of the request header are cut off") from error
    connection.metrics.requests[api_key] += 1
    if not handler.borrows_frame:
        frame = _copied(frame, api_key)
    if api_key != connection.run_api_key:
        connection.begin_run(api_key)
    request, _ = handler.decode(frame, position, version)
    call = handler.call if connection.authorizer is None else handler.call_if_allowed
    quotas = connection.quotas
    outcome = (
        call(request, context)
        if quotas is None
        else quotas.handle(call, request, context, len(frame))
    )
    if outcome is PENDING and context.segments is None:
        context.arrived_ns = connection.arrived_ns
        context.parked_ns = perf_counter_ns()
        return context
    connection.answered_count += 1
    if outcome is not PENDING and outcome is not NO_REPLY:
        context.segments = encode_reply(context, outcome)
    return None if outcome is NO_REPLY else context


def _copied(frame: memoryview, api_key: int) -> memoryview:
    """Copy what a handler may keep: the frame's memory is reused after dispatch."""
    if len(frame) > UNDERSTOOD_FRAME_BYTES_MAX:
        raise RemoteProtocolError(f"{name_api(api_key)} of {len(frame)} bytes is too large")
    return memoryview(bytes(frame))


def encode_reply(context: RequestContext, response: Any) -> list[Segment]:
    """Return the frame of a response message, or of the `bytes` of an encoded body."""
    api_key, version, correlation_id = context.api_key, context.version, context.correlation_id
    if type(response) is not bytes:
        return encode_response_frame(api_key, version, correlation_id, response)
    if has_flexible_response_header(api_key, version):
        return [_FLEXIBLE_PREFIX.pack(len(response) + 5, correlation_id, 0) + response]
    return [_REPLY_PREFIX.pack(len(response) + 4, correlation_id) + response]


def name_api(api_key: int) -> str:
    """Return an API key for a log line."""
    try:
        return f"{ApiKey(api_key).name} ({api_key})"
    except ValueError:
        return str(api_key)


def _refuse_version(handler: Handler, context: RequestContext) -> RequestContext:
    if handler.answer_unknown_version is None:
        lowest, highest = handler.versions_on(context.listener)
        raise RemoteProtocolError(
            f"version {context.version} of {name_api(context.api_key)} is not served, "
            f"{lowest} to {highest} are"
        )
    body = handler.answer_unknown_version(context)
    prefix = _REPLY_PREFIX.pack(len(body) + 4, context.correlation_id)
    context.segments = [prefix + body]
    return context
