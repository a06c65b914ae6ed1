"""Which objects a cluster should have, given its resources and the objects that exist. Pure.

The plan holds only differences: for a converged cluster it has no step.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fairlead_kube.kinds import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    STATEFUL_SET,
    ResourceKind,
)
from fairlead_model.resources.hibernation import HIBERNATED
from fairlead_operator.clusters.broker_image import choose_image
from fairlead_operator.clusters.disruptions import USUAL
from fairlead_operator.clusters.pool_decisions import (
    PoolTraces,
    ScaleDecision,
    count_brokers,
    decide_ids,
    decide_scale,
)
from fairlead_operator.clusters.pool_volumes import (
    VOLUME_IN_USE,
    VolumeDecision,
    decide_volumes,
)
from fairlead_operator.clusters.scale_down import (
    BrokerHoldings,
    ScaleDownOrder,
    decide_order,
    describe_holdings,
    find_departed,
    find_departed_with_pool,
)
from fairlead_operator.clusters.volume_use import ClaimUse
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.apply_decision import needs_apply, with_hash
from fairlead_operator.specs.claim_template import read_claim_templates
from fairlead_operator.specs.config_map import (
    Addresses,
    build_config_map,
    build_properties,
    find_advertised_host,
)
from fairlead_operator.specs.disruption_budget import build_disruption_budget
from fairlead_operator.specs.listeners import looked_up_address, needs_lookup
from fairlead_operator.specs.live_settings import decide_settings, find_live
from fairlead_operator.specs.names import config_map_name, listener_service_name
from fairlead_operator.specs.network_policy import build_network_policy
from fairlead_operator.specs.services import (
    build_bootstrap_service,
    build_broker_services,
    build_headless_service,
    build_listener_bootstrap,
)
from fairlead_operator.specs.stateful_set import (
    build_stateful_set,
    count_replicas,
    running_ids,
    sleeps,
)
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView

LiveKey = tuple[str, str]
"""Kind and name; the namespace is the cluster's."""
IMAGE_MISSING: Final = (
    "no image is known: set spec.image of the LogCluster, or install the operator with one"
)
PRUNED_KINDS: Final = (SERVICE, CONFIG_MAP, POD_DISRUPTION_BUDGET, NETWORK_POLICY)


@dataclass(frozen=True, slots=True)
class WantedObject:
    """An object that a cluster should have."""

    kind: ResourceKind
    manifest: Manifest

    @property
    def key(self) -> LiveKey:
        """The object's kind and name."""
        return self.kind.kind, self.manifest["metadata"]["name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObserved:
    """The observed state of a cluster."""

    cluster: ClusterView
    pools: Sequence[PoolView]
    """Oldest first."""
    live: Mapping[LiveKey, Mapping[str, Any]]
    """The cluster's objects of every kind that a plan may contain."""
    claim_sizes: Mapping[str, str]
    """The size that each volume claim of the cluster requests."""
    bound_claims: Collection[str] = ()
    """The claims that are bound to a volume."""
    claim_use: ClaimUse = field(default_factory=ClaimUse)
    """What the running brokers report of these claims."""
    brokers: Mapping[int, BrokerHoldings] | None
    """What each broker holds; None if the controller cannot be reached."""
    pods: Collection[str] = ()
    """Names of the brokers' pods that exist."""
    registered: Mapping[int, str] = field(default_factory=dict)
    """Name of the pod from which each broker registered."""
    max_unavailable: int = USUAL
    """How many brokers may be evicted now (`disruptions`)."""
    sleeps: bool = False
    """Whether no broker of the cluster is to run (`hibernation`)."""
    pool_names: frozenset[str] | None = None
    """Names of all BrokerPools of the cluster, whatever problems they have; None: unknown."""
    named_by_pools: frozenset[str] = frozenset()
    """Settings that BrokerPools of the cluster name, whatever other problems these have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The plan for one pool."""

    pool: PoolView
    replicas: int = 0
    image: str = ""
    blocked_reason: str = ""
    blocked: str = ""
    leaving: tuple[int, ...] = ()
    """Brokers that stay only until they are empty."""
    progress: str = ""
    """What these brokers still hold."""
    order: ScaleDownOrder | None = None
    """What to tell the controller about brokers that leave, or that shall stay after all."""
    departed: tuple[int, ...] = ()
    """Brokers that have left and are to be unregistered."""
    is_asleep: bool = False
    """Its brokers do not run; after hibernation their number is the same as now."""
    volumes: VolumeDecision = field(default_factory=VolumeDecision)
    addresses: Mapping[int, Addresses] = field(default_factory=dict)
    """The addresses outside Kubernetes that were looked up, by broker id."""
    live_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings in the brokers' file that the controller distributes while they run."""
    children: tuple[WantedObject, ...] = ()

    @property
    def certified(self) -> int:
        """How many brokers need certificates: the present ones, and those to be added."""
        return max(self.replicas, self.pool.spec.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Steps towards the state in the resources, in the order in which they are taken."""

    applies: tuple[WantedObject, ...]
    """Children that are missing or differ."""
    deletes: tuple[WantedObject, ...]
    """Children of the cluster that no resource asks for any more, as they are."""
    pools: tuple[PoolPlan, ...]
    image: str = ""
    """Image of all brokers."""
    live_settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that the controller has to distribute to all brokers."""
    departed: tuple[int, ...] = ()
    """Brokers that have left with their whole pool and are to be unregistered."""

    @property
    def is_on_hold(self) -> bool:
        """Whether brokers of a pool keep a file that differs from that of the plan."""
        return any(plan.pool.spec.paused or not plan.children for plan in self.pools)

    @property
    def is_converged(self) -> bool:
        """Whether nothing remains to be done."""
        return not (
            self.applies
            or self.deletes
            or any(plan.order or not plan.volumes.is_settled for plan in self.pools)
        )


def plan_cluster(observed: ClusterObserved, settings: OperatorSettings) -> ClusterPlan:
    """Compare the existing objects with the wanted ones."""
    running = _running_ids(observed)
    present = {pool.name: _count_present(observed, pool, running) for pool in observed.pools}
    for pool in observed.pools:
        own = pool.broker_ids(present[pool.name])
        if running.get(pool.stateful_set, own).start == own.start:
            running[pool.stateful_set] = own
    ids = decide_ids(observed.pools, running)
    brokers = sum(pool.spec.replicas for pool in observed.pools if pool.name not in ids.refused)
    stateful_sets = [each for (kind, _), each in observed.live.items() if kind == STATEFUL_SET.kind]
    image = choose_image(observed.cluster, stateful_sets, settings)
    live_settings = find_live(observed.cluster, observed.named_by_pools)
    pools = tuple(
        PoolPlan(pool=pool, blocked_reason="IdsOverlap", blocked=ids.refused[pool.name])
        if pool.name in ids.refused
        else _plan_pool(
            observed,
            pool,
            settings,
            image=image,
            live_settings=live_settings,
            present=present[pool.name],
            taken=ids.taken[pool.name],
            brokers=brokers,
        )
        for pool in observed.pools
    )
    pools = tuple(_held_back(observed, plan, present[plan.pool.name]) for plan in pools)
    held = {plan.pool.uid for plan in pools if plan.pool.spec.paused}
    children = [*_shared_children(observed, settings)]
    for plan in pools:
        children += plan.children
    wanted = {child.key for child in children}
    return ClusterPlan(
        applies=tuple(
            child
            for child in children
            if not _owner_uids(child.manifest) & held
            and needs_apply(child.manifest, observed.live.get(child.key))
        ),
        deletes=tuple(_stale_children(observed, wanted, ids.refused, held)),
        pools=pools,
        image=image,
        live_settings=dict(item for plan in pools for item in plan.live_settings.items())
        | live_settings,
        departed=_departed_with_pool(observed),
    )


def _departed_with_pool(observed: ClusterObserved) -> tuple[int, ...]:
    if observed.sleeps or observed.pool_names is None:
        return ()
    return find_departed_with_pool(
        observed.cluster.name,
        observed.pool_names,
        [name for kind, name in observed.live if kind == STATEFUL_SET.kind],
        observed.pods,
        observed.brokers,
    )


def _held_back(observed: ClusterObserved, plan: PoolPlan, present: int) -> PoolPlan:
    """Return a plan without the steps that a pause or hibernation forbids."""
    if plan.pool.spec.paused:
        return _as_it_is(observed, plan, present)
    return _asleep(plan) if observed.sleeps and plan.children else plan


def _asleep(plan: PoolPlan) -> PoolPlan:
    """Return the plan for a hibernating pool: steps that need its brokers wait for them."""
    wanted, present = plan.pool.spec.replicas, plan.replicas
    reason, blocked = plan.blocked_reason, plan.blocked
    if wanted < present:
        reason = HIBERNATED
        blocked = f"{present} brokers sleep; {wanted} remain once these are awake and emptied"
    return replace(
        plan,
        is_asleep=True,
        blocked_reason=reason,
        blocked=blocked,
        order=None,
        departed=(),
        volumes=replace(plan.volumes, claims={}, recreates=False, leftovers=()),
    )


def _as_it_is(observed: ClusterObserved, plan: PoolPlan, present: int) -> PoolPlan:
    """Return the plan for a paused pool: its present brokers, and no larger volumes."""
    live = observed.live.get((STATEFUL_SET.kind, plan.pool.stateful_set))
    return replace(
        plan,
        replicas=present,
        is_asleep=live is not None and sleeps(live),
        blocked_reason="",
        blocked="",
        leaving=(),
        progress="",
        order=None,
        departed=(),
        volumes=replace(plan.volumes, claims={}, recreates=False, leftovers=()),
    )


def _shared_children(observed: ClusterObserved, settings: OperatorSettings) -> list[WantedObject]:
    cluster = observed.cluster
    manifests: list[tuple[ResourceKind, Manifest | None]] = [
        (SERVICE, build_headless_service(cluster)),
        (SERVICE, build_bootstrap_service(cluster)),
        *(
            (SERVICE, build_listener_bootstrap(cluster, listener))
            for listener in cluster.spec.outside_listeners
        ),
        (POD_DISRUPTION_BUDGET, build_disruption_budget(cluster, observed.max_unavailable)),
        (NETWORK_POLICY, build_network_policy(cluster, settings)),
    ]
    return [WantedObject(kind, with_hash(manifest)) for kind, manifest in manifests if manifest]


def _running_ids(observed: ClusterObserved) -> dict[str, range]:
    """Return the ids of the running brokers, by the name of their StatefulSet."""
    stateful_sets = (
        manifest for (kind, _), manifest in observed.live.items() if kind == STATEFUL_SET.kind
    )
    return running_ids(stateful_sets)


def _count_present(observed: ClusterObserved, pool: PoolView, running: Mapping[str, range]) -> int:
    """Count the brokers that a pool has, with or without a StatefulSet."""
    live = observed.live.get((STATEFUL_SET.kind, pool.stateful_set))
    replicas = {broker_id: each.replicas for broker_id, each in (observed.brokers or {}).items()}
    return count_brokers(
        pool.spec.id_base,
        None if live is None else count_replicas(live),
        PoolTraces.find(
            pool.stateful_set,
            pods=observed.pods,
            claims=observed.claim_sizes,
            registered=observed.registered.values(),
        ),
        None if observed.brokers is None else replicas,
        {name: ids for name, ids in running.items() if name != pool.stateful_set},
    )


def _plan_pool(
    observed: ClusterObserved,
    pool: PoolView,
    settings: OperatorSettings,
    *,
    image: str,
    live_settings: Mapping[str, str],
    present: int,
    taken: Mapping[str, range],
    brokers: int,
) -> PoolPlan:
    """Plan a pool, which has `present` brokers.

    `brokers` is how many the cluster should have, `taken` the ids of other pools.
    """
    cluster = observed.cluster
    live = observed.live.get((STATEFUL_SET.kind, pool.stateful_set))
    if not image:
        return PoolPlan(
            pool=pool, replicas=present, blocked_reason="NoImage", blocked=IMAGE_MISSING
        )
    scale = decide_scale(pool, present, observed.brokers, taken)
    if observed.sleeps:
        scale = ScaleDecision(present)
    volumes = _decide_pool_volumes(observed, pool, live, present)
    services = build_broker_services(cluster, pool, scale.replicas)
    held = observed.live.get((CONFIG_MAP.kind, config_map_name(cluster.name, pool.name)))
    addresses = _look_up_addresses(observed, pool, scale.replicas, held)
    reason, blocked = scale.reason, scale.blocked
    if not blocked and volumes.blocked:
        reason, blocked = VOLUME_IN_USE, volumes.blocked
    replicas = _replicas_with_addresses(cluster, pool, scale.replicas, addresses)
    if replicas < scale.replicas:
        replicas = max(replicas, min(present, scale.replicas))
        reason = "WaitingForAddresses"
        blocked = "outside listeners of new brokers have no address yet"
    given = decide_settings(build_properties(cluster, pool, settings), live_settings, held)
    config_map = build_config_map(cluster, pool, given, addresses=addresses, brokers=brokers)
    children = [WantedObject(SERVICE, with_hash(manifest)) for manifest in services]
    children.append(WantedObject(CONFIG_MAP, with_hash(config_map)))
    if observed.sleeps or not volumes.recreates:
        stateful_set = build_stateful_set(
            cluster,
            pool,
            image=image,
            replicas=replicas,
            config_hash=given.config_hash,
            claims=volumes.templates,
            is_asleep=observed.sleeps,
        )
        children.append(WantedObject(STATEFUL_SET, with_hash(stateful_set)))
    return PoolPlan(
        pool=pool,
        replicas=replicas,
        image=image,
        blocked_reason=reason,
        blocked=blocked,
        leaving=scale.leaving,
        progress=describe_holdings(scale.leaving, observed.brokers or {}) if scale.leaving else "",
        order=decide_order(pool, present, observed.brokers),
        departed=find_departed(
            pool, None if live is None else count_replicas(live), observed.pods, observed.brokers
        ),
        volumes=volumes,
        addresses=addresses,
        live_settings=given.live,
        children=tuple(children),
    )


def _decide_pool_volumes(
    observed: ClusterObserved, pool: PoolView, live: Mapping[str, Any] | None, present: int
) -> VolumeDecision:
    templates = None if live is None else read_claim_templates(live)
    return decide_volumes(
        pool,
        present,
        templates,
        observed.claim_sizes,
        observed.bound_claims,
        use=observed.claim_use,
    )


def _look_up_addresses(
    observed: ClusterObserved,
    pool: PoolView,
    replicas: int,
    config_map: Mapping[str, Any] | None,
) -> dict[int, Addresses]:
    """Find the addresses that Kubernetes assigned to each broker's outside Services, by id.

    `config_map` is the pool's live one, which has the last known addresses.
    """
    addresses: dict[int, Addresses] = {}
    for broker_id in pool.broker_ids(replicas):
        found = {}
        for listener in observed.cluster.spec.outside_listeners:
            if not needs_lookup(listener):
                continue
            name = listener_service_name(observed.cluster.name, listener.name, broker_id)
            service = observed.live.get((SERVICE.kind, name))
            last = find_advertised_host(config_map, broker_id, listener.name)
            address = looked_up_address(listener, observed.cluster, pool, service, known_host=last)
            if address is not None:
                found[listener.name] = address
        addresses[broker_id] = found
    return addresses


def _replicas_with_addresses(
    cluster: ClusterView, pool: PoolView, replicas: int, addresses: Mapping[int, Addresses]
) -> int:
    """Count the brokers before the first one with an unknown address."""
    count = sum(needs_lookup(listener) for listener in cluster.spec.outside_listeners)
    for ordinal in range(replicas):
        if len(addresses[pool.spec.id_base + ordinal]) < count:
            return ordinal
    return replicas


def _stale_children(
    observed: ClusterObserved,
    wanted: set[LiveKey],
    refused: Mapping[str, str],
    held: Collection[str],
) -> list[WantedObject]:
    """Return live children that nothing asks for; StatefulSets are deleted with their pool only.

    `held` are the uids of paused pools.
    """
    kinds = {kind.kind: kind for kind in PRUNED_KINDS}
    blocked = {pool.uid for pool in observed.pools if pool.name in refused} | set(held)
    owners = {observed.cluster.uid, *(pool.uid for pool in observed.pools)} - blocked
    return [
        WantedObject(kinds[kind], dict(manifest))
        for (kind, name), manifest in sorted(observed.live.items())
        if kind in kinds and (kind, name) not in wanted and _owner_uids(manifest) & owners
    ]


def _owner_uids(manifest: Mapping[str, Any]) -> set[str]:
    return {entry["uid"] for entry in manifest["metadata"].get("ownerReferences") or ()}
