"""The coordinators' clock: its monotonic time stands still while this broker hears no client.

Sessions and time-outs of members use it, so that a broker that only stood still removes no member.
See `replication.wake_guard`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_broker.clock import Clock
    from fairlead_broker.session.wake_check import WakeCheck


class AwakeClock:
    """A `Clock`. Wall time goes on: records have the time at which they are written."""

    __slots__ = ("_awake_ms", "_now_ms")

    def __init__(self, clock: Clock, wake_check: WakeCheck) -> None:
        self._now_ms = clock.now_ms
        self._awake_ms = wake_check.awake_ms

    def now_ms(self) -> int:
        return self._now_ms()

    def monotonic_ms(self) -> int:
        return self._awake_ms()
