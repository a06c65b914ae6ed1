"""How much an HTTP client may write, read and create: the quotas of Kafka clients, by HTTP's means.

A Kafka client that has used too much is answered, and nothing more is read from it for a while.
HTTP has a status for that: what comes in that while is refused with 429, and `Retry-After` says
when it is over; then the next request is answered, as the next of a Kafka client is. Who asks
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
    """Of one HTTP request, while there are quotas that may bind its client.

    For handlers of Kafka's requests it is what those of a connection are. It lets their fetches
    pass: what is read here is counted as it is answered, once, wherever it came from.
    """

    __slots__ = ("_broker", "_client_id", "_meters", "_user", "_version")

    def __init__(self, broker: Broker, user: str, client_id: str) -> None:
        self._broker = broker
        self._user, self._client_id = user, client_id
        self._version = -1
        self._meters: ClientMeters

    def admit_produce(self) -> None:
        """Raise ProblemError 429 while more has been written than may be."""
        self._admit("produce", self.produce_throttle_ms())

    def produce_throttle_ms(self) -> int:
        """Return for how long nothing may be written, 0 if something may."""
        return self._throttle_ms(self._now_meters().produce)

    def charge_produce(self, size: int) -> None:
        """Count a batch that is written now."""
        self._charge(self._now_meters().produce, size)

    def admit_read(self) -> None:
        """Raise ProblemError 429 while more has been read than may be."""
        self._admit("fetch", self.read_throttle_ms())

    def read_throttle_ms(self) -> int:
        """Return for how long nothing may be read, 0 if something may."""
        return self._throttle_ms(self._now_meters().fetch)

    def bound_read(self, bytes_max: int) -> int:
        """Return how much one read may answer so that it fits into all windows."""
        meter = self._now_meters().fetch
        if meter is None:
            return bytes_max
        return min(bytes_max, int(meter.limit * self._broker.client_quotas.windows.burst_s))

    def charge_read(self, size: int) -> None:
        """Count what a read answers."""
        self._charge(self._now_meters().fetch, size)

    def note(self, kind: str, throttle_ms: int) -> None:
        """Count that the client has to wait."""
        self._broker.metrics.note_throttle(kind, throttle_ms)

    def fetch_bytes_max(self, context: RequestContext) -> int | None:
        """Let a step of a read take what it likes."""
        return None

    def throttle_fetch(self, context: RequestContext, size: int) -> int:
        """Let a step of a read pass."""
        return 0

    def mutation_asker(self, context: RequestContext, *, is_strict: bool) -> MutationAsker | None:
        """Return who makes or removes partitions, if a quota limits that; by HTTP all know 429."""
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
    """Return what somebody is told who has to wait."""
    return f"a quota is used up; try again in {_seconds(throttle_ms)} s"


def _seconds(milliseconds: int) -> int:
    """Return whole seconds, after which the time is over."""
    return -(-milliseconds // 1000)
