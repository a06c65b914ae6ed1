"""Applies the Topic resources given at start: at once if possible, else as brokers register.

New topics wait until the expected brokers have registered, or until no new broker has come for a
while, so that the first broker of a starting cluster does not get every partition.
"""

import argparse
import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import DeclareTopics
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import BrokerChanged, Change
from fairlead_model.session.refusals import RefusedError

logger = logging.getLogger(__name__)

QUIET_S: Final = 0.5
"""Without an expected number of brokers: topics are placed so long after the last registration."""
QUIET_WHEN_EXPECTING_S: Final = 5.0
"""With an expected number: topics are placed without the missing brokers after so long."""

AGAIN_S: Final = 5.0
"""A topic that still waits is tried again after so long, even if no broker has registered."""

REFUSED_RETRY_S: Final = 1.0
"""Pause before a controller is asked again that takes no decisions now."""


def add_topic_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which topics are declared, and when they are placed."""
    parser.add_argument(
        "--topics",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="Topic manifests (YAML or JSON): the complete set of declared topics",
    )
    parser.add_argument(
        "--expected-brokers",
        type=int,
        help="place new declared topics once so many brokers are there",
    )


class Declarations:
    """The resources of one start of the controller."""

    def __init__(
        self, controller: Controller, event: DeclareTopics, *, expected_brokers: int | None
    ) -> None:
        self.waiting: list[str] = [spec.topic_name for spec in event.specs]
        self.problems: list[str] = []
        self._controller = controller
        self._event = event
        self._expected = expected_brokers
        self._brokers_changed = asyncio.Event()
        controller.subscribe(self._on_changes)

    def status(self) -> dict[str, Any]:
        """Return what still waits, and the problems, for the status page."""
        return {"waiting": list(self.waiting), "problems": list(self.problems)}

    async def run(self) -> None:
        """Apply all resources; return when none waits any more."""
        is_declared = await self._declare(may_create=False)
        while not is_declared:
            await asyncio.sleep(REFUSED_RETRY_S)
            is_declared = await self._declare(may_create=False)
        while self.waiting:
            await self._enough_brokers()
            await self._declare(may_create=True)
            if self.waiting:
                # They wait for brokers, or until a reassignment that an administrator requested has
                # ended.
                self._brokers_changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await self._brokers_changed.wait()

    async def _declare(self, *, may_create: bool) -> bool:
        """Apply all resources; tell whether the controller has taken them.

        One that is overloaded, or stops a wrong decision, reigns on: brokers need it all the same.
        """
        try:
            reply = await self._controller.submit(replace(self._event, may_create=may_create))
        except RefusedError as refusal:
            problem = f"declared topics are as they were: {refusal.message}"
            if self.problems != [problem]:
                logger.warning("%s", problem)
            self.problems = [problem]
            return False
        self.waiting = reply["waiting"]
        if reply["problems"] != self.problems and may_create:
            for problem in reply["problems"]:
                logger.warning("%s", problem)
        self.problems = reply["problems"]
        return True

    async def _enough_brokers(self) -> None:
        quiet_s = QUIET_S if self._expected is None else QUIET_WHEN_EXPECTING_S
        while True:
            live = _live_brokers(self._controller.committed)
            if self._expected is not None and live >= self._expected:
                return
            self._brokers_changed.clear()
            try:
                async with asyncio.timeout(quiet_s if live else None):
                    await self._brokers_changed.wait()
            except TimeoutError:
                return

    def _on_changes(self, changes: tuple[Change, ...], state: ControllerState) -> None:
        if any(isinstance(change, BrokerChanged) for change in changes):
            self._brokers_changed.set()


def _live_brokers(state: ControllerState) -> int:
    return sum(broker.may_lead for broker in state.image.brokers.values())
