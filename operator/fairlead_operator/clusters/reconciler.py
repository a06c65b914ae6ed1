"""One pass over a LogCluster and its BrokerPools: observe, plan, act, report.

It decides nothing itself: `plan`, `rolling` and `pool_decisions` decide what to do, `status` what
to report. A pass may end at any point and start again.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fairlead_kube.kinds import (
    BROKER_POOL,
    LOG_CLUSTER,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    SECRET,
    STATEFUL_SET,
)
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.broker_image import upgrade_hint
from fairlead_operator.clusters.broker_roller import BrokerRoller
from fairlead_operator.clusters.broker_states import is_pod_ready, is_settled, registered_pods
from fairlead_operator.clusters.disruptions import DisruptionSight, decide_disruptions, read_budget
from fairlead_operator.clusters.driver_accounts import DriverAccounts
from fairlead_operator.clusters.fencing import FenceReport, FenceTeller
from fairlead_operator.clusters.hibernation import Hibernation
from fairlead_operator.clusters.hibernation_watch import HibernationWatch
from fairlead_operator.clusters.maintenance_windows import RestartHold, find_hold
from fairlead_operator.clusters.plan import (
    ClusterObserved,
    ClusterPlan,
    LiveKey,
    PoolPlan,
    plan_cluster,
)
from fairlead_operator.clusters.pool_reconciler import PoolReconciler
from fairlead_operator.clusters.pool_scaler import PoolScaler
from fairlead_operator.clusters.rolling import (
    BrokerState,
    DeletePod,
    Drain,
    NothingToRoll,
    RollAction,
    Undrain,
    Wait,
)
from fairlead_operator.clusters.scale_down import read_holdings
from fairlead_operator.clusters.session_secrets import SessionSecrets
from fairlead_operator.clusters.settings_teller import SettingsReport, SettingsTeller
from fairlead_operator.clusters.status import (
    CLUSTER_NOT_FOUND,
    REFUSED,
    WAITING_FOR_WINDOW,
    ClusterFacts,
    describe_roll,
)
from fairlead_operator.clusters.status_writer import StatusWriter
from fairlead_operator.clusters.tls.broker_trust import BrokerTrust
from fairlead_operator.clusters.tls.certificate_keeper import (
    CertificateKeeper,
    CertificateReport,
    CertificateSight,
    HeldSight,
)
from fairlead_operator.clusters.volume_use import (
    PodVolumes,
    failed_volumes,
    find_use,
    note_unsaid,
)
from fairlead_operator.clusters.volume_watch import VolumeWatch
from fairlead_operator.conditions import find_condition
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
from fairlead_operator.refusals import PartKey, Refusals
from fairlead_operator.resources import ManifestError
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.listener_security import plaintext_problem
from fairlead_operator.specs.live_settings import names_in_pools
from fairlead_operator.specs.names import secret_name
from fairlead_operator.specs.views import ClusterView, PoolView, is_cluster_paused, is_going

logger = logging.getLogger(__name__)

SETTLED_LOOK_S: Final = 3.0
BUSY_LOOK_S: Final = 1.0
ROLLING_LOOK_S: Final = 0.2
"""When to look again after draining began or ended: leaders move within milliseconds."""
REFUSED_LOOK_S: Final = 5.0
LEFT_BY_ANOTHER: Final = (
    "{} {} is that of an earlier LogCluster of this name: Kubernetes deletes it, and a new one is "
    "made; delete it if it stays"
)


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The controller's view of a cluster; `status` is None if it cannot be reached."""

    status: Mapping[str, Any] | None
    reign: ReignState | None
    pod: str
    problem: str = ""


class ClusterReconciler:
    """Reconciles clusters; never runs two passes over one cluster at once."""

    def __init__(
        self,
        live: LiveObjects,
        writer: ApiWriter,
        *,
        controller: ControllerClient,
        roller: BrokerRoller,
        hibernations: HibernationWatch,
        events: EventWriter,
        settings: OperatorSettings,
    ) -> None:
        self._live = live
        self._writer = writer
        self._controller = controller
        self._roller = roller
        self._hibernations = hibernations
        self._events = events
        self._settings = settings
        self._statuses = StatusWriter(live, writer, events)
        self._pools = PoolReconciler(live, writer, events)
        self._volumes = VolumeWatch(live)
        self._scaler = PoolScaler(live, controller, events)
        self._settings_teller = SettingsTeller(controller, events)
        self._fences = FenceTeller(controller, events)
        self._certificates = CertificateKeeper(writer, BrokerTrust())
        self._secrets = SessionSecrets(live, writer, events)
        self._accounts = DriverAccounts(writer, settings.spark_driver_role)
        self._whole_since: dict[ClusterKey, float] = {}
        """Since when nothing has been missing in a cluster; lost at a restart."""
        self._interruptions: dict[str, int] = {}
        """By the uid of a LogCluster: how many interruptions of its reign have been reported."""

    async def reconcile(self, key: ClusterKey) -> float | None:
        """Take the next steps; return when to look again, None if only a change matters.

        ApiError, ApiUnavailableError and ControllerError end the pass, which has to be repeated.
        """
        manifest = self._live.get(LOG_CLUSTER, *key)
        pools = sorted(self._live.of_cluster(BROKER_POOL, key), key=_age)
        if manifest is None or is_going(manifest):
            self._roller.forget(key)
            self._secrets.forget(key)
            self._certificates.forget(key)
            self._whole_since.pop(key, None)
            message = (
                f"there is no LogCluster {key[1]} in this namespace: create it, or delete this pool"
            )
            is_quiet = True
            for pool in pools:
                if is_left_alone(pool):
                    continue
                is_quiet &= await self._statuses.write_pool_problem(
                    pool, CLUSTER_NOT_FOUND, message
                )
            return None if is_quiet else BUSY_LOOK_S
        if is_left_alone(manifest):
            return None
        try:
            cluster = ClusterView.from_manifest(manifest)
        except ManifestError as error:
            return await self._hold(manifest, ("InvalidSpec", str(error)))
        if self._settings.refuses_plaintext and (problem := plaintext_problem(cluster)):
            return await self._hold(manifest, ("PlaintextRefused", problem), cluster)
        return await self._reconcile_valid(key, manifest, cluster, pools)

    async def _hold(
        self, manifest: Manifest, problem: tuple[str, str], cluster: ClusterView | None = None
    ) -> float | None:
        """Report why a spec is not accepted; `cluster` is that spec if it can be read.

        The running brokers go on serving, so two things are still done for them: certificates are
        renewed before they expire, and the number of brokers that may be evicted is kept up to
        date.
        """
        metadata = manifest["metadata"]
        key = (metadata["namespace"], metadata["name"])
        facts = ClusterFacts(
            name=key[1],
            namespace=key[0],
            generation=int(metadata.get("generation", 1)),
            problem=problem,
        )
        is_quiet = await self._statuses.write_cluster(manifest, facts)
        pods = self._live.of_cluster(POD, key)
        budget = self._live.get(POD_DISRUPTION_BUDGET, *key)
        refusals = Refusals()
        if not is_cluster_paused(manifest):
            if budget is not None:
                with refusals.noting(POD_DISRUPTION_BUDGET.kind, key[1]):
                    await self._hold_budget(key, pods, budget)
            held = self._live.of_cluster(SECRET, key)
            sight = HeldSight(log_cluster=manifest, secrets=held, pods=pods, cluster=cluster)
            await self._certificates.renew(sight, refusals)
        if refusals.text:
            logger.warning("%s/%s: %s", *key, refusals.text)
        if not is_quiet:
            return BUSY_LOOK_S
        return SETTLED_LOOK_S if pods or budget is not None else None

    async def _hold_budget(
        self, key: ClusterKey, pods: Sequence[Manifest], budget: Manifest
    ) -> None:
        """Adjust a budget to what the cluster can spare."""
        view = await self._ask_controller(key)
        allowed = self._decide_disruptions(key, pods, view.status, budget)
        if read_budget(budget) != allowed:
            patch = {"spec": {"maxUnavailable": allowed}}
            await self._writer.patch(POD_DISRUPTION_BUDGET, *key, patch)

    async def _reconcile_valid(
        self, key: ClusterKey, manifest: Manifest, cluster: ClusterView, pools: list[Manifest]
    ) -> float:
        views, is_quiet = await self._read_pools(pools)
        view = await self._ask_controller(key)
        if view.reign is not None:
            await self._tell_interruption(manifest, view.reign)
        hibernation = await self._hibernations.decide(manifest, cluster, views, view.status)
        volumes = await self._volumes.look(key, views)
        seen = self._observe(cluster, views, view.status, volumes, sleeps=hibernation.sleeps)
        observed = _with_pools(seen, pools)
        plan = plan_cluster(observed, self._settings)
        is_paused = cluster.is_paused
        refusals, certificates = Refusals(), CertificateReport()
        if not is_paused:
            pods = self._live.of_cluster(POD, key)
            sight = CertificateSight(cluster=cluster, plan=plan, live=observed.live, pods=pods)
            certificates = await self._certify(manifest, sight, refusals)
            await self._carry_out(cluster, plan, refusals, certificates.blocked)
            plan = await self._scale_down(plan, observed)
        states, said = await self._observe_brokers(key, views, view.status, volumes)
        roll: RollAction = Wait("Paused", "the LogCluster is paused")
        hold = _hold_now(cluster)
        config, fences = SettingsReport(), FenceReport()
        if not is_paused:
            fences = await self._fence(manifest, cluster, view.status)
            roll = await self._roll(
                key,
                manifest,
                views,
                states=states,
                controller=view.status,
                refusals=refusals,
                hold="" if hold is None else hold.message,
                hibernation=hibernation,
            )
            is_whole = len(views) == len(pools) and not refusals.by_part
            config = await self._tell_settings(
                manifest, plan, states, view.status, is_whole=is_whole
            )
        facts = replace(
            _facts_of(cluster, view),
            failed_volumes=failed_volumes(said),
            refused=refusals.text,
            is_secured=cluster.spec.has_certificates and not is_paused,
            certificate_problems=certificates.problems,
            rotation=certificates.rotation,
            is_paused=is_paused,
            hibernation=hibernation,
            is_deletion_held="deletionTimestamp" in manifest["metadata"],
            wanted=sum(pool.replicas for pool in plan.pools),
            brokers=[broker for brokers in states.values() for broker in brokers],
            leaving=[] if is_paused else [each for pool in plan.pools for each in pool.leaving],
            roll=roll,
            fences=fences,
            next_window="" if hold is None else hold.until,
            is_config_in_force=config.is_in_force,
            config_problem=config.problem,
            image="" if is_paused else plan.image,
            upgrade_hint=upgrade_hint(cluster, plan.image, self._settings),
        )
        is_quiet &= await self._statuses.write_cluster(manifest, facts)
        told = [_with_refusal(each, refusals.by_part) for each in plan.pools]
        is_quiet &= await self._write_pools(pools, told, states, roll, said)
        return _pause_s(
            roll,
            is_quiet=is_quiet,
            is_refused=bool(refusals.by_part or config.problem),
            is_converged=plan.is_converged and not config.is_new,
        )

    async def _certify(
        self, manifest: Manifest, sight: CertificateSight, refusals: Refusals
    ) -> CertificateReport:
        """Look after certificates; report an authority whose Secret was deleted."""
        report = await self._certificates.look_after(sight, refusals)
        if report.news is not None:
            await self._events.emit(manifest, *report.news, "Warning")
        return report

    async def _observe_brokers(
        self,
        key: ClusterKey,
        pools: Sequence[PoolView],
        controller: Mapping[str, Any] | None,
        volumes: Mapping[str, PodVolumes],
    ) -> tuple[dict[str, list[BrokerState]], dict[int, PodVolumes]]:
        """Return the brokers of each pool, and by broker what `volumes` has by pod."""
        states = await self._roller.observe(key, pools, controller)
        for pool in pools:
            live = self._live.get(STATEFUL_SET, pool.namespace, pool.stateful_set)
            states[pool.name] = note_unsaid(states[pool.name], volumes, live)
        everyone = [broker for brokers in states.values() for broker in brokers]
        said = {each.broker_id: volumes[each.pod] for each in everyone if each.pod in volumes}
        return states, said

    async def _fence(
        self, manifest: Manifest, cluster: ClusterView, controller: Mapping[str, Any] | None
    ) -> FenceReport:
        """Fence the brokers that the LogCluster names, and no others."""
        if controller is None:
            return FenceReport()
        return await self._fences.tell(manifest, cluster.spec.fenced_brokers, controller)

    async def _roll(
        self,
        key: ClusterKey,
        manifest: Manifest,
        pools: Sequence[PoolView],
        *,
        states: Mapping[str, Sequence[BrokerState]],
        controller: Mapping[str, Any] | None,
        refusals: Refusals,
        hold: str,
        hibernation: Hibernation,
    ) -> RollAction:
        """Take the next step of a rolling restart, if there is one, and report it."""
        if hibernation.sleeps:
            return NothingToRoll()  # brokers start again with the present template
        if controller is not None:
            await self._roller.release(key, controller)
        roll: RollAction = Wait(REFUSED, "the API server refuses to let a broker's pod be deleted")
        with refusals.noting(POD.kind, "of a broker that has to restart"):
            roll = await self._roller.roll(
                key, pools, _that_may_roll(pools, states, hibernation), controller, hold=hold
            )
        await self._tell_roll(manifest, roll)
        return roll

    async def _tell_settings(
        self,
        manifest: Manifest,
        plan: ClusterPlan,
        states: Mapping[str, Sequence[BrokerState]],
        controller: Mapping[str, Any] | None,
        *,
        is_whole: bool,
    ) -> SettingsReport:
        """Give brokers the settings that change while they run.

        `is_whole`: the plan has all pools, and the API server accepted all of it.
        """
        if controller is None:
            return SettingsReport()
        stateful_sets = (
            self._live.get(STATEFUL_SET, each.pool.namespace, each.pool.stateful_set)
            for each in plan.pools
        )
        is_rolled = (
            plan.is_converged
            and not plan.is_on_hold
            and all(map(is_settled, stateful_sets))
            and not any(broker.is_outdated for pool in states.values() for broker in pool)
        )
        return await self._settings_teller.tell(
            manifest, plan, controller["declaredConfigs"], is_rolled=is_whole and is_rolled
        )

    async def _write_pools(
        self,
        pools: Sequence[Manifest],
        plans: Sequence[PoolPlan],
        states: Mapping[str, Sequence[BrokerState]],
        roll: RollAction,
        said: Mapping[int, PodVolumes],
    ) -> bool:
        """Write the pools' statuses; tell whether all are up to date now."""
        manifests = {each["metadata"]["name"]: each for each in pools}
        is_quiet = True
        for plan in plans:
            name = plan.pool.name
            facts = self._pools.facts(plan, states.get(name, ()), roll, said)
            is_quiet &= await self._statuses.write_pool(manifests[name], facts)
        return is_quiet

    async def _read_pools(self, pools: list[Manifest]) -> tuple[list[PoolView], bool]:
        """Read the pools that are not being deleted; report problems of the others, and skip them.

        The second value is whether all problems have been reported by now.
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
        except (ControllerUnavailableError, ControllerRefusedError) as error:
            return ControllerView(None, None, self._settings.pod_name, str(error))
        try:
            status = await self._controller.cluster_status(*key)
        except (ControllerUnavailableError, ControllerRefusedError) as error:
            # What the reign has reported of its tables is still true.
            return ControllerView(None, reign if reign.is_rolled_back else None, pod, str(error))
        return ControllerView(status, reign, pod, reign.problem)

    def _observe(
        self,
        cluster: ClusterView,
        pools: list[PoolView],
        controller: Mapping[str, Any] | None,
        volumes: Mapping[str, PodVolumes],
        *,
        sleeps: bool,
    ) -> ClusterObserved:
        key = (cluster.namespace, cluster.name)
        live: dict[LiveKey, Manifest] = {
            (kind.kind, manifest["metadata"]["name"]): manifest
            for kind in CHILD_KINDS
            for manifest in self._live.of_cluster(kind, key)
        }
        claims = self._live.of_cluster(PERSISTENT_VOLUME_CLAIM, key)
        pods = self._live.of_cluster(POD, key)
        return ClusterObserved(
            cluster=cluster,
            pools=pools,
            live=live,
            claim_sizes={
                claim["metadata"]["name"]: claim["spec"]["resources"]["requests"]["storage"]
                for claim in claims
            },
            bound_claims=[
                claim["metadata"]["name"] for claim in claims if claim["spec"].get("volumeName")
            ],
            claim_use=find_use(volumes, [claim["metadata"]["name"] for claim in claims]),
            brokers=read_holdings(controller),
            pods=[pod["metadata"]["name"] for pod in pods],
            registered=registered_pods(controller),
            sleeps=sleeps,
            max_unavailable=self._decide_disruptions(
                key, pods, controller, live.get((POD_DISRUPTION_BUDGET.kind, cluster.name))
            ),
        )

    def _decide_disruptions(
        self,
        key: ClusterKey,
        pods: Sequence[Manifest],
        controller: Mapping[str, Any] | None,
        budget: Manifest | None,
    ) -> int:
        """Return how many brokers may be evicted now; remember since when nothing is missing."""
        counts = None if controller is None else controller["partitions"]
        sight = DisruptionSight(
            under_replicated=None if counts is None else counts["underReplicated"],
            offline=None if counts is None else counts["offline"],
            brokers_away=sum(not is_pod_ready(pod) for pod in pods),
        )
        now = time.monotonic()
        if sight.is_whole:
            self._whole_since.setdefault(key, now)
        else:
            self._whole_since.pop(key, None)
        calm_s = now - self._whole_since.get(key, now)
        return decide_disruptions(sight, calm_s=calm_s, present=read_budget(budget))

    async def _carry_out(
        self,
        cluster: ClusterView,
        plan: ClusterPlan,
        refusals: Refusals,
        uncertified: Mapping[str, str],
    ) -> None:
        """Take the steps of a plan; a step that the API server refuses stops no other step.

        `uncertified` are pools whose brokers cannot start, because certificates are missing.
        """
        waiting = {
            each.pool.stateful_set
            for each in plan.pools
            if each.pool.name in uncertified and not each.is_asleep
        }
        has_secret, secret = False, (SECRET.kind, secret_name(cluster.name))
        with refusals.noting(*secret):
            has_secret = await self._secrets.ensure(cluster)
            if not has_secret:
                refusals.by_part[secret] = LEFT_BY_ANOTHER.format(*secret)
        for pool_plan in plan.pools:
            await self._scaler.tell_removal(pool_plan)
        for child in sorted(plan.applies, key=lambda each: each.kind is STATEFUL_SET):
            if child.kind is STATEFUL_SET and not has_secret:
                continue  # its pods would start with the secret of a deleted cluster
            if child.kind is STATEFUL_SET and child.key[1] in waiting:
                continue  # its pods would wait for a Secret, or end
            with refusals.noting(*child.key):
                await self._writer.apply(child)
        for child in plan.deletes:
            with refusals.noting(*child.key):
                await self._writer.delete(child.kind, child.manifest)
        for pool_plan in plan.pools:
            with refusals.noting(STATEFUL_SET.kind, pool_plan.pool.stateful_set):
                await self._pools.grow(pool_plan)
        await self._accounts.look_after(cluster, refusals)

    async def _scale_down(self, plan: ClusterPlan, observed: ClusterObserved) -> ClusterPlan:
        """Tell the controller which brokers leave or have left; return the plan with obstacles."""
        cluster = observed.cluster
        departed = [*plan.departed, *(each for pool in plan.pools for each in pool.departed)]
        await self._scaler.unregister(cluster.namespace, cluster.name, departed)
        pools = [await self._scaler.give_order(pool, observed.brokers) for pool in plan.pools]
        return replace(plan, pools=tuple(pools))

    async def _tell_interruption(self, manifest: Manifest, reign: ReignState) -> None:
        """Report each interruption by somebody who changed the tables, once."""
        uid = manifest["metadata"]["uid"]
        if reign.interruptions > self._interruptions.get(uid, 0):
            await self._events.emit(
                manifest,
                "TablesTouched",
                f"{reign.last_interruption}; the controller of this cluster has read its metadata "
                "again: do not change its ClusterState and PartitionTables",
                "Warning",
            )
        self._interruptions[uid] = reign.interruptions

    async def _tell_roll(self, manifest: Manifest, action: RollAction) -> None:
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        progress = find_condition(conditions, "Progressing") or {}
        was_told = progress.get("reason") == WAITING_FOR_WINDOW
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
            case Undrain(is_put_off=True):
                await self._events.emit(manifest, "RestartPutOff", describe_roll(action))
            case Undrain():
                await self._events.emit(
                    manifest, "BrokerRestarted", f"broker {action.broker_id} has restarted"
                )
            case Wait(reason="OutsideWindow") if not was_told:
                await self._events.emit(manifest, "RestartsWait", describe_roll(action))
            case _:
                return


def _hold_now(cluster: ClusterView) -> RestartHold | None:
    """Return why no broker in service may restart now."""
    windows, allowed = cluster.spec.maintenance_windows, cluster.restarts_allowed_until
    return find_hold(windows, allowed, time.time_ns() // 1_000_000)


def _facts_of(cluster: ClusterView, view: ControllerView) -> ClusterFacts:
    """Return what is known of a cluster before any step."""
    return ClusterFacts(
        name=cluster.name,
        namespace=cluster.namespace,
        generation=cluster.generation,
        controller=view.status,
        controller_problem=view.problem,
        controller_pod=view.pod,
        store_available=None if view.reign is None else view.reign.store_available,
        store_problem="" if view.reign is None else view.reign.problem,
        store_rolled_back=view.reign is not None and view.reign.is_rolled_back,
        bootstrap_port=cluster.spec.inside_listeners[0].port,
    )


def _that_may_roll(
    pools: Sequence[PoolView],
    states: Mapping[str, Sequence[BrokerState]],
    hibernation: Hibernation,
) -> dict[str, Sequence[BrokerState]]:
    """Return all brokers; those of a paused pool count as up to date, because they stay.

    So do all brokers that are about to hibernate: they come back with the present template.
    """
    held = {pool.name for pool in pools if pool.spec.paused or hibernation.is_about_to_sleep}
    return {
        name: [replace(broker, is_outdated=False) for broker in brokers]
        if name in held
        else brokers
        for name, brokers in states.items()
    }


def _with_refusal(plan: PoolPlan, refused: Mapping[PartKey, str]) -> PoolPlan:
    """Add to a pool's plan which part of it the API server refuses, if any."""
    parts = [(STATEFUL_SET.kind, plan.pool.stateful_set), *(child.key for child in plan.children)]
    said = next((refused[part] for part in parts if part in refused), "")
    if not said or plan.blocked:
        return plan
    return replace(plan, blocked_reason=REFUSED, blocked=said)


def _pause_s(roll: RollAction, *, is_quiet: bool, is_refused: bool, is_converged: bool) -> float:
    """Return when to look again; `is_quiet` says that all statuses are written."""
    match roll:
        case Drain() | Undrain():
            return ROLLING_LOOK_S
        case _ if not is_quiet:
            return BUSY_LOOK_S
        case Wait(reason="Paused" | "OutsideWindow"):
            return SETTLED_LOOK_S
        case NothingToRoll() | Wait(reason="Refused") if is_refused:
            return REFUSED_LOOK_S
        case NothingToRoll() if is_converged:
            return SETTLED_LOOK_S
        case _:
            return BUSY_LOOK_S


def _with_pools(observed: ClusterObserved, pools: Sequence[Manifest]) -> ClusterObserved:
    """Return `observed` with the names of all pools, even invalid and terminating ones."""
    names = frozenset(each["metadata"]["name"] for each in pools)
    return replace(observed, pool_names=names, named_by_pools=names_in_pools(pools))


def _age(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["creationTimestamp"], manifest["metadata"]["name"]
