"""Long work on the loop, in slices of a few milliseconds, with other work between them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.clock import Clock


async def in_slices(steps: Iterator[object], clock: Clock) -> None:
    """Do all steps, and let other work run whenever a slice's time is used up."""
    deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
    for _ in steps:
        if clock.monotonic_ms() >= deadline_ms:
            await asyncio.sleep(0)
            deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
