"""Collects the facts for a cluster's hibernation, has it decided, and reports each step once."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead_kube.client import KubeClient
from fairlead_kube.kinds import FAILOVER_DRILL, POD, STATEFUL_SET
from fairlead_model.resources.hibernation import HIBERNATED, WAKING
from fairlead_operator.clusters.broker_roller import BrokerRoller
from fairlead_operator.clusters.hibernation import (
    Hibernation,
    HibernationPhase,
    HibernationSight,
    decide_hibernation,
)
from fairlead_operator.conditions import find_condition, is_asleep
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import LiveObjects, Manifest
from fairlead_operator.rebalances.observer import find_drill
from fairlead_operator.specs.stateful_set import sleeps
from fairlead_operator.specs.views import ClusterView, PoolView


class HibernationWatch:
    """The part of a reconciliation that concerns a cluster's hibernation."""

    def __init__(
        self, live: LiveObjects, client: KubeClient, roller: BrokerRoller, events: EventWriter
    ) -> None:
        self._live = live
        self._client = client
        self._roller = roller
        self._events = events

    async def decide(
        self,
        manifest: Manifest,
        cluster: ClusterView,
        pools: Sequence[PoolView],
        controller: Mapping[str, Any] | None,
    ) -> Hibernation:
        """Return the present decision about the cluster's hibernation."""
        key = (cluster.namespace, cluster.name)
        stateful_sets = self._live.of_cluster(STATEFUL_SET, key)
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        before = find_condition(conditions, HIBERNATED) or {}
        is_begun = any(map(sleeps, stateful_sets))
        if not (cluster.spec.hibernated or is_begun or before):
            return Hibernation()
        states = await self._roller.observe(key, pools, controller)
        drill = ""
        if cluster.spec.hibernated and not is_begun:
            # The API server is asked, because no informer of this reconciler follows drills.
            listed = (await self._client.list(FAILOVER_DRILL, cluster.namespace)).items
            drill = find_drill(cluster.name, listed)
        hibernation = decide_hibernation(
            HibernationSight(
                is_wanted=cluster.spec.hibernated,
                is_begun=is_begun,
                was_asleep=is_asleep(manifest),
                is_paused=cluster.is_paused,
                paused_pools=[pool.name for pool in pools if pool.spec.paused],
                pods=[pod["metadata"]["name"] for pod in self._live.of_cluster(POD, key)],
                brokers=[broker for brokers in states.values() for broker in brokers],
                controller=controller,
                drill=drill,
            )
        )
        await self._tell(manifest, before, hibernation)
        return hibernation

    async def _tell(
        self, manifest: Manifest, before: Mapping[str, Any], hibernation: Hibernation
    ) -> None:
        """Emit an Event for a step that the condition does not show yet."""
        if before.get("reason", "") == hibernation.reason:
            return
        match hibernation.phase:
            case HibernationPhase.WAITING:
                await self._events.emit(manifest, "HibernationWaits", hibernation.message)
            case HibernationPhase.STOPPING:
                await self._events.emit(manifest, "FallingAsleep", hibernation.message)
            case HibernationPhase.ASLEEP:
                await self._events.emit(manifest, HIBERNATED, hibernation.message)
            case HibernationPhase.WAKING:
                await self._events.emit(manifest, WAKING, hibernation.message)
            case HibernationPhase.AWAKE if is_asleep(manifest):
                await self._events.emit(manifest, "Awake", "all brokers serve again")
            case _:
                return
