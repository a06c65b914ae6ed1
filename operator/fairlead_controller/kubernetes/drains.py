"""Tells the controller which brokers are to lead nothing; one for each reign.

It is level-triggered: it compares what Pods, Nodes and people say now with what the controller was
told last. It calls the controller again while leaders remain, because another replica may have
joined the ISR, and after each registration, because a new pod is not the pod that was being
deleted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import DrainBrokers
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged, BrokerRemoved, Change
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusedError

logger = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 0.5
ASK_AGAIN_S_MAX: Final = 5.0

PlanDrains = Callable[[Iterable[BrokerRegistration]], Mapping[BrokerId, str]]


class Drains:
    """The brokers of one cluster that are being drained, and why."""

    def __init__(self, controller: Controller, plan: PlanDrains) -> None:
        self._controller = controller
        self._plan = plan
        self._by_hand: set[BrokerId] = set()
        self._remaining: dict[BrokerId, int] = {}
        self._wake = asyncio.Event()
        controller.subscribe(self._on_changes)

    def look_again(self) -> None:
        """Look again, because Pods or Nodes have changed."""
        self._wake.set()

    async def set_by_hand(self, broker_id: BrokerId, *, is_draining: bool) -> int:
        """Drain a broker, or let it lead again; return how many partitions it still leads.

        It stays drained while its pod or its node is also a reason.
        """
        if is_draining:
            self._by_hand.add(broker_id)
        else:
            self._by_hand.discard(broker_id)
        await self._update()
        if any(self._remaining.values()):
            # `run` may wait without end, because nothing remained when it looked last.
            self._wake.set()
        return self._remaining.get(broker_id, 0)

    async def run(self) -> None:
        """Drain brokers as long as the controller reigns."""
        pause_s = ASK_AGAIN_S
        while True:
            self._wake.clear()
            try:
                await self._update()
            except RefusedError as refusal:
                logger.warning("leaders stay where they are for now: %s", refusal.message)
            try:
                async with asyncio.timeout(pause_s if any(self._remaining.values()) else None):
                    await self._wake.wait()
                pause_s = ASK_AGAIN_S
            except TimeoutError:
                pause_s = min(2 * pause_s, ASK_AGAIN_S_MAX)

    async def _update(self) -> None:
        state = self._controller.committed
        wanted = dict(self._plan(state.image.brokers.values()))
        for broker_id in self._by_hand & state.image.brokers.keys():
            wanted.setdefault(broker_id, "asked for")
        if not wanted and not state.draining:
            self._remaining = {}
            return
        reply = await self._controller.submit(DrainBrokers(wanted))
        self._remaining = dict(reply["remaining_leaders"])

    def _on_changes(self, changes: tuple[Change, ...], state: ControllerState) -> None:
        for change in changes:
            if isinstance(change, BrokerRemoved):
                # A later broker of this id is another broker, and nobody has asked to drain it.
                self._by_hand.discard(change.broker_id)
        if any(isinstance(change, BrokerChanged) for change in changes):
            self._wake.set()
