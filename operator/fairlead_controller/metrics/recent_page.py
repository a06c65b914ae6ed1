"""A page that is expensive to make and that anybody may request: made once for all who ask."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

AGE_S_MAX: Final = 0.25
"""Far below any scrape interval, and long enough that a flood of requests makes few pages."""


class RecentPage:
    """Makes the page when it is too old; `make` never runs twice at the same time."""

    def __init__(
        self,
        make: Callable[[], Awaitable[bytes]],
        *,
        age_s_max: float = AGE_S_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`age_s_max` counts from the end of making, so that making takes a bounded share."""
        self._make = make
        self._age_s_max = age_s_max
        self._clock = clock
        self._making = asyncio.Lock()
        self._page = b""
        self._made_s = float("-inf")

    async def get(self) -> bytes:
        """Return the page, made anew if it is too old."""
        async with self._making:
            if self._clock() - self._made_s > self._age_s_max:
                self._page = await self._make()
                self._made_s = self._clock()
            return self._page
