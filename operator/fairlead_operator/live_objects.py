"""What is in the API server for all clusters: informers, and our own writes that they lag behind.

An informer hears of a write of ours a moment later. Until then the answer to the write stands in
its place, so that the next look does not do the same again.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from fairlead_controller.kube.client import KubeClient
from fairlead_controller.kube.informer import Informer
from fairlead_controller.kube.kinds import (
    BROKER_POOL,
    CONFIG_MAP,
    LOG_CLUSTER,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    STATEFUL_SET,
    ResourceKind,
)
from fairlead_controller.kube.object_changes import ObjectChange
from fairlead_operator.specs.names import CLUSTER_LABEL, MANAGED_ANNOTATION, MANAGED_SELECTOR

Manifest = dict[str, Any]
ClusterKey = tuple[str, str]
"""Namespace and name of a LogCluster."""

CHILD_KINDS: Final = (SERVICE, CONFIG_MAP, STATEFUL_SET, POD_DISRUPTION_BUDGET, NETWORK_POLICY)
_SELECTORS: Final[dict[ResourceKind, str]] = {
    LOG_CLUSTER: "",
    BROKER_POOL: "",
    POD: MANAGED_SELECTOR,
    PERSISTENT_VOLUME_CLAIM: CLUSTER_LABEL,
    **dict.fromkeys(CHILD_KINDS, MANAGED_SELECTOR),
}


class LiveObjects:
    """One informer a kind; `on_cluster` hears which cluster something happened to."""

    def __init__(
        self, client: KubeClient, namespace: str, on_cluster: Callable[[ClusterKey], None]
    ) -> None:
        self._on_cluster = on_cluster
        self._own: dict[tuple[str, str, str], tuple[str, Manifest | None]] = {}
        self.informers = {
            kind: Informer(
                client,
                kind,
                namespace=namespace or None,
                label_selector=selector,
                on_change=self._on_change,
            )
            for kind, selector in _SELECTORS.items()
        }

    async def run(self) -> None:
        """Follow everything until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers.values():
                tasks.create_task(informer.run())

    async def synced(self) -> None:
        """Wait until all kinds have been listed."""
        for informer in self.informers.values():
            await informer.synced()

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Manifest | None:
        """Give an object as far as known; not to be changed."""
        seen = self.informers[kind].objects.get((namespace, name))
        own = self._own.get((kind.kind, namespace, name))
        if own is None:
            return seen
        before, written = own
        if _version(seen) == before:
            return written
        del self._own[kind.kind, namespace, name]
        return seen

    def find_cluster(self, namespace: str, name: str | None) -> str:
        """Give the LogCluster that a resource means; LookupError says why there is none.

        One that names none means the only one of its namespace.
        """
        there = [key[1] for key in self.informers[LOG_CLUSTER].objects if key[0] == namespace]
        if name is not None:
            if name not in there:
                raise LookupError(f"there is no LogCluster {name} in the namespace {namespace}")
            return name
        if len(there) != 1:
            found = ", ".join(sorted(there)) or "none"
            raise LookupError(f"set spec.clusterName: the LogClusters of {namespace} are: {found}")
        return there[0]

    def note_written(
        self, kind: ResourceKind, namespace: str, name: str, answer: Manifest | None
    ) -> None:
        """Remember what a write of ours made of an object; None: it was deleted."""
        seen = self.informers[kind].objects.get((namespace, name))
        if _version(seen) != _version(answer):
            self._own[kind.kind, namespace, name] = (_version(seen), answer)

    def of_cluster(self, kind: ResourceKind, cluster: ClusterKey) -> list[Manifest]:
        """Give all objects of a kind that belong to a cluster."""
        namespace, name = cluster
        keys = {key for key in self.informers[kind].objects if key[0] == namespace}
        keys |= {own[1:] for own in self._own if own[0] == kind.kind and own[1] == namespace}
        found = (self.get(kind, *key) for key in sorted(keys))
        return [
            manifest for manifest in found if manifest is not None and cluster_of(manifest) == name
        ]

    def _on_change(self, change: ObjectChange) -> None:
        for manifest in (change.old, change.new):
            cluster = manifest and cluster_of(manifest)
            if cluster:
                self._on_cluster((change.key[0], cluster))


def cluster_of(manifest: Mapping[str, Any]) -> str:
    """Give the name of the cluster that an object belongs to."""
    if manifest.get("kind") == LOG_CLUSTER.kind:
        return str(manifest["metadata"]["name"])
    if manifest.get("kind") == BROKER_POOL.kind:
        return str((manifest.get("spec") or {}).get("clusterName", ""))
    return str((manifest["metadata"].get("labels") or {}).get(CLUSTER_LABEL, ""))


def is_left_alone(manifest: Mapping[str, Any]) -> bool:
    """Tell whether somebody has asked that the operator leaves an object alone."""
    return (manifest["metadata"].get("annotations") or {}).get(MANAGED_ANNOTATION) == "false"


def _version(manifest: Mapping[str, Any] | None) -> str:
    return "" if manifest is None else str(manifest["metadata"]["resourceVersion"])
