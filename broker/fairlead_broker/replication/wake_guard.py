"""Whether a leader whose process stood still is still the leader.

SIGSTOP, a frozen VM or a starved host may stop a process until its session is over. It may then
have been replaced without knowing it. Acknowledgements with acks=all stay safe: the in-sync
replicas follow another leader now. With acks=0 or 1 the process would acknowledge records in a log
that is about to be truncated. So after such a gap these requests wait until the controller has
answered a question that was asked after the gap. By then all its decisions of the meantime have
arrived. The wait is bounded, because a controller that is not reachable must not stop the brokers.
Requests to coordinators wait as long: their state in memory may be older than what their successors
have written.

Coordinators also measure how long their clients are silent. So `awake_ms` stands still from the
last time that the process was seen running until a moment after the guard has opened. In that
moment the process reads what has arrived meanwhile.

Pure: callers pass the time, mostly with every produce request and from a timer.
"""

from __future__ import annotations

from typing import Final

PATIENCE_MS: Final = 1_000
"""How long acknowledgements wait for a controller that may not be reachable."""
READING_MS: Final = 1_000
"""How long a process may take to read what arrived while it stood still."""


class WakeGuard:
    """Closed from the moment that a gap is noticed until `confirmed` or `PATIENCE_MS` later.

    Two clocks are watched, because a suspended host stops the monotonic one. `question` numbers the
    gaps: an answer to an older question confirms nothing. A gap is measured from the last time that
    the process was seen running. At that time the controller may have heard nothing for one
    heartbeat interval, so `gap_max_ms` is the session time-out less that interval.
    """

    def __init__(self, *, gap_max_ms: int, monotonic_ms: int, wall_ms: int) -> None:
        self.gap_max_ms = gap_max_ms
        self.question = 0
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms
        self._closed_until_ms: int | None = None
        self._stood_at_ms = 0
        """Least value of `awake_ms` since the last gap."""
        self._lost_ms = 0

    def note_time(self, *, monotonic_ms: int, wall_ms: int) -> bool:
        """Note that the process runs now; return whether it was stopped for too long before."""
        seen_ms = self._monotonic_ms
        gap_ms = max(monotonic_ms - seen_ms, wall_ms - self._wall_ms)
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms
        if gap_ms <= self.gap_max_ms:
            return False
        self._close(seen_ms, monotonic_ms)
        return True

    def close(self, monotonic_ms: int) -> None:
        """Close as after a gap: no controller has confirmed that this process leads."""
        self._close(monotonic_ms, monotonic_ms)

    def is_closed(self, monotonic_ms: int) -> bool:
        """Return True while acks=0, acks=1 and requests to coordinators have to wait."""
        closed_until_ms = self._closed_until_ms
        if closed_until_ms is None:
            return False
        if monotonic_ms >= closed_until_ms:
            self._open(monotonic_ms)
            return False
        return True

    def confirmed(self, question: int, monotonic_ms: int) -> bool:
        """Take the controller's answer to what was asked after gap `question`."""
        if question != self.question or self._closed_until_ms is None:
            return False
        self._open(monotonic_ms)
        return True

    def awake_ms(self, monotonic_ms: int) -> int:
        """Return the monotonic time without the times in which no client could be heard."""
        if self._closed_until_ms is not None:
            return self._stood_at_ms
        return max(self._stood_at_ms, monotonic_ms - self._lost_ms)

    def stands_still(self, monotonic_ms: int) -> bool:
        """Tell whether `awake_ms` does not go on yet."""
        is_closed = self._closed_until_ms is not None
        return is_closed or monotonic_ms - self._lost_ms < self._stood_at_ms

    def _close(self, since_ms: int, now_ms: int) -> None:
        self._stood_at_ms = self.awake_ms(since_ms)
        self.question += 1
        self._closed_until_ms = now_ms + PATIENCE_MS

    def _open(self, monotonic_ms: int) -> None:
        self._closed_until_ms = None
        self._lost_ms = monotonic_ms + READING_MS - self._stood_at_ms
