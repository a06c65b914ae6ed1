"""Producer ids of this broker, in blocks from the controller.

A block that is lost with the process is never used again, so ids are unique for the life of the
cluster. The next block is asked for before the one at hand is used up: new producers then come to
no harm while the controller is away for a moment.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from fairlead_model.session.calls import Method

if TYPE_CHECKING:
    from fairlead_broker.session.registered_broker import RegisteredBroker

ALLOCATION_TIMEOUT_MS: Final = 5_000
REFILL_BELOW: Final = 200
"""Ids left when the next block is asked for."""


class ProducerIds:
    """Invariant: every id in `_blocks` belongs to this broker and was never given to anybody."""

    def __init__(self, broker: RegisteredBroker) -> None:
        self._broker = broker
        self._blocks: deque[range] = deque()
        self._refill: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """Return the next id, or None if the block is used up."""
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        self.maybe_refill()
        return block[0]

    def maybe_refill(self) -> bool:
        """Ask for the next block in the background, if it is time; whether it was."""
        is_asking = self._refill is not None and not self._refill.done()
        if is_asking or sum(map(len, self._blocks)) >= REFILL_BELOW:
            return False
        self._refill = asyncio.get_running_loop().create_task(self._ask())
        # If anything waits for it, it learns of the failure.
        self._refill.add_done_callback(lambda task: task.cancelled() or task.exception())
        return True

    async def wait(self) -> int:
        """Return the next id, from a new block if need be; KafkaError if there is no controller."""
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            self.maybe_refill()
            if self._refill is not None:
                await asyncio.shield(self._refill)

    async def _ask(self) -> None:
        reply = await self._broker.controller.call(
            Method.ALLOCATE_PRODUCER_IDS, {}, timeout_ms=ALLOCATION_TIMEOUT_MS
        )
        first = reply["first_producer_id"]
        self._blocks.append(range(first, first + reply["count"]))
