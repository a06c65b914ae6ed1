"""What the requests of one connection use, and how long its client has to wait (KIP-219).

A request is charged when it comes: the bytes of a produce, and the time that its handler takes on
the event loop. Its answer says how long its client has to wait, and its connection is muted for
that time. A fetch is charged when its answer is known, and taken back where that answer is to be
empty. Where several quotas are violated, the longest time counts, and times are never added up.
"""

from __future__ import annotations

import copy
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairlead_broker.api_registry import NO_REPLY, PENDING
from fairlead_model.session.calls import MutationAsker
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.messages import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.authorization import Principal
    from fairlead_broker.broker import Broker
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.quota.client_quotas import ClientMeters, ClientQuotas

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_EXEMPT: Final = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})
"""Answered without regard to request time, as in Kafka."""
_MUTATIONS: Final = frozenset(
    {int(ApiKey.CREATE_TOPICS), int(ApiKey.CREATE_PARTITIONS), int(ApiKey.DELETE_TOPICS)}
)
_PERCENT_PER_NS: Final = 100 / 1e9


class ThrottledConnection(Protocol):
    """The connection of a client that may have to wait."""

    @property
    def broker(self) -> Broker: ...
    @property
    def metrics(self) -> BrokerMetrics: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def arrived_ns(self) -> int:
        """When the requests came that it handles now."""
        ...

    def mute(self, throttle_ms: int) -> None:
        """Handle no more requests for a time."""
        ...


class ConnectionQuotas:
    """Of a connection of a client, while there are quotas that may bind it."""

    __slots__ = (
        "_client_id",
        "_connection",
        "_handled_ns",
        "_meters",
        "_quotas",
        "_user",
        "_version",
    )

    def __init__(self, quotas: ClientQuotas, connection: ThrottledConnection) -> None:
        self._quotas = quotas
        self._connection = connection
        self._handled_ns = 0
        self._version = -1
        self._user = ""
        self._client_id: str | None = None
        self._meters: ClientMeters

    def handle(
        self,
        call: Callable[[Any, RequestContext], Any],
        request: Any,
        context: RequestContext,
        frame_bytes: int,
    ) -> Any:
        """Have a request handled, and give what became of it.

        `frame_bytes` is the size of the whole request, which a produce is charged.
        """
        meters = self._meters_of(context)
        api_key = context.api_key
        now_ms = self._now_ms()
        if api_key == _PRODUCE and meters.produce is not None:
            meters.produce.charge(frame_bytes, now_ms)
        outcome = call(request, context)
        self._charge_time(meters, api_key, now_ms)
        if outcome is PENDING:
            return outcome
        if outcome is NO_REPLY:
            if meters.produce is not None:
                self._throttle("produce", meters.produce.throttle_ms(now_ms))
            return outcome
        return self.complete(context, outcome)

    def complete(self, context: RequestContext, response: Any) -> Any:
        """Give an answer as it leaves: with the time for which its client is held back."""
        api_key = context.api_key
        if api_key in _EXEMPT:
            return response
        told_ms = 0 if type(response) is bytes else getattr(response, "throttle_time_ms", 0)
        if api_key == _FETCH:
            # It has been judged, and is empty if it has to wait.
            return response
        meters = self._meters_of(context)
        kind, throttle_ms = "controller_mutation", told_ms if api_key in _MUTATIONS else 0
        now_ms = self._now_ms()
        if api_key == _PRODUCE and meters.produce is not None:
            kind, throttle_ms = "produce", meters.produce.throttle_ms(now_ms)
        request_ms = self._request_throttle_ms(meters, now_ms)
        if request_ms > throttle_ms:
            kind, throttle_ms = "request", request_ms
        if not throttle_ms:
            return response
        self._throttle(kind, throttle_ms)
        return response if told_ms == throttle_ms else _told(context, response, throttle_ms)

    def fetch_bytes_max(self, context: RequestContext) -> int | None:
        """Return how much one fetch may answer so that it fits into all windows; None: no limit."""
        meter = self._meters_of(context).fetch
        return None if meter is None else int(meter.limit * self._quotas.windows.burst_s)

    def throttle_fetch(self, context: RequestContext, size: int) -> int:
        """Charge the answer of a fetch, or mute and give the time for which it is to be empty."""
        meters = self._meters_of(context)
        now_ms = self._now_ms()
        kind, throttle_ms = "fetch", 0
        if meters.fetch is not None:
            meters.fetch.charge(size, now_ms)
            throttle_ms = meters.fetch.throttle_ms(now_ms)
        request_ms = self._request_throttle_ms(meters, now_ms)
        if request_ms > throttle_ms:
            kind, throttle_ms = "request", request_ms
        if throttle_ms and meters.fetch is not None:
            meters.fetch.charge(-size, now_ms)
        self._throttle(kind, throttle_ms)
        return throttle_ms

    def mutation_asker(self, context: RequestContext, *, is_strict: bool) -> MutationAsker | None:
        """Return who makes or removes partitions, if a quota limits that."""
        if not self._meters_of(context).limits_mutations:
            return None
        return MutationAsker(
            user=self._user,
            client_id=context.client_id or "",
            is_strict=is_strict,
            burst_s=self._quotas.mutation_burst_s,
        )

    def _meters_of(self, context: RequestContext) -> ClientMeters:
        quotas, user = self._quotas, self._connection.principal.name
        if (
            self._version != quotas.version
            or self._client_id != context.client_id
            or self._user != user
        ):
            self._version = quotas.version
            self._client_id = context.client_id
            self._user = user
            self._meters = quotas.meters_of(user, context.client_id or "", self._now_ms())
        return self._meters

    def _charge_time(self, meters: ClientMeters, api_key: int, now_ms: int) -> None:
        """Charge the time since the request before it, or since it came."""
        now_ns = perf_counter_ns()
        begun_ns = max(self._handled_ns, self._connection.arrived_ns)
        self._handled_ns = now_ns
        if meters.request is not None and api_key not in _EXEMPT:
            meters.request.charge((now_ns - begun_ns) * _PERCENT_PER_NS, now_ms)

    def _request_throttle_ms(self, meters: ClientMeters, now_ms: int) -> int:
        if meters.request is None:
            return 0
        return min(meters.request.throttle_ms(now_ms), self._quotas.windows.size_ms)

    def _throttle(self, kind: str, throttle_ms: int) -> None:
        if throttle_ms:
            self._connection.metrics.note_throttle(kind, throttle_ms)
            self._connection.mute(throttle_ms)

    def _now_ms(self) -> int:
        return self._connection.broker.clock.monotonic_ms()


def _told(context: RequestContext, response: Any, throttle_ms: int) -> Any:
    """Return an answer that says how long to wait; others may hold the one that was given."""
    if type(response) is bytes:
        response, _ = RESPONSES[context.api_key].decode(memoryview(response), 0, context.version)
    elif not hasattr(response, "throttle_time_ms"):
        return response
    told = copy.copy(response)
    told.throttle_time_ms = throttle_ms
    return told
