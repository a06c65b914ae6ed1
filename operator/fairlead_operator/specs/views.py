"""A LogCluster and a BrokerPool as builders and plans use them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER, ResourceKind
from fairlead_operator.resources import BrokerPoolSpec, LogClusterSpec, ManifestError
from fairlead_operator.resources.maintenance_window import is_time_zone
from fairlead_operator.specs.names import (
    RESTART_ANNOTATION,
    RESTARTS_ALLOWED_ANNOTATION,
    ROTATE_ANNOTATION,
    stateful_set_name,
)
from fairlead_operator.specs.pod_patch import pod_patch_problem

Manifest = dict[str, Any]


def is_cluster_paused(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a LogCluster wants everything that belongs to it to stay unchanged."""
    spec = manifest.get("spec") or {}
    return spec.get("paused") is True or spec.get("pauseReconciliation") is True


def is_protected(manifest: Mapping[str, Any]) -> bool:
    """Tell whether an object must not be deleted, whoever asks."""
    return (manifest.get("spec") or {}).get("deletionProtection") is True


def is_going(manifest: Mapping[str, Any]) -> bool:
    """Tell whether a LogCluster is being deleted; a protected one lives on as before."""
    return "deletionTimestamp" in manifest["metadata"] and not is_protected(manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One LogCluster."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: LogClusterSpec
    restart: str = ""
    """Value of the annotation that requests a rolling restart."""
    restarts_allowed_until: str = ""
    """Value of the annotation that permits restarts outside of maintenance windows."""
    rotate_authority: str = ""
    """Value of the annotation that requests a new authority."""
    pinned_image: str = ""
    """Image that the brokers were last given, from the status."""

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Read a LogCluster; ManifestError lists the problems of its spec."""
        metadata = manifest["metadata"]
        annotations = metadata.get("annotations") or {}
        spec = LogClusterSpec.from_manifest(manifest)
        problems = time_zone_problems(spec)
        if problems:
            raise ManifestError([f"LogCluster {metadata['name']}: {each}" for each in problems])
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=int(metadata.get("generation", 1)),
            spec=spec,
            restart=annotations.get(RESTART_ANNOTATION, ""),
            restarts_allowed_until=annotations.get(RESTARTS_ALLOWED_ANNOTATION, ""),
            rotate_authority=annotations.get(ROTATE_ANNOTATION, ""),
            pinned_image=(manifest.get("status") or {}).get("brokerImage", ""),
        )

    @property
    def is_paused(self) -> bool:
        """Whether everything that belongs to it stays unchanged."""
        return self.spec.paused or self.spec.pause_reconciliation

    def owner_reference(self) -> Manifest:
        """Return the reference by which Kubernetes deletes children with their cluster."""
        return build_owner_reference(LOG_CLUSTER, self.name, self.uid)


def time_zone_problems(spec: LogClusterSpec) -> list[str]:
    """Return the time zones that are unknown here; the API server cannot check them."""
    return [
        f"spec.maintenanceWindows[{place}].timeZone: {window.time_zone} is not known"
        for place, window in enumerate(spec.maintenance_windows)
        if not is_time_zone(window.time_zone)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """One BrokerPool."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: BrokerPoolSpec
    restart: str = ""

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Read a BrokerPool; ManifestError lists the problems of its spec."""
        metadata = manifest["metadata"]
        spec = BrokerPoolSpec.from_manifest(manifest)
        volumes = [volume.id for volume in spec.storage.each_volume]
        problem = pod_patch_problem(spec.template.pod_spec or {}, volumes)
        if problem:
            raise ManifestError([f"BrokerPool {metadata['name']}: spec.template.{problem}"])
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=int(metadata.get("generation", 1)),
            spec=spec,
            restart=(metadata.get("annotations") or {}).get(RESTART_ANNOTATION, ""),
        )

    @property
    def stateful_set(self) -> str:
        """Name of its StatefulSet."""
        return stateful_set_name(self.spec.cluster_name, self.name)

    def pod_name(self, ordinal: int) -> str:
        """Return the name of a broker's pod."""
        return f"{self.stateful_set}-{ordinal}"

    def broker_ids(self, replicas: int) -> range:
        """Return the ids of `replicas` brokers."""
        return range(self.spec.id_base, self.spec.id_base + replicas)

    def owner_reference(self) -> Manifest:
        """Return the reference by which Kubernetes deletes children with their pool."""
        return build_owner_reference(BROKER_POOL, self.name, self.uid)


def build_owner_reference(kind: ResourceKind, name: str, uid: str) -> Manifest:
    """Return an owner reference of a controller that does not block the owner's deletion."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def build_child(
    kind: ResourceKind,
    owner: ClusterView | PoolView,
    name: str,
    labels: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return the head of a child's manifest."""
    metadata: Manifest = {
        "name": name,
        "namespace": owner.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner.owner_reference()],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
