"""Which candidate may act: how one candidate competes for the Lease. Pure.

The record in the API server names a holder, and the holder renews it. Every candidate uses its own
clock: it takes over when it has *seen* no change of the record for the lease's duration. A holder
gives up when its last successful renewal was *requested* longer ago than the deadline, which is
shorter. A renewal lands after it was requested, and is seen after it has landed. So the deadline
has passed before another candidate takes over, whatever the clocks show; the difference is the
margin for clocks of different speed.

A write of unknown outcome changes nothing by itself: the record is read again, and only a write
that was answered makes or keeps a holder. A process that was paused finds that its deadline has
passed. A lost claim stays lost: the process has to end, because it cannot know which of its
requests are still under way.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

DURATION_MS: Final = 3000
RENEW_DEADLINE_MS: Final = 2000
RETRY_MS: Final = 500
LOOK_MS: Final = 250
"""How often a standby reads the record: a change that it sees late delays its takeover."""
DOUBT_RETRY_MS: Final = 100
"""How soon a holder reads the record again if it does not know how its renewal ended."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The Lease as the API server has it."""

    version: str
    holder: str
    """Empty if the Lease was released."""
    renewal: str
    """Changes with every renewal; only compared, not parsed."""
    duration_ms: int = DURATION_MS


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the record."""


@dataclass(frozen=True, slots=True)
class WriteLease:
    """Write this candidate's name into the record, if it still has this version.

    None as version: if the record does not exist.
    """

    version: str | None
    is_takeover: bool


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Do nothing before this time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The Lease is lost, or may be: end the process at once."""

    reason: str


LeaseStep: TypeAlias = ReadLease | WriteLease | WaitUntil | GiveUp


class _Role(Enum):
    STANDBY = "standby"
    HOLDER = "holder"
    LOST = "lost"


class LeaseClaim:
    """One candidate's state; `identity` belongs to one process and is never used again."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._role = _Role.STANDBY
        self._record: LeaseRecord | None = None
        self._seen_ms = 0
        """When a change of the record was last seen."""
        self._held_until_ms = 0
        self._next_ms = 0
        self._must_read = True
        self._lost_because = ""

    def is_held(self, now_ms: int) -> bool:
        """Tell whether this candidate may act now; the caller asks before every action."""
        return self._role is _Role.HOLDER and now_ms < self._held_until_ms

    @property
    def is_holder(self) -> bool:
        """Whether this candidate became the holder and has not noticed a loss of the Lease."""
        return self._role is _Role.HOLDER

    @property
    def held_until_ms(self) -> int:
        """When a holder has to stop acting, unless it has renewed by then."""
        return self._held_until_ms

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last read."""
        return "" if self._record is None else self._record.holder

    def next_step(self, now_ms: int) -> LeaseStep:
        """Return what to do now."""
        if self._role is _Role.HOLDER and now_ms >= self._held_until_ms:
            late_ms = now_ms - self._held_until_ms + RENEW_DEADLINE_MS
            self._lose(f"the Lease could not be renewed for {late_ms} ms")
        if self._role is _Role.LOST:
            return GiveUp(self._lost_because)
        if now_ms < self._next_ms:
            return WaitUntil(self._next_ms)
        if self._must_read:
            return ReadLease()
        version = None if self._record is None else self._record.version
        return WriteLease(version, is_takeover=self._role is _Role.STANDBY)

    def on_read(self, record: LeaseRecord | None, now_ms: int) -> None:
        """Apply a record that was read; `now_ms` is when the answer arrived, never earlier."""
        if record is None or self._record is None or _is_changed(self._record, record):
            self._seen_ms = now_ms
        self._record = record
        if self._role is _Role.HOLDER:
            if record is None or record.holder != self.identity:
                holder = "nobody" if record is None else record.holder or "nobody"
                self._lose(f"the Lease is held by {holder}")
                return
            # The answer to a renewal was lost, or somebody labelled the object: continue from this
            # version.
            self._must_read = False
            self._next_ms = now_ms
            return
        expires_ms = self._seen_ms
        if record is not None and record.holder not in {"", self.identity}:
            expires_ms += max(DURATION_MS, record.duration_ms)
        self._must_read = now_ms < expires_ms
        self._next_ms = min(now_ms + LOOK_MS, max(expires_ms, now_ms))

    def on_written(self, record: LeaseRecord, asked_ms: int) -> None:
        """Note that a write that began at `asked_ms` succeeded: this candidate is in the record."""
        if self._role is _Role.LOST:
            return
        self._role = _Role.HOLDER
        self._record = record
        self._must_read = False
        self._held_until_ms = asked_ms + RENEW_DEADLINE_MS
        self._next_ms = asked_ms + RETRY_MS

    def on_failed(self, now_ms: int) -> None:
        """Note a failed read or write: another candidate was faster, or the outcome is unknown."""
        self._must_read = True
        delay_ms = DOUBT_RETRY_MS if self._role is _Role.HOLDER else RETRY_MS
        self._next_ms = now_ms + delay_ms

    def _lose(self, reason: str) -> None:
        self._role = _Role.LOST
        self._lost_because = reason


def _is_changed(before: LeaseRecord, after: LeaseRecord) -> bool:
    # The version is not compared: a label changes it, too.
    return (before.holder, before.renewal) != (after.holder, after.renewal)
