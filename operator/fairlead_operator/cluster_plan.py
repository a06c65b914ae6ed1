"""What a cluster's objects should be, given its resources and what is there. Pure.

Nothing is planned that is already so: a plan for a converged cluster has no step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead_controller.kube.kinds import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    STATEFUL_SET,
    ResourceKind,
)
from fairlead_operator.apply_decision import needs_apply, with_hash
from fairlead_operator.pool_decisions import (
    GrowthDecision,
    decide_growth,
    decide_ids,
    decide_scale,
)
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.config_map import Addresses, build_config_map, config_hash
from fairlead_operator.specs.disruption_budget import build_disruption_budget
from fairlead_operator.specs.listeners import looked_up_address, needs_lookup
from fairlead_operator.specs.names import claim_name, listener_service_name
from fairlead_operator.specs.network_policy import build_network_policy
from fairlead_operator.specs.services import (
    build_bootstrap_service,
    build_broker_services,
    build_headless_service,
    build_listener_bootstrap,
)
from fairlead_operator.specs.stateful_set import broker_ids_of, build_stateful_set
from fairlead_operator.specs.views import ClusterView, Manifest, PoolView

LiveKey = tuple[str, str]
"""Kind and name; the namespace is the cluster's."""
PRUNED_KINDS: Final = (SERVICE, CONFIG_MAP, POD_DISRUPTION_BUDGET, NETWORK_POLICY)


@dataclass(frozen=True, slots=True)
class Child:
    """An object that a cluster shall have."""

    kind: ResourceKind
    manifest: Manifest

    @property
    def key(self) -> LiveKey:
        """Its kind and name."""
        return self.kind.kind, self.manifest["metadata"]["name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObserved:
    """A cluster as it is."""

    cluster: ClusterView
    pools: Sequence[PoolView]
    """In the order of their age."""
    live: Mapping[LiveKey, Mapping[str, Any]]
    """The cluster's objects of every kind that a plan may contain."""
    claim_sizes: Mapping[str, str]
    """Size asked for by each volume claim of the cluster."""
    replicas_by_broker: Mapping[int, int] | None
    """How many replicas each broker holds; None where the controller cannot be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """What one pool comes to."""

    pool: PoolView
    replicas: int = 0
    image: str = ""
    blocked_reason: str = ""
    blocked: str = ""
    growth: GrowthDecision = field(default_factory=GrowthDecision)
    children: tuple[Child, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Steps towards what the resources say, in the order in which they are taken."""

    applies: tuple[Child, ...]
    """Children that are missing or differ."""
    deletes: tuple[Child, ...]
    """Children of ours that nobody asks for any more, as they are."""
    pools: tuple[PoolPlan, ...]

    @property
    def is_converged(self) -> bool:
        """Whether nothing is left to do."""
        return not (
            self.applies
            or self.deletes
            or any(plan.growth.claims or plan.growth.recreates for plan in self.pools)
        )


def plan_cluster(observed: ClusterObserved, settings: OperatorSettings) -> ClusterPlan:
    """Compare what is with what should be."""
    ids = decide_ids(observed.pools, _running_ids(observed))
    brokers = sum(pool.spec.replicas for pool in observed.pools if pool.name not in ids.refused)
    pools = tuple(
        PoolPlan(pool=pool, blocked_reason="IdsOverlap", blocked=ids.refused[pool.name])
        if pool.name in ids.refused
        else _plan_pool(observed, pool, settings, taken=ids.taken[pool.name], brokers=brokers)
        for pool in observed.pools
    )
    children = [*_shared_children(observed.cluster, settings)]
    for plan in pools:
        children += plan.children
    wanted = {child.key for child in children}
    return ClusterPlan(
        applies=tuple(
            child for child in children if needs_apply(child.manifest, observed.live.get(child.key))
        ),
        deletes=tuple(_stale_children(observed, wanted, ids.refused)),
        pools=pools,
    )


def _shared_children(cluster: ClusterView, settings: OperatorSettings) -> list[Child]:
    manifests: list[tuple[ResourceKind, Manifest | None]] = [
        (SERVICE, build_headless_service(cluster)),
        (SERVICE, build_bootstrap_service(cluster)),
        *(
            (SERVICE, build_listener_bootstrap(cluster, listener))
            for listener in cluster.spec.listeners
        ),
        (POD_DISRUPTION_BUDGET, build_disruption_budget(cluster)),
        (NETWORK_POLICY, build_network_policy(cluster, settings)),
    ]
    return [Child(kind, with_hash(manifest)) for kind, manifest in manifests if manifest]


def _running_ids(observed: ClusterObserved) -> dict[str, range]:
    """Give the ids of the brokers that run, by the name of their StatefulSet."""
    return {
        name: broker_ids_of(manifest)
        for (kind, name), manifest in observed.live.items()
        if kind == STATEFUL_SET.kind
    }


def _plan_pool(
    observed: ClusterObserved,
    pool: PoolView,
    settings: OperatorSettings,
    *,
    taken: Mapping[str, range],
    brokers: int,
) -> PoolPlan:
    """Plan a pool; `brokers` is how many the cluster shall have, `taken` the ids of others."""
    cluster = observed.cluster
    image = cluster.spec.image or settings.broker_image
    live = observed.live.get((STATEFUL_SET.kind, pool.stateful_set))
    live_replicas = None if live is None else int(live["spec"].get("replicas", 1))
    if not image:
        return PoolPlan(
            pool=pool,
            replicas=live_replicas or 0,
            blocked_reason="NoImage",
            blocked="no image is known: set spec.image of the LogCluster, or install the operator "
            "with one",
        )
    scale = decide_scale(pool, live_replicas, observed.replicas_by_broker, taken)
    growth = _decide_pool_growth(observed, pool, live)
    services = build_broker_services(cluster, pool, scale.replicas)
    addresses = _look_up_addresses(observed, pool, scale.replicas)
    reason, blocked = scale.reason, scale.blocked
    replicas = _replicas_with_addresses(cluster, pool, scale.replicas, addresses)
    if replicas < scale.replicas:
        replicas = max(replicas, min(live_replicas or 0, scale.replicas))
        reason = "WaitingForAddresses"
        blocked = "outside listeners of new brokers have no address yet"
    config_map = build_config_map(cluster, pool, settings, addresses=addresses, brokers=brokers)
    children = [Child(SERVICE, with_hash(manifest)) for manifest in services]
    children.append(Child(CONFIG_MAP, with_hash(config_map)))
    if not growth.recreates:
        stateful_set = build_stateful_set(
            cluster,
            pool,
            image=image,
            replicas=replicas,
            config_hash=config_hash(config_map),
            storage_size=growth.template_size,
        )
        children.append(Child(STATEFUL_SET, with_hash(stateful_set)))
    return PoolPlan(
        pool=pool,
        replicas=replicas,
        image=image,
        blocked_reason=reason,
        blocked=blocked,
        growth=growth,
        children=tuple(children),
    )


def _decide_pool_growth(
    observed: ClusterObserved, pool: PoolView, live: Mapping[str, Any] | None
) -> GrowthDecision:
    if live is None:
        return decide_growth(pool, None, {})
    template = live["spec"]["volumeClaimTemplates"][0]
    claims = {
        claim_name(observed.cluster.name, pool.name, ordinal)
        for ordinal in range(int(live["spec"].get("replicas", 1)))
    }
    return decide_growth(
        pool,
        template["spec"]["resources"]["requests"]["storage"],
        {name: size for name, size in observed.claim_sizes.items() if name in claims},
    )


def _look_up_addresses(
    observed: ClusterObserved, pool: PoolView, replicas: int
) -> dict[int, Addresses]:
    """Find what Kubernetes has given each broker's outside Services, by broker id."""
    addresses: dict[int, Addresses] = {}
    for broker_id in pool.broker_ids(replicas):
        found = {}
        for listener in observed.cluster.spec.listeners:
            if not needs_lookup(listener):
                continue
            name = listener_service_name(observed.cluster.name, listener.name, broker_id)
            service = observed.live.get((SERVICE.kind, name))
            address = looked_up_address(listener, observed.cluster, pool, service)
            if address is not None:
                found[listener.name] = address
        addresses[broker_id] = found
    return addresses


def _replicas_with_addresses(
    cluster: ClusterView, pool: PoolView, replicas: int, addresses: Mapping[int, Addresses]
) -> int:
    """Count the first brokers whose addresses are all known."""
    count = sum(needs_lookup(listener) for listener in cluster.spec.listeners)
    for ordinal in range(replicas):
        if len(addresses[pool.spec.id_base + ordinal]) < count:
            return ordinal
    return replicas


def _stale_children(
    observed: ClusterObserved, wanted: set[LiveKey], refused: Mapping[str, str]
) -> list[Child]:
    """Find live children that nothing asks for; StatefulSets go with their pool only."""
    kinds = {kind.kind: kind for kind in PRUNED_KINDS}
    blocked = {pool.uid for pool in observed.pools if pool.name in refused}
    owners = {observed.cluster.uid, *(pool.uid for pool in observed.pools)} - blocked
    return [
        Child(kinds[kind], dict(manifest))
        for (kind, name), manifest in sorted(observed.live.items())
        if kind in kinds and (kind, name) not in wanted and _owner_uids(manifest) & owners
    ]


def _owner_uids(manifest: Mapping[str, Any]) -> set[str]:
    return {entry["uid"] for entry in manifest["metadata"].get("ownerReferences") or ()}
