"""Enlarges the volumes of a pool and adds more, and remembers refusals."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import BROKER_POOL, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.plan import PoolPlan
from fairlead_operator.clusters.rolling import BrokerState, RollAction
from fairlead_operator.clusters.status import PoolFacts
from fairlead_operator.clusters.volume_use import PodVolumes, failed_volumes
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.refusals import is_refusal
from fairlead_operator.specs.views import PoolView

REFUSED_AGAIN_S: Final = 60.0
"""How long after a refusal of the API server the request is repeated."""

_Wish = tuple[str, ...]
"""Uid of a pool, and what it requests for each volume."""


class PoolReconciler:
    """The part of a reconciliation that concerns one pool's volumes."""

    def __init__(self, live: LiveObjects, writer: ApiWriter, events: EventWriter) -> None:
        self._live = live
        self._writer = writer
        self._events = events
        self._refused: dict[_Wish, tuple[float, str]] = {}
        """When the API server refused a request, and why."""

    async def grow(self, plan: PoolPlan) -> None:
        """Enlarge claims, then delete and create the StatefulSet around its pods."""
        pool = plan.pool
        for claim in plan.volumes.leftovers:
            live = self._live.get(PERSISTENT_VOLUME_CLAIM, pool.namespace, claim)
            if live is not None and "deletionTimestamp" not in live["metadata"]:
                await self._writer.delete(PERSISTENT_VOLUME_CLAIM, live)
        wish = _wish_of(pool)
        refused = self._refused.get(wish)
        if refused is not None and time.monotonic() - refused[0] < REFUSED_AGAIN_S:
            return
        self._refused = {key: why for key, why in self._refused.items() if key[0] != pool.uid}
        for claim, size in plan.volumes.claims.items():
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
                message = f"claim {claim} cannot grow to {size}: {error.message}"
                self._refused[wish] = (time.monotonic(), message)
                return
        if plan.volumes.recreates:
            await self._recreate(plan)

    async def _recreate(self, plan: PoolPlan) -> None:
        pool = plan.pool
        live = self._live.get(STATEFUL_SET, pool.namespace, pool.stateful_set)
        if live is None or "deletionTimestamp" in live["metadata"]:
            return
        await self._writer.delete(STATEFUL_SET, live, keeps_dependents=True)
        manifest = self._live.get(BROKER_POOL, pool.namespace, pool.name)
        if manifest is not None:
            await self._events.emit(manifest, *_news(plan))

    def facts(
        self,
        plan: PoolPlan,
        brokers: Sequence[BrokerState],
        roll: RollAction,
        volumes: Mapping[int, PodVolumes],
    ) -> PoolFacts:
        """Return the facts that the pool's status needs; `volumes` are those of all brokers."""
        refused = self._refused.get(_wish_of(plan.pool))
        if refused is not None and not plan.blocked:
            plan = replace(plan, blocked_reason="StorageNotExpandable", blocked=refused[1])
        ids = {each.broker_id for each in brokers}
        own = {each: said for each, said in volumes.items() if each in ids}
        return PoolFacts(
            generation=plan.pool.generation,
            plan=plan,
            brokers=brokers,
            roll=roll,
            failed_volumes=failed_volumes(own),
            drained_volumes={each: said.drained for each, said in own.items() if said.drained},
        )


def _wish_of(pool: PoolView) -> _Wish:
    return (pool.uid, *(f"{each.id}:{each.size}" for each in pool.spec.storage.each_volume))


def _news(plan: PoolPlan) -> tuple[str, str]:
    """Return reason and message of the Event for a StatefulSet that is created again."""
    added, dropped = plan.volumes.added, plan.volumes.dropped
    if added or dropped:
        bound = {each.volume for each in plan.volumes.held if each.bound}
        taken_back = [each for each in dropped if each not in bound]
        emptied = [each for each in dropped if each in bound]
        changes = [
            f"{_named(ids)} {what}"
            for ids, what in (
                (added, "added"),
                (taken_back, "removed before any broker had it"),
                (emptied, "drained and removed, with claims that stay"),
            )
            if ids
        ]
        return (
            "VolumesChanged",
            f"{', '.join(changes)}: the operator creates the StatefulSet again, and its brokers "
            "restart one by one with the new list of volumes",
        )
    sizes = ", ".join(each.size for each in plan.pool.spec.storage.each_volume)
    return "StorageGrown", (
        f"volumes have {sizes} now; the operator creates the StatefulSet again, and its pods keep "
        "running"
    )


def _named(volumes: Sequence[int]) -> str:
    return f"volume{'s' if len(volumes) > 1 else ''} {', '.join(map(str, volumes))}"
