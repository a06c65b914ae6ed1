"""Tells the controller that this broker holds nothing of a topic or a replica any more.

A topic is gone only when every broker that may have data of it has confirmed that, and the record
of a reassignment has a note until each broker that lost a replica has confirmed. The message is
repeated until the controller gets it; the controller ignores what it knows already.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairlead_model.session.calls import ConfirmDeletionsCall, ConfirmedRemoval, Method
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from fairlead_broker.session.registered_broker import RegisteredBroker

logger = logging.getLogger(__name__)

CONFIRMATION_TIMEOUT_MS: Final = 5_000
RETRY_DELAY_S: Final = 1.0
CONFIRMATIONS_PER_CALL_MAX: Final = 500


class DeletionConfirmer:
    """One task while there is something to confirm, none otherwise."""

    def __init__(self, broker: RegisteredBroker) -> None:
        self._broker = broker
        self._pending: set[bytes] = set()
        self._removals: dict[tuple[bytes, int], int] = {}
        """By topic id and index the leader epoch of the record that removed the replica."""
        self._task: asyncio.Task[None] | None = None

    def confirm(self, topic_id: bytes) -> None:
        """Confirm a topic id, together with others of this turn."""
        self._pending.add(topic_id)
        self._begin()

    def confirm_removal(self, topic_id: bytes, index: int, leader_epoch: int) -> None:
        """Confirm a replica, together with others of this turn."""
        self._removals[topic_id, index] = leader_epoch
        self._begin()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._pending or self._removals:
            await self._broker.replicas.settled()
            topic_ids = sorted(self._pending)[:CONFIRMATIONS_PER_CALL_MAX]
            removals = dict(islice(self._removals.items(), CONFIRMATIONS_PER_CALL_MAX))
            call = ConfirmDeletionsCall(
                topic_ids=topic_ids,
                removals=[
                    ConfirmedRemoval(topic_id=topic_id, index=index, leader_epoch=leader_epoch)
                    for (topic_id, index), leader_epoch in sorted(removals.items())
                ],
            )
            try:
                await self._broker.controller.call(
                    Method.CONFIRM_DELETIONS, dict(call), timeout_ms=CONFIRMATION_TIMEOUT_MS
                )
            except KafkaError as error:
                logger.info("deletions are confirmed later: %s", error)
                await asyncio.sleep(RETRY_DELAY_S)
            else:
                self._pending.difference_update(topic_ids)
                for key, leader_epoch in removals.items():
                    if self._removals.get(key) == leader_epoch:
                        del self._removals[key]
