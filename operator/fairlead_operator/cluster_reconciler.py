"""One pass over a LogCluster and its BrokerPools: look, plan, do, say.

Dull on purpose: what to do is decided in `cluster_plan`, `rolling` and `pool_decisions`, what to
say in `cluster_status`. A pass may end at any point and begin anew.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from fairlead_controller.kube.kinds import (
    BROKER_POOL,
    LOG_CLUSTER,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    STATEFUL_SET,
)
from fairlead_operator.api_writer import ApiWriter
from fairlead_operator.broker_roller import BrokerRoller
from fairlead_operator.cluster_plan import (
    ClusterObserved,
    ClusterPlan,
    LiveKey,
    PoolPlan,
    plan_cluster,
)
from fairlead_operator.cluster_status import CLUSTER_NOT_FOUND, REFUSED, ClusterFacts
from fairlead_operator.controller_client import (
    ControllerClient,
    ControllerRefusedError,
    ControllerUnavailableError,
    ReignState,
)
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import (
    CHILD_KINDS,
    ClusterKey,
    LiveObjects,
    Manifest,
    is_left_alone,
)
from fairlead_operator.pool_reconciler import PoolReconciler
from fairlead_operator.refusals import PartKey, Refusals
from fairlead_operator.resources import ManifestError
from fairlead_operator.rolling import DeletePod, Drain, NothingToRoll, RollAction, Undrain, Wait
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.names import secret_name
from fairlead_operator.specs.session_secret import (
    SECRET_BYTES,
    build_session_secret,
    is_leftover,
)
from fairlead_operator.specs.views import ClusterView, PoolView
from fairlead_operator.status_writer import StatusWriter

SETTLED_LOOK_S: Final = 3.0
BUSY_LOOK_S: Final = 1.0
ROLLING_LOOK_S: Final = 0.2
"""After leaders were sent away or let back: they move within milliseconds."""
REFUSED_LOOK_S: Final = 5.0
LEFT_BY_ANOTHER: Final = (
    "{} {} is that of an earlier LogCluster of this name: Kubernetes deletes it, and a new one is "
    "made; delete it if it stays"
)


@dataclass(frozen=True, slots=True)
class ControllerView:
    """What the controller says of a cluster; `status` is None where it cannot be asked."""

    status: Mapping[str, Any] | None
    reign: ReignState | None
    pod: str
    problem: str = ""


class ClusterReconciler:
    """Reconciles clusters; never two passes over one cluster at once."""

    def __init__(
        self,
        live: LiveObjects,
        writer: ApiWriter,
        *,
        controller: ControllerClient,
        roller: BrokerRoller,
        events: EventWriter,
        settings: OperatorSettings,
    ) -> None:
        self._live = live
        self._writer = writer
        self._controller = controller
        self._roller = roller
        self._events = events
        self._settings = settings
        self._statuses = StatusWriter(writer, events)
        self._pools = PoolReconciler(live, writer, events)
        self._secrets: set[str] = set()
        """Uids of LogClusters whose session Secret has been seen."""

    async def reconcile(self, key: ClusterKey) -> float | None:
        """Take the next steps; give when to look again, None if only a change matters.

        ApiError, ApiUnavailableError and ControllerError end the pass, which has to be repeated.
        """
        manifest = self._live.get(LOG_CLUSTER, *key)
        pools = sorted(self._live.of_cluster(BROKER_POOL, key), key=_age)
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            self._roller.forget(key)
            message = f"there is no LogCluster {key[1]} in this namespace: make it, or delete this"
            is_quiet = True
            for pool in pools:
                is_quiet &= await self._statuses.write_pool_problem(
                    pool, CLUSTER_NOT_FOUND, message
                )
            return None if is_quiet else BUSY_LOOK_S
        if is_left_alone(manifest):
            return None
        try:
            cluster = ClusterView.from_manifest(manifest)
        except ManifestError as error:
            facts = ClusterFacts(
                name=key[1],
                namespace=key[0],
                generation=int(manifest["metadata"].get("generation", 1)),
                problem=("InvalidSpec", str(error)),
            )
            is_quiet = await self._statuses.write_cluster(manifest, facts)
            return None if is_quiet else BUSY_LOOK_S
        return await self._reconcile_valid(key, manifest, cluster, pools)

    async def _reconcile_valid(
        self, key: ClusterKey, manifest: Manifest, cluster: ClusterView, pools: list[Manifest]
    ) -> float:
        views, is_quiet = await self._read_pools(pools)
        view = await self._ask_controller(key)
        plan = plan_cluster(self._observe(cluster, views, view.status), self._settings)
        is_paused = cluster.spec.pause_reconciliation
        refusals = Refusals()
        if not is_paused:
            await self._carry_out(cluster, plan, refusals)
        states = await self._roller.observe(key, views, view.status)
        roll: RollAction = Wait("Paused", "spec.pauseReconciliation of the LogCluster is on")
        if not is_paused:
            if view.status is not None:
                await self._roller.release(key, view.status)
            roll = Wait(REFUSED, "the API server refuses to let a broker's pod be deleted")
            with refusals.noting(POD.kind, "of a broker that has to restart"):
                roll = await self._roller.roll(key, views, states, view.status)
            await self._tell_roll(manifest, roll)
        facts = ClusterFacts(
            name=key[1],
            namespace=key[0],
            generation=cluster.generation,
            refused=refusals.text,
            is_paused=is_paused,
            wanted=sum(pool.replicas for pool in plan.pools),
            brokers=[broker for brokers in states.values() for broker in brokers],
            controller=view.status,
            controller_problem=view.problem,
            controller_pod=view.pod,
            store_available=None if view.reign is None else view.reign.store_available,
            store_problem="" if view.reign is None else view.reign.problem,
            roll=roll,
        )
        by_name = {pool["metadata"]["name"]: pool for pool in pools}
        is_quiet &= await self._statuses.write_cluster(manifest, facts)
        for pool_plan in plan.pools:
            name = pool_plan.pool.name
            is_quiet &= await self._statuses.write_pool(
                by_name[name],
                self._pools.facts(
                    _with_refusal(pool_plan, refusals.by_part), states.get(name, ()), roll
                ),
            )
        return _pause_s(
            roll,
            is_quiet=is_quiet,
            is_refused=bool(refusals.by_part),
            is_converged=plan.is_converged,
        )

    async def _read_pools(self, pools: list[Manifest]) -> tuple[list[PoolView], bool]:
        """Read the pools that are not being deleted; one that is wrong is told so, and left.

        The second value is whether all of those have been told by now.
        """
        views, is_quiet = [], True
        for pool in pools:
            if "deletionTimestamp" in pool["metadata"] or is_left_alone(pool):
                continue
            try:
                views.append(PoolView.from_manifest(pool))
            except ManifestError as error:
                is_quiet &= await self._statuses.write_pool_problem(pool, "InvalidSpec", str(error))
        return views, is_quiet

    async def _ask_controller(self, key: ClusterKey) -> ControllerView:
        try:
            state = await self._controller.state()
            reign = state.clusters.get("/".join(key))
            pod = self._settings.pod_name
            if reign is None:
                return ControllerView(None, None, pod, "the controller has not begun with it yet")
            status = await self._controller.cluster_status(*key)
        except (ControllerUnavailableError, ControllerRefusedError) as error:
            return ControllerView(None, None, self._settings.pod_name, str(error))
        return ControllerView(status, reign, pod, reign.problem)

    def _observe(
        self,
        cluster: ClusterView,
        pools: list[PoolView],
        controller: Mapping[str, Any] | None,
    ) -> ClusterObserved:
        key = (cluster.namespace, cluster.name)
        live: dict[LiveKey, Manifest] = {
            (kind.kind, manifest["metadata"]["name"]): manifest
            for kind in CHILD_KINDS
            for manifest in self._live.of_cluster(kind, key)
        }
        claims = self._live.of_cluster(PERSISTENT_VOLUME_CLAIM, key)
        return ClusterObserved(
            cluster=cluster,
            pools=pools,
            live=live,
            claim_sizes={
                claim["metadata"]["name"]: claim["spec"]["resources"]["requests"]["storage"]
                for claim in claims
            },
            replicas_by_broker=None
            if controller is None
            else {int(entry["id"]): int(entry["replicas"]) for entry in controller["brokers"]},
        )

    async def _carry_out(self, cluster: ClusterView, plan: ClusterPlan, refusals: Refusals) -> None:
        """Take the steps of a plan; what the API server refuses holds up no other step."""
        has_secret, secret = False, (SECRET.kind, secret_name(cluster.name))
        with refusals.noting(*secret):
            has_secret = await self._ensure_secret(cluster)
            if not has_secret:
                refusals.by_part[secret] = LEFT_BY_ANOTHER.format(*secret)
        for child in sorted(plan.applies, key=lambda each: each.kind is STATEFUL_SET):
            if child.kind is STATEFUL_SET and not has_secret:
                continue  # its pods would come up with the secret of a cluster that is gone
            with refusals.noting(*child.key):
                await self._writer.apply(child)
        for child in plan.deletes:
            with refusals.noting(*child.key):
                await self._writer.delete(child.kind, child.manifest)
        for pool_plan in plan.pools:
            with refusals.noting(STATEFUL_SET.kind, pool_plan.pool.stateful_set):
                await self._pools.grow(pool_plan)

    async def _ensure_secret(self, cluster: ClusterView) -> bool:
        """Make the session Secret where there is none; it is never written over.

        False while there is still that of an earlier LogCluster of this name, which Kubernetes is
        about to delete: another is made then.
        """
        if cluster.uid in self._secrets:
            return True
        manifest = build_session_secret(cluster, secrets.token_bytes(SECRET_BYTES))
        live = await self._writer.find(SECRET, manifest)
        if live is not None and is_leftover(live, cluster):
            return False
        if live is None:
            await self._writer.create(SECRET, manifest)
        self._secrets.add(cluster.uid)
        return True

    async def _tell_roll(self, manifest: Manifest, action: RollAction) -> None:
        match action:
            case Drain():
                await self._events.emit(
                    manifest,
                    "MovingLeaders",
                    f"leaders move off broker {action.broker_id}, which has to restart",
                )
            case DeletePod():
                await self._events.emit(
                    manifest,
                    "RestartingBroker",
                    f"broker {action.broker_id} (pod {action.pod}) restarts: {action.message}",
                )
            case Undrain():
                await self._events.emit(
                    manifest, "BrokerRestarted", f"broker {action.broker_id} has restarted"
                )
            case _:
                return


def _with_refusal(plan: PoolPlan, refused: Mapping[PartKey, str]) -> PoolPlan:
    """Say of a pool's plan that the API server refuses a part of it, if it does."""
    parts = [(STATEFUL_SET.kind, plan.pool.stateful_set), *(child.key for child in plan.children)]
    said = next((refused[part] for part in parts if part in refused), "")
    if not said or plan.blocked:
        return plan
    return replace(plan, blocked_reason=REFUSED, blocked=said)


def _pause_s(roll: RollAction, *, is_quiet: bool, is_refused: bool, is_converged: bool) -> float:
    """Give when to look again; `is_quiet` says that all statuses are written."""
    match roll:
        case Drain() | Undrain():
            return ROLLING_LOOK_S
        case _ if not is_quiet:
            return BUSY_LOOK_S
        case Wait(reason="Paused"):
            return SETTLED_LOOK_S
        case NothingToRoll() | Wait(reason="Refused") if is_refused:
            return REFUSED_LOOK_S
        case NothingToRoll() if is_converged:
            return SETTLED_LOOK_S
        case _:
            return BUSY_LOOK_S


def _age(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["creationTimestamp"], manifest["metadata"]["name"]
