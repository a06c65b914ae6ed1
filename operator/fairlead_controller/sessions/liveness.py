"""Which brokers are dead: takes facts and the time, returns verdicts. Pure.

* A broker is dead when its session has been silent for the session timeout.
* A closed session makes it suspect: dead at once if its port refuses a connection, else after a
  short grace in which it may come back.
* If a refusal was misleading (the same incarnation came back), later refusals of that broker are
  ignored, and it gets only the grace: a firewall may refuse, too.
* If more than half of the brokers would be dead at once, or the controller itself did not run, the
  cause is more likely here: nobody is declared dead for one session timeout. That time is not
  extended; it can begin again only after a time without suspects.
* Silence alone never makes the last brokers dead. No broker would be left to lead, and if the
  controller's own network is down, they still serve clients. Once any broker is heard again, all
  have one session timeout to come back: a network that recovers first delivers the ends of their
  old connections. A port that refuses a connection still means that the broker is dead.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairlead_controller.decisions.events import FenceReason
from fairlead_model.ids import BrokerEpoch, BrokerId

RECONNECT_GRACE_MS: Final = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict that a broker is dead."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    reason: FenceReason


class _HoldOff(Enum):
    READY = "ready"
    HOLDING = "holding"
    SPENT = "spent"


@dataclass(slots=True)
class _Watched:
    """What is known of a broker that counts as alive."""

    broker_epoch: BrokerEpoch
    timeout_ms: int
    """The timeout that the broker was told when it registered; later changes do not affect it."""
    deadline_ms: int
    reason: FenceReason = FenceReason.SESSION_EXPIRED
    is_connected: bool = True


class Liveness:
    """All brokers that are not fenced, and their deadlines. Times are monotonic."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        """The timeout of sessions that begin from now on."""
        self._watched: dict[BrokerId, _Watched] = {}
        self._refusals: dict[BrokerId, BrokerEpoch] = {}
        self._distrusted: set[BrokerId] = set()
        self._hold_off = _HoldOff.READY
        self._hold_off_until_ms = 0
        self._has_heard_nobody = False
        """Whether all brokers have been silent for longer than their timeouts."""

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Tell whether a broker has a session now."""
        watched = self._watched.get(broker_id)
        return watched is not None and watched.is_connected

    def is_suspect(self, broker_id: BrokerId) -> bool:
        """Tell whether a broker's session has closed and its grace is running."""
        watched = self._watched.get(broker_id)
        return watched is not None and not watched.is_connected

    def absent(self) -> list[tuple[BrokerId, BrokerEpoch]] | None:
        """Return the brokers without a session; None while that is more than half of all.

        In that case they probably have not found this controller yet, and no verdict would follow.
        """
        found = [
            (broker_id, watched.broker_epoch)
            for broker_id, watched in sorted(self._watched.items())
            if not watched.is_connected
        ]
        return None if 2 * len(found) > len(self._watched) else found

    def expect(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """Give a broker that the store shows as alive one session timeout to connect."""
        self._watched[broker_id] = _Watched(
            broker_epoch,
            self.session_timeout_ms,
            now_ms + self.session_timeout_ms,
            reason=FenceReason.CONNECTION_LOST,
            is_connected=False,
        )

    def on_connected(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """Note that a broker has registered over a new connection."""
        if self._refusals.pop(broker_id, None) == broker_epoch:
            self._distrusted.add(broker_id)
        timeout_ms = self.session_timeout_ms
        self._watched[broker_id] = _Watched(broker_epoch, timeout_ms, now_ms + timeout_ms)

    def on_heard(self, broker_id: BrokerId, now_ms: int) -> None:
        """Note that a broker has sent something."""
        watched = self._watched.get(broker_id)
        if watched is not None:
            watched.deadline_ms = now_ms + watched.timeout_ms
            watched.reason = FenceReason.SESSION_EXPIRED

    def on_closed(self, broker_id: BrokerId, now_ms: int) -> None:
        """Note that the connection of a broker has closed."""
        watched = self._watched.get(broker_id)
        if watched is not None:
            watched.is_connected = False
            watched.deadline_ms = min(watched.deadline_ms, now_ms + RECONNECT_GRACE_MS)
            watched.reason = FenceReason.CONNECTION_LOST

    def on_refused(self, broker_id: BrokerId, now_ms: int) -> None:
        """Note that the port of a broker whose connection had closed refuses connections."""
        watched = self._watched.get(broker_id)
        if watched is None or watched.is_connected or broker_id in self._distrusted:
            return
        watched.deadline_ms = min(watched.deadline_ms, now_ms)
        watched.reason = FenceReason.CONNECTION_REFUSED
        self._refusals[broker_id] = watched.broker_epoch

    def on_slept(self, now_ms: int) -> None:
        """Note that the controller did not run for a while: messages wait to be read."""
        self._begin_hold_off(now_ms)

    def forget(self, broker_id: BrokerId) -> None:
        """Forget a broker that was fenced, or that announced its shutdown."""
        self._watched.pop(broker_id, None)

    def tick(self, now_ms: int) -> list[Verdict]:
        """Return the brokers that are dead now, and forget them."""
        if self._hold_off is _HoldOff.HOLDING:
            if now_ms < self._hold_off_until_ms:
                return []
            self._hold_off = _HoldOff.SPENT
        overdue = [
            broker_id
            for broker_id, watched in sorted(self._watched.items())
            if watched.deadline_ms <= now_ms
        ]
        is_everybody = len(overdue) == len(self._watched)
        if self._has_heard_nobody and not is_everybody:
            self._has_heard_nobody = False
            self._hold_off = _HoldOff.READY
            self._begin_hold_off(now_ms)
            return []
        suspects = sum(not watched.is_connected for watched in self._watched.values())
        if not overdue:
            if not suspects:
                self._hold_off = _HoldOff.READY
            return []
        # A broker that was silent for half the timeout has missed three heartbeats. Such brokers
        # reach their deadlines one after another, although they were lost at the same time.
        silent = sum(
            watched.is_connected and 2 * (watched.deadline_ms - now_ms) <= watched.timeout_ms
            for watched in self._watched.values()
        )
        is_most = 2 * (suspects + silent) > len(self._watched)
        if is_most and self._hold_off is _HoldOff.READY:
            self._begin_hold_off(now_ms)
            return []
        verdicts = []
        for broker_id in overdue:
            watched = self._watched[broker_id]
            if is_everybody and watched.reason is not FenceReason.CONNECTION_REFUSED:
                self._has_heard_nobody = True
                continue
            del self._watched[broker_id]
            verdicts.append(Verdict(broker_id, watched.broker_epoch, watched.reason))
        return verdicts

    def _begin_hold_off(self, now_ms: int) -> None:
        if self._hold_off is _HoldOff.READY:
            self._hold_off = _HoldOff.HOLDING
            self._hold_off_until_ms = now_ms + self.session_timeout_ms
