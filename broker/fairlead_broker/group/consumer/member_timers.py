"""Until when members of a group of KIP-848 may be silent, or slow.

Pure. Signs of life only move deadlines later, so at the earliest known one all are looked at again.
A loop that stood still for long has kept members from being heard: what they lost that way is given
to them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_STALL_MS: Final = 300
"""A check that comes so much later than it was due finds requests unread."""
_READING_MS: Final = 1_000
"""What a loop is given to read them."""


class TimerKind(Enum):
    """What a member has to do in time so that it is not fenced."""

    SESSION = "heartbeats"
    REBALANCE = "giving up partitions"
    JOIN = "joining again"
    """In the classic protocol, once it was told to."""
    SYNC = "asking for its partitions"
    """In the classic protocol, once it has joined."""


class _Deadline(NamedTuple):
    at_ms: int
    member_epoch: int | None
    """None if it applies whatever the member's epoch is."""


class MemberTimers:
    """Monotonic milliseconds."""

    __slots__ = ("_deadlines", "next_ms")

    def __init__(self) -> None:
        self._deadlines: dict[tuple[TimerKind, str], _Deadline] = {}
        self.next_ms: int | None = None
        """When `due` has to be asked at the earliest."""

    def __contains__(self, timer: tuple[TimerKind, str]) -> bool:
        return timer in self._deadlines

    def set(
        self, kind: TimerKind, member_id: str, at_ms: int, *, member_epoch: int | None = None
    ) -> None:
        """Expect something by then; an earlier expectation of the kind is forgotten."""
        self._deadlines[kind, member_id] = _Deadline(at_ms, member_epoch)
        if self.next_ms is None or at_ms < self.next_ms:
            self.next_ms = at_ms

    def cancel(self, kind: TimerKind, member_id: str) -> None:
        """Expect it no more."""
        self._deadlines.pop((kind, member_id), None)

    def forget(self, member_id: str) -> None:
        """Remove the timers of a former member."""
        for kind in TimerKind:
            self.cancel(kind, member_id)

    def due(self, now_ms: int) -> Iterator[tuple[TimerKind, str, int | None]]:
        """Walk what was not done in time: what, by whom, and at which epoch."""
        if self.next_ms is None or now_ms < self.next_ms:
            return
        late_ms = now_ms - self.next_ms
        if late_ms > _STALL_MS:
            for timer, deadline in self._deadlines.items():
                later_ms = max(deadline.at_ms + late_ms, now_ms + _READING_MS)
                self._deadlines[timer] = deadline._replace(at_ms=later_ms)
        for (kind, member_id), deadline in list(self._deadlines.items()):
            if now_ms >= deadline.at_ms:
                del self._deadlines[kind, member_id]
                yield kind, member_id, deadline.member_epoch
        self.next_ms = min((each.at_ms for each in self._deadlines.values()), default=None)

    def postpone(self, until_ms: int) -> None:
        """Look at nothing before then."""
        if self.next_ms is not None:
            self.next_ms = max(self.next_ms, until_ms)
