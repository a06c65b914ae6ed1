"""How much an HTTP client may write, read and create: the quotas of Kafka clients, by HTTP's means.

When a Kafka client exceeds a quota, the broker answers it, and then reads nothing more from it for
a while. For an HTTP client the broker refuses requests in that time with 429, and `Retry-After`
says when it ends. The next request after it is answered, as for a Kafka client. An HTTP client
shares the meters of this broker with Kafka clients of the same user and client id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.rest.problems import ProblemError
from fairlead_model.session.calls import MutationAsker

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker
    from fairlead_broker.quota.client_quotas import ClientMeters
    from fairlead_broker.quota.meter import Meter

TOO_MUCH: Final = 429


class HttpQuotas:
    """The quotas of one HTTP request, while there are quotas that may apply to its client.

    Handlers of Kafka's requests use it in place of a connection's quotas. It does not throttle
    their fetches: a read is counted once, when it is answered, from whichever broker it came.
    """

    __slots__ = ("_broker", "_client_id", "_meters", "_user", "_version")

    def __init__(self, broker: Broker, user: str, client_id: str) -> None:
        self._broker = broker
        self._user, self._client_id = user, client_id
        self._version = -1
        self._meters: ClientMeters

    def admit_produce(self) -> None:
        """Raise ProblemError 429 while the client exceeds its produce quota."""
        self._admit("produce", self.produce_throttle_ms())

    def produce_throttle_ms(self) -> int:
        """Return for how long the client may not write, 0 if it may write now."""
        return self._throttle_ms(self._now_meters().produce)

    def charge_produce(self, size: int) -> None:
        """Count a batch that is written now."""
        self._charge(self._now_meters().produce, size)

    def admit_read(self) -> None:
        """Raise ProblemError 429 while the client exceeds its fetch quota."""
        self._admit("fetch", self.read_throttle_ms())

    def read_throttle_ms(self) -> int:
        """Return for how long the client may not read, 0 if it may read now."""
        return self._throttle_ms(self._now_meters().fetch)

    def bound_read(self, bytes_max: int) -> int:
        """Return how many bytes one read may answer so that they fit into all windows."""
        meter = self._now_meters().fetch
        if meter is None:
            return bytes_max
        return min(bytes_max, int(meter.limit * self._broker.client_quotas.windows.burst_s))

    def charge_read(self, size: int) -> None:
        """Count the bytes that a read answers."""
        self._charge(self._now_meters().fetch, size)

    def note(self, kind: str, throttle_ms: int) -> None:
        """Count that the client has to wait."""
        self._broker.metrics.note_throttle(kind, throttle_ms)

    def fetch_bytes_max(self, context: RequestContext) -> int | None:
        """Return None: a step of a read has no limit here."""
        return None

    def throttle_fetch(self, context: RequestContext, size: int) -> int:
        """Return 0: a step of a read is not throttled."""
        return 0

    def mutation_asker(self, context: RequestContext, *, is_strict: bool) -> MutationAsker | None:
        """Return the client for the mutation quota, if one applies; HTTP clients all know 429."""
        if not self._now_meters().limits_mutations:
            return None
        return MutationAsker(
            user=self._user,
            client_id=self._client_id,
            is_strict=True,
            burst_s=self._broker.client_quotas.mutation_burst_s,
        )

    def _admit(self, kind: str, throttle_ms: int) -> None:
        if not throttle_ms:
            return
        self.note(kind, throttle_ms)
        raise ProblemError(
            TOO_MUCH,
            throttle_text(throttle_ms),
            headers={"Retry-After": str(_seconds(throttle_ms))},
        )

    def _charge(self, meter: Meter | None, size: int) -> None:
        if meter is not None and size:
            now_ms = self._now_ms()
            meter.charge(size, now_ms)
            meter.hold(now_ms)

    def _throttle_ms(self, meter: Meter | None) -> int:
        return 0 if meter is None else meter.held_ms(self._now_ms())

    def _now_meters(self) -> ClientMeters:
        quotas = self._broker.client_quotas
        if self._version != quotas.version:
            self._version = quotas.version
            self._meters = quotas.meters_of(self._user, self._client_id, self._now_ms())
        return self._meters

    def _now_ms(self) -> int:
        return self._broker.clock.monotonic_ms()


def throttle_text(throttle_ms: int) -> str:
    """Return the message for a client that has to wait."""
    return f"a quota is used up; try again in {_seconds(throttle_ms)} s"


def _seconds(milliseconds: int) -> int:
    """Return whole seconds, rounded up."""
    return -(-milliseconds // 1000)
