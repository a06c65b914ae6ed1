"""Tells the controller that this broker holds nothing of a deleted topic any more.

A topic is gone only when every broker that may hold data of it has said so. The message is
repeated until it gets through; the controller ignores what it knows already.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_model.calls import ConfirmDeletionsCall, Method
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker

logger = logging.getLogger(__name__)

CONFIRMATION_TIMEOUT_MS: Final = 5_000
RETRY_DELAY_S: Final = 1.0


class DeletionConfirmer:
    """One task while there is something to confirm, none otherwise."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pending: set[bytes] = set()
        self._task: asyncio.Task[None] | None = None

    def confirm(self, topic_id: bytes) -> None:
        """Confirm a topic id, together with others of this turn."""
        self._pending.add(topic_id)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._pending:
            await self._broker.replicas.settled()
            topic_ids = sorted(self._pending)
            call = ConfirmDeletionsCall(topic_ids=topic_ids)
            try:
                await self._broker.controller.call(
                    Method.CONFIRM_DELETIONS, dict(call), timeout_ms=CONFIRMATION_TIMEOUT_MS
                )
            except KafkaError as error:
                logger.info("deletions are confirmed later: %s", error)
                await asyncio.sleep(RETRY_DELAY_S)
            else:
                self._pending.difference_update(topic_ids)
