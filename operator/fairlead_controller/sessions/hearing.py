"""A new controller hears all known brokers before it lets any of them register.

This is the shell of `regressions`: if a broker has seen a state that the tables do not have, the
reign ends.
"""

import asyncio
from contextlib import suppress
from typing import Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.tables.regressions import BrokerTestimony, contradiction
from fairlead_controller.decisions.tables.stored_table import StoreRolledBackError
from fairlead_controller.sessions.port_probe import is_refused
from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError

HEARING_S: Final = 1.0
"""How long a new controller waits for the brokers that its tables name. It is less than a session
timeout, after which the controller decides who is dead."""
NEWCOMERS_S: Final = 0.25
"""A new controller does not probe missing brokers before so long. Live brokers look for a
controller five times a second (`REFUSED_DELAY_MAX_S` of the broker's session)."""
PROBE_INTERVAL_S: Final = 0.05


class Hearing:
    """The hearing of one reign; made in a running loop."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        state = controller.committed
        self._unheard = {each for each in state.unconfirmed if not state.image.brokers[each].fenced}
        """Brokers that are in service by the tables and have not connected yet. A fenced broker may
        never come back, so nobody waits for it."""
        self._expected = len(self._unheard)
        self._all_heard = asyncio.Event()
        self._until_s = asyncio.get_running_loop().time() + HEARING_S

    async def hear(self, asking: BrokerRegistration, testimony: BrokerTestimony) -> None:
        """Return when a broker may register; raise RefusedError if it contradicts the tables."""
        controller, broker_id = self._controller, asking.broker_id
        seen = testimony.highest_seen(asking)
        if seen.controller_epoch > controller.committed.controller_epoch:
            await controller.end_if_deposed(seen)
        elif found := contradiction(
            controller.state_before(broker_id),
            asking,
            testimony,
            history=controller.history,
            has_heard=controller.has_heard(broker_id),
        ):
            controller.end(StoreRolledBackError(found, seen))
        else:
            await self._hear_all(broker_id)
            return
        raise RefusedError(
            RefusalCode.NOT_CONTROLLER, "this controller does not know what this broker has seen"
        )

    async def excuse_dead(self) -> None:
        """Stop waiting for brokers whose ports refuse connections; return when the hearing is over.

        Such a broker has no process that could contradict the tables. While most brokers are
        missing, it is more likely that this controller has no network, so no broker is excused.
        """
        await asyncio.sleep(NEWCOMERS_S)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until_s):
                while self._unheard:
                    if 2 * len(self._unheard) <= self._expected:
                        for broker_id in sorted(self._unheard):
                            await self._maybe_excuse(broker_id)
                    await asyncio.sleep(PROBE_INTERVAL_S)

    async def _maybe_excuse(self, broker_id: BrokerId) -> None:
        broker = self._controller.committed.image.brokers.get(broker_id)
        if broker is None or await is_refused(broker.endpoints):
            self._note_heard(broker_id)

    def _note_heard(self, broker_id: BrokerId) -> None:
        self._unheard.discard(broker_id)
        if not self._unheard:
            self._all_heard.set()

    async def _hear_all(self, broker_id: BrokerId) -> None:
        """Wait until all brokers were heard, or until the time for it is over.

        Without this wait, a broker that knows less than the others would act on tables that another
        broker contradicts a moment later.
        """
        self._note_heard(broker_id)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._until_s):
                await self._all_heard.wait()
