"""How requests to the HTTP API share the event loop: all together get one slice of each turn.

Code that may run for long awaits `rest` before each part of its work. In each turn of the loop one
request that waits goes on. So with any number of requests, all other work waits for little more
than a slice and a part.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from fairlead_broker.limits import REST_SLICE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_SLICE_NS: Final = REST_SLICE_MS * 1_000_000


class Slices:
    """The slices of one server."""

    def __init__(self) -> None:
        self._began_ns = 0
        """When the first request ran in this turn of the loop; 0 if none has."""
        self._is_turn_noted = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Requests that wait; at most one entry for each request that is being answered."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rest-documents")

    async def aside(
        self,
        call: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Return the result of a call that takes long and that cannot be divided.

        One thread runs these calls one after the other, so that the memory of only one is in use.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(call, *arguments, **named))

    def close(self) -> None:
        """End the thread when it is idle."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def rest(self) -> None:
        """Wait for a later turn of the loop if the slice of this turn is used up."""
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
        """Begin a new slice, and let the next request that waits go on."""
        self._is_turn_noted = False
        self._began_ns = 0
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        if self._waiting:
            self._note_turn()
