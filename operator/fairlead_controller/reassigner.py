"""Keeps reassignments going: the shell of `decisions.reassignment.progress`.

It acts when a partition under reassignment has changed, and from time to time, because brokers come
and go.
"""

import asyncio
import logging
import time
from typing import Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import AdvanceReassignments
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import BrokerConfigsChanged, Change, PartitionChanged
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusedError

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
PAUSE_S: Final = 0.1
"""Changes within this time are handled together."""
GIVE_UP_S: Final = 600.0
"""A drain no longer waits for a target broker that has been out of service for so long."""


class Reassigner:
    """The timer of reassignments; one for each reign."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._has_work = asyncio.Event()
        self._missed_since: dict[BrokerId, float] = {}
        self._turn = 0
        controller.subscribe(self._on_changes)

    async def run(self) -> None:
        """Move partitions as long as the controller reigns."""
        while True:
            try:
                async with asyncio.timeout(INTERVAL_S):
                    await self._has_work.wait()
            except TimeoutError:
                pass
            self._has_work.clear()
            state = self._controller.committed
            given_up = self._given_up(state, time.monotonic())
            if state.moves or state.cordoned:
                self._turn += 1
                try:
                    await self._controller.submit(AdvanceReassignments(given_up, self._turn))
                except RefusedError as refusal:
                    logger.warning("reassignments stand still for now: %s", refusal.message)
            await asyncio.sleep(PAUSE_S)

    def _on_changes(self, changes: tuple[Change, ...], state: ControllerState) -> None:
        if (state.moves or state.cordoned) and any(
            isinstance(change, PartitionChanged | BrokerConfigsChanged) for change in changes
        ):
            self._has_work.set()

    def _given_up(self, state: ControllerState, now_s: float) -> frozenset[BrokerId]:
        """Return the brokers that have been out of service for too long."""
        self._missed_since = {
            broker_id: self._missed_since.get(broker_id, now_s)
            for broker_id in state.image.brokers
            if not state.image.is_live(broker_id)
        }
        return frozenset(
            broker_id
            for broker_id, since_s in self._missed_since.items()
            if now_s - since_s > GIVE_UP_S
        )
