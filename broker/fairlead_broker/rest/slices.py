"""How requests to the HTTP API share the loop: all of them have one slice of each turn together.

Work that may be long asks before each of its parts. What has waited goes on one by one, one in a
turn of the loop, so however many requests are being worked on, all else waits for little more than
a slice and a part.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter_ns
from typing import Final

from fairlead_broker.limits import REST_SLICE_MS

_SLICE_NS: Final = REST_SLICE_MS * 1_000_000


class Slices:
    """The slices of one server."""

    def __init__(self) -> None:
        self._began_ns = 0
        """When the first one worked in this turn of the loop; 0 where none has."""
        self._is_turn_noted = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        """At most one for each request that is being answered."""

    async def rest(self) -> None:
        """Let others have their turn if the slice of this one is used up."""
        now_ns = perf_counter_ns()
        if self._began_ns and now_ns - self._began_ns > _SLICE_NS:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
            now_ns = perf_counter_ns()
        if not self._began_ns:
            self._began_ns = now_ns
            self._note_turn()

    def _note_turn(self) -> None:
        if not self._is_turn_noted:
            self._is_turn_noted = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Begin a new slice, and have the next one go on that waits."""
        self._is_turn_noted = False
        self._began_ns = 0
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        if self._waiting:
            self._note_turn()
