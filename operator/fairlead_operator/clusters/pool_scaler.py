"""Tells the controller which brokers leave a pool, and reports their progress."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fairlead_kube.kinds import BROKER_POOL, STATEFUL_SET
from fairlead_operator.clusters.plan import PoolPlan
from fairlead_operator.clusters.pool_decisions import REPLICAS_REMAIN
from fairlead_operator.clusters.scale_down import BrokerHoldings, describe_holdings, named_brokers
from fairlead_operator.controller_client import ControllerClient, ControllerRefusedError
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.specs.stateful_set import count_replicas

logger = logging.getLogger(__name__)


class PoolScaler:
    """The part of a reconciliation that concerns the brokers that leave a pool."""

    def __init__(
        self, live: LiveObjects, controller: ControllerClient, events: EventWriter
    ) -> None:
        self._live = live
        self._controller = controller
        self._events = events

    async def give_order(
        self, plan: PoolPlan, brokers: Mapping[int, BrokerHoldings] | None
    ) -> PoolPlan:
        """Give a plan's order; return the plan with what prevents it, if anything does."""
        pool, order = plan.pool, plan.order
        if order is None or brokers is None:
            return plan
        try:
            problem = await self._controller.scale_down(
                pool.namespace,
                pool.spec.cluster_name,
                pool.name,
                leaving=order.leaving,
                staying=order.staying,
            )
        except ControllerRefusedError as error:
            problem = str(error)
        if order.staying:
            message = f"{_are(order.staying)} not drained any more"
            await self._tell(plan, "BrokersStay", message)
        if problem:
            # Counts only while they do not change: each different message is another Event.
            held = f"{describe_holdings(order.leaving, brokers)}; " if order.is_news else ""
            message = f"{held}{problem}; or set replicas back to {plan.replicas}"
            return replace(plan, blocked_reason=REPLICAS_REMAIN, blocked=message)
        fresh = [each for each in order.leaving if not brokers[each].is_drained]
        if fresh:
            message = f"{_are(fresh)} drained first, and removed after that"
            await self._tell(plan, "DrainingBrokers", message)
        return plan

    async def tell_removal(self, plan: PoolPlan) -> None:
        """Report that empty brokers stop, before they do."""
        pool = plan.pool
        live = self._live.get(STATEFUL_SET, pool.namespace, pool.stateful_set)
        present = 0 if live is None else count_replicas(live)
        gone = pool.broker_ids(present)[plan.replicas :]
        if gone:
            message = f"{_are(gone)} removed: other brokers have all that they held"
            await self._tell(plan, "RemovingBrokers", message)

    async def unregister(self, namespace: str, cluster: str, departed: Iterable[int]) -> None:
        """Have the controller unregister the brokers that have left."""
        for broker_id in departed:
            try:
                await self._controller.unregister(namespace, cluster, broker_id)
            except ControllerRefusedError as error:
                # The broker was live a moment ago, or is again: the next pass decides.
                logger.info("broker %d stays registered for now: %s", broker_id, error)

    async def _tell(self, plan: PoolPlan, reason: str, message: str) -> None:
        manifest = self._live.get(BROKER_POOL, plan.pool.namespace, plan.pool.name)
        if manifest is not None:
            await self._events.emit(manifest, reason, message)


def _are(brokers: Sequence[int]) -> str:
    return f"{named_brokers(brokers)} {'is' if len(brokers) == 1 else 'are'}"
