"""Lets the volumes of a pool grow, and remembers why they could not."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import BROKER_POOL, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.plan import PoolPlan
from fairlead_operator.clusters.rolling import BrokerState, RollAction
from fairlead_operator.clusters.status import PoolFacts
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.refusals import is_refusal

REFUSED_AGAIN_S: Final = 60.0
"""How long a refusal of the API server holds before the request is repeated."""


class PoolReconciler:
    """The part of a reconciliation that concerns one pool's volumes."""

    def __init__(self, live: LiveObjects, writer: ApiWriter, events: EventWriter) -> None:
        self._live = live
        self._writer = writer
        self._events = events
        self._refused: dict[tuple[str, str], tuple[float, str]] = {}
        """(uid of the pool, wanted size) → when the API server said no, and how."""

    async def grow(self, plan: PoolPlan) -> None:
        """Enlarge claims, then make the StatefulSet anew around its pods."""
        pool = plan.pool
        refused = self._refused.get((pool.uid, pool.spec.storage.size))
        if refused is not None and time.monotonic() - refused[0] < REFUSED_AGAIN_S:
            return
        self._refused = {key: why for key, why in self._refused.items() if key[0] != pool.uid}
        size = pool.spec.storage.size
        for claim in plan.growth.claims:
            try:
                await self._writer.patch(
                    PERSISTENT_VOLUME_CLAIM,
                    pool.namespace,
                    claim,
                    {"spec": {"resources": {"requests": {"storage": size}}}},
                )
            except ApiError as error:
                if not is_refusal(error):
                    raise
                self._refused[pool.uid, size] = (time.monotonic(), error.message)
                return
        if plan.growth.recreates:
            await self._recreate(plan)

    async def _recreate(self, plan: PoolPlan) -> None:
        pool = plan.pool
        live = self._live.get(STATEFUL_SET, pool.namespace, pool.stateful_set)
        if live is None or "deletionTimestamp" in live["metadata"]:
            return
        await self._writer.delete(STATEFUL_SET, live, keeps_dependents=True)
        manifest = self._live.get(BROKER_POOL, pool.namespace, pool.name)
        if manifest is not None:
            await self._events.emit(
                manifest,
                "StorageGrown",
                f"volumes have {pool.spec.storage.size} now; the StatefulSet is made anew, its "
                "pods go on",
            )

    def facts(self, plan: PoolPlan, brokers: Sequence[BrokerState], roll: RollAction) -> PoolFacts:
        """Return the facts that the pool's status needs."""
        refused = self._refused.get((plan.pool.uid, plan.pool.spec.storage.size))
        if refused is not None and not plan.blocked:
            plan = replace(
                plan,
                blocked_reason="StorageNotExpandable",
                blocked=f"volumes cannot grow to {plan.pool.spec.storage.size}: {refused[1]}",
            )
        return PoolFacts(generation=plan.pool.generation, plan=plan, brokers=brokers, roll=roll)
