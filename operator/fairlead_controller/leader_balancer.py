"""Has the controller check from time to time whether to elect preferred leaders again."""

import asyncio
import logging

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import BalanceLeaders
from fairlead_model.session.refusals import RefusedError

logger = logging.getLogger(__name__)


class LeaderBalancer:
    """The timer of preferred-leader elections; one for each reign."""

    def __init__(
        self, controller: Controller, *, interval_s: float, imbalance_percentage_max: int
    ) -> None:
        self._controller = controller
        self._interval_s = interval_s
        self._event = BalanceLeaders(imbalance_percentage_max)

    async def run(self) -> None:
        """Balance leaders as long as the controller reigns."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._controller.submit(self._event)
            except RefusedError as refusal:
                logger.warning("leaders stay where they are for now: %s", refusal.message)
