"""A LogCluster and a BrokerPool as builders and plans see them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fairlead_controller.kube.kinds import BROKER_POOL, LOG_CLUSTER, ResourceKind
from fairlead_operator.resources import BrokerPoolSpec, LogClusterSpec
from fairlead_operator.specs.names import RESTART_ANNOTATION, stateful_set_name

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """One LogCluster."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: LogClusterSpec
    restart: str = ""
    """Value of the annotation that asks for a rolling restart."""

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Read a LogCluster; ManifestError lists what is wrong with its spec."""
        metadata = manifest["metadata"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=int(metadata.get("generation", 1)),
            spec=LogClusterSpec.from_manifest(manifest),
            restart=(metadata.get("annotations") or {}).get(RESTART_ANNOTATION, ""),
        )

    def owner_reference(self) -> Manifest:
        """Give the reference by which Kubernetes deletes children with their cluster."""
        return build_owner_reference(LOG_CLUSTER, self.name, self.uid)


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
        """Read a BrokerPool; ManifestError lists what is wrong with its spec."""
        metadata = manifest["metadata"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=int(metadata.get("generation", 1)),
            spec=BrokerPoolSpec.from_manifest(manifest),
            restart=(metadata.get("annotations") or {}).get(RESTART_ANNOTATION, ""),
        )

    @property
    def stateful_set(self) -> str:
        """Name of its StatefulSet."""
        return stateful_set_name(self.spec.cluster_name, self.name)

    def pod_name(self, ordinal: int) -> str:
        """Give the name of a broker's pod."""
        return f"{self.stateful_set}-{ordinal}"

    def broker_ids(self, replicas: int) -> range:
        """Give the ids of so many brokers."""
        return range(self.spec.id_base, self.spec.id_base + replicas)

    def owner_reference(self) -> Manifest:
        """Give the reference by which Kubernetes deletes children with their pool."""
        return build_owner_reference(BROKER_POOL, self.name, self.uid)


def build_owner_reference(kind: ResourceKind, name: str, uid: str) -> Manifest:
    """Give an owner reference that controls and does not hold up the owner's deletion."""
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
    """Give the head of a child's manifest."""
    metadata: Manifest = {
        "name": name,
        "namespace": owner.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner.owner_reference()],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
