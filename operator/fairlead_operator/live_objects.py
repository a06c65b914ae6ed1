"""The objects in the API server of all clusters: informers, and our writes that they lag behind.

An informer learns of a write of ours a moment later. Until then the answer to the write replaces
the object, so that the next pass does not do the same again. It never replaces what the informer
has heard since the write was sent: that may be a later change, and no other event would follow.
Nor does it last: what has gone between two lists leaves no event, and would stay for ever.

If the operator may not read a kind, nothing is known of it. Code that would consider an object
absent, and delete volumes or make new certificates because of that, gets an error instead.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import HiddenError
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import (
    BROKER_POOL,
    CONFIG_MAP,
    LOG_CLUSTER,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    ResourceKind,
)
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.specs.names import (
    CERTIFICATES_LABEL,
    CLUSTER_LABEL,
    MANAGED_ANNOTATION,
    MANAGED_SELECTOR,
    driver_account_name,
)

Manifest = dict[str, Any]
ClusterKey = tuple[str, str]
"""Namespace and name of a LogCluster."""

CHILD_KINDS: Final = (
    SERVICE,
    CONFIG_MAP,
    STATEFUL_SET,
    POD_DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SECRET,
)
_SELECTORS: Final[dict[ResourceKind, str]] = {
    LOG_CLUSTER: "",
    BROKER_POOL: "",
    POD: MANAGED_SELECTOR,
    PERSISTENT_VOLUME_CLAIM: CLUSTER_LABEL,
    **dict.fromkeys(CHILD_KINDS, MANAGED_SELECTOR),
    SECRET: f"{MANAGED_SELECTOR},{CERTIFICATES_LABEL}",
}
_DECISIVE: Final = frozenset(
    {LOG_CLUSTER, BROKER_POOL, POD, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, SECRET}
)
"""Kinds of which none there means something; what is missing of the others is applied again."""
OWN_S: Final = 15.0
"""For how long an answer counts: somewhat longer than an informer takes to notice a dead watch."""


class LiveObjects:
    """One informer a kind; `on_cluster` is called with the cluster whose object has changed."""

    def __init__(
        self,
        client: KubeClient,
        namespaces: Collection[str],
        on_cluster: Callable[[ClusterKey], None],
        *,
        closed: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the informers; `closed` are namespaces to be followed too that do not let us now."""
        self._on_cluster = on_cluster
        self._followers: dict[ResourceKind, list[Callable[[ObjectChange], None]]] = {}
        self._now = now
        self._own: dict[tuple[str, str, str], tuple[str, Manifest, float]] = {}
        """Answers to writes: the version before, the object, and until when it counts."""
        self.informers = {
            kind: Informer(
                client,
                kind,
                namespaces=namespaces,
                closed=closed,
                label_selector=selector,
                on_change=partial(self._on_change, kind),
            )
            for kind, selector in _SELECTORS.items()
        }

    async def run(self) -> None:
        """Follow everything until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers.values():
                tasks.create_task(informer.run())

    def follow_clusters(self, follower: Callable[[ObjectChange], None]) -> None:
        """Have a function called with each change of a LogCluster, once it shows here."""
        self.follow(LOG_CLUSTER, follower)

    def follow(self, kind: ResourceKind, follower: Callable[[ObjectChange], None]) -> None:
        """Have a function called with each change of an object of a kind, once it shows here."""
        self._followers.setdefault(kind, []).append(follower)

    async def synced(self) -> None:
        """Wait until all kinds have been listed."""
        for informer in self.informers.values():
            await informer.synced()

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Manifest | None:
        """Return an object as far as known; it must not be changed.

        HiddenError if it is not known whether it is there.
        """
        seen = self.informers[kind].objects.get((namespace, name))
        own = self._own.get((kind.kind, namespace, name))
        if own is not None:
            before, written, until = own
            if version_of(seen) == before and self._now() < until:
                return written
            del self._own[kind.kind, namespace, name]
        if seen is None:
            self._require_shown(kind, namespace)
        return seen

    def find_cluster(
        self, namespace: str, name: str | None, cluster_namespace: str | None = None
    ) -> ClusterKey:
        """Return the LogCluster that a resource means; LookupError says why there is none.

        A resource that names none means the only one of its namespace. One of another namespace has
        to let this one in. HiddenError if it is not known which LogClusters there are.
        """
        self._require_shown(LOG_CLUSTER, cluster_namespace or namespace)
        if cluster_namespace and name is not None and cluster_namespace != namespace:
            key = (cluster_namespace, name)
            if namespace not in (self._spark(key).get("namespaces") or ()):
                raise LookupError(
                    f"spec.clusterNamespace: LogCluster {cluster_namespace}/{name} serves no jobs "
                    f"of namespace {namespace}: its spec.spark.namespaces has to name it"
                )
            return key
        there = [key[1] for key in self.informers[LOG_CLUSTER].objects if key[0] == namespace]
        if name is not None:
            if name not in there:
                raise LookupError(f"there is no LogCluster {name} in the namespace {namespace}")
            return namespace, name
        if len(there) != 1:
            found = ", ".join(sorted(there)) or "none"
            raise LookupError(f"set spec.clusterName: the LogClusters of {namespace} are: {found}")
        return namespace, there[0]

    def asks_for_driver_account(self, cluster: ClusterKey) -> bool:
        """Tell whether a LogCluster asks for an account for the drivers of StreamJobs."""
        return bool(self._spark(cluster).get("driverAccount", True))

    def may_use_driver_account(self, namespace: str, cluster: ClusterKey, account: str) -> bool:
        """Tell whether drivers of a namespace may run as one of its ServiceAccounts.

        In its own namespace the LogCluster lists them. Those of another one are not its to give.
        """
        allowed = self._spark(cluster).get("serviceAccounts") or ()
        is_default = account == driver_account_name(cluster[1])
        return is_default or account in allowed or namespace != cluster[0]

    def _spark(self, key: ClusterKey) -> Mapping[str, Any]:
        cluster = self.informers[LOG_CLUSTER].objects.get(key) or {}
        return (cluster.get("spec") or {}).get("spark") or {}

    def cluster(self, cluster: ClusterKey) -> Manifest:
        """Return a LogCluster; empty if it is not there."""
        return self.informers[LOG_CLUSTER].objects.get(cluster) or {}

    def seen_version(self, kind: ResourceKind, namespace: str, name: str) -> str:
        """Return the version of an object that the informer shows; empty for none."""
        return version_of(self.seen(kind, namespace, name))

    def seen(self, kind: ResourceKind, namespace: str, name: str) -> Manifest | None:
        """Return what the informer shows of an object, of whichever cluster it is."""
        return self.informers[kind].objects.get((namespace, name))

    def note_written(
        self, kind: ResourceKind, namespace: str, name: str, answer: Manifest, *, before: str
    ) -> None:
        """Remember the answer to a write of ours; `before`: `seen_version` when it was sent."""
        if self.seen_version(kind, namespace, name) == before != version_of(answer):
            self._own[kind.kind, namespace, name] = (before, answer, self._now() + OWN_S)

    def of_cluster(self, kind: ResourceKind, cluster: ClusterKey) -> list[Manifest]:
        """Return all objects of a kind that belong to a cluster.

        HiddenError if it is not known whether these are all.
        """
        namespace, name = cluster
        self._require_shown(kind, namespace)
        keys = {key for key in self.informers[kind].objects if key[0] == namespace}
        keys |= {own[1:] for own in self._own if own[0] == kind.kind and own[1] == namespace}
        found = (self.get(kind, *key) for key in sorted(keys))
        return [
            manifest for manifest in found if manifest is not None and cluster_of(manifest) == name
        ]

    def _require_shown(self, kind: ResourceKind, namespace: str) -> None:
        if kind in _DECISIVE and self.informers[kind].is_hidden(namespace):
            raise HiddenError(kind.plural, namespace)

    def _on_change(self, kind: ResourceKind, change: ObjectChange) -> None:
        # There may be no question between the events that an object is there and that it is gone.
        self._own.pop((kind.kind, *change.key), None)
        for manifest in (change.old, change.new):
            cluster = manifest and cluster_of(manifest)
            if cluster:
                self._on_cluster((change.key[0], cluster))
        for follower in self._followers.get(kind, ()):
            follower(change)


def cluster_of(manifest: Mapping[str, Any]) -> str:
    """Return the name of the cluster that an object belongs to."""
    if manifest.get("kind") == LOG_CLUSTER.kind:
        return str(manifest["metadata"]["name"])
    if manifest.get("kind") == BROKER_POOL.kind:
        return str((manifest.get("spec") or {}).get("clusterName", ""))
    return str((manifest["metadata"].get("labels") or {}).get(CLUSTER_LABEL, ""))


def is_left_alone(manifest: Mapping[str, Any]) -> bool:
    """Tell whether an annotation asks the operator to leave an object alone."""
    return (manifest["metadata"].get("annotations") or {}).get(MANAGED_ANNOTATION) == "false"


def version_of(manifest: Mapping[str, Any] | None) -> str:
    """Return the version of an object; empty for none."""
    return "" if manifest is None else str(manifest["metadata"]["resourceVersion"])
