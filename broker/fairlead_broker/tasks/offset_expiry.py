"""Committed offsets past `offsets.retention.minutes`, and groups that have nothing left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fairlead_broker.group.removal import expire
from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker

_MS_PER_MINUTE: Final = 60_000


class OffsetExpiry:
    """A round for `run_periodically`: all groups that are coordinated here, in slices."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._retention_ms = broker.settings.offsets_retention_minutes * _MS_PER_MINUTE

    async def remove_expired(self) -> None:
        """Write tombstones for offsets that have expired (R21)."""
        coordinator = self._broker.group_coordinator
        clock = self._broker.clock
        now_ms = clock.now_ms()
        deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        for group in list(coordinator.groups.values()):
            if not group.is_gone:
                expire(coordinator, group, now_ms=now_ms, retention_ms=self._retention_ms)
            if clock.monotonic_ms() >= deadline_ms:
                await asyncio.sleep(0)
                deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
