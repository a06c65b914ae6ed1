"""A Topic resource as the reconciler reads it. Pure."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_model.resources.topic_claims import Claimant, read_claimant, topic_reference
from fairlead_operator.specs.views import is_protected

FINALIZER: Final = "fairlead.io/finalizer"
ORIGIN_LABEL: Final = "fairlead.io/origin"
CLUSTER_LABEL: Final = "fairlead.io/cluster"
MANAGED_ANNOTATION: Final = "fairlead.io/managed"
FROM_KAFKA: Final = "kafka"

ResourceKey = tuple[str, str]
"""Namespace and name of a Topic."""
ClusterKey = tuple[str, str]
"""Namespace and name of a LogCluster."""
_SLUG_LENGTH_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class TopicResource:
    """The fields of a manifest that decide what is done about it."""

    namespace: str
    name: str
    uid: str
    generation: int
    claimant: Claimant
    """Its precedence among resources that declare the same topic."""
    cluster_namespace: str
    cluster: str
    topic_name: str
    partitions: int
    """The requested number, 0 if it leaves that to the cluster."""
    replication_factor: int | None
    """None if a new topic gets the cluster's default; then any factor of an existing topic is
    right."""
    reclaim_policy: str
    is_protected: bool
    is_paused: bool
    is_mirror: bool
    """It only shows a topic that was made over Kafka, and declares nothing."""
    is_managed: bool
    is_deleting: bool
    has_finalizer: bool

    @property
    def key(self) -> ResourceKey:
        """The resource's namespace and name."""
        return self.namespace, self.name

    @property
    def cluster_key(self) -> ClusterKey:
        """The cluster that the resource names."""
        return self.cluster_namespace, self.cluster

    @property
    def reference(self) -> str:
        """The reference by which that cluster knows it."""
        return topic_reference(self.namespace, self.name, cluster_namespace=self.cluster_namespace)

    @property
    def is_foreign(self) -> bool:
        """Whether the cluster is in another namespace."""
        return self.namespace != self.cluster_namespace

    @property
    def claim(self) -> tuple[str, str, str]:
        """The topic that it declares or shows: namespace, cluster, topic's name."""
        return self.cluster_namespace, self.cluster, self.topic_name

    @property
    def is_claiming(self) -> bool:
        """Whether it declares the topic, rather than shows it."""
        return not self.is_mirror

    @property
    def wants_finalizer(self) -> bool:
        """Whether its deletion has to wait; all other resources are spared the write."""
        return self.reclaim_policy == "Delete" or self.is_protected


def read_topic_resource(manifest: Mapping[str, Any]) -> TopicResource:
    """Read a manifest as the API server returns it."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    cluster = str(spec.get("clusterName") or "")
    topic_name = str(spec.get("topicName") or metadata["name"])
    namespace, name = metadata["namespace"], metadata["name"]
    cluster_namespace = str(spec.get("clusterNamespace") or namespace)
    reference = topic_reference(namespace, name, cluster_namespace=cluster_namespace)
    return TopicResource(
        namespace=namespace,
        name=name,
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        claimant=read_claimant(metadata, reference),
        cluster_namespace=cluster_namespace,
        cluster=cluster,
        topic_name=topic_name,
        partitions=int(spec.get("partitions") or 0),
        replication_factor=spec.get("replicationFactor"),
        reclaim_policy=str(spec.get("reclaimPolicy", "Retain")),
        is_protected=is_protected(manifest),
        is_paused=spec.get("paused") is True,
        is_mirror=labels.get(ORIGIN_LABEL) == FROM_KAFKA
        and cluster_namespace == namespace
        and name == mirror_name(cluster, topic_name),
        is_managed=annotations.get(MANAGED_ANNOTATION) != "false",
        is_deleting="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
    )


def mirror_name(cluster: str, topic_name: str) -> str:
    """Return the name of the resource that shows a topic made over Kafka.

    The beginning of the name is readable. The hash distinguishes topics whose resources could not
    have different names otherwise, such as `Orders` and `orders`, or the same topic name in two
    clusters.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", topic_name.lower()).strip("-")[:_SLUG_LENGTH_MAX].strip("-")
    digest = hashlib.sha256(f"{cluster}/{topic_name}".encode()).hexdigest()[:10]
    return "-".join(part for part in ("kafka", slug, digest) if part)


def differs_for_us(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether a change of a manifest is more than a written status."""
    before, after = old["metadata"], new["metadata"]
    fields = ("generation", "labels", "annotations", "finalizers", "deletionTimestamp")
    return any(before.get(field) != after.get(field) for field in fields)


def build_request_manifest(
    resource: TopicResource, manifest: Mapping[str, Any], *, may_adopt: bool
) -> dict[str, Any]:
    """Return the part of a manifest that the controller needs, with the resource's reference."""
    return {
        "apiVersion": manifest.get("apiVersion"),
        "kind": manifest.get("kind"),
        "metadata": {
            "name": resource.name,
            "creationTimestamp": manifest["metadata"].get("creationTimestamp"),
        },
        "spec": manifest.get("spec") or {},
        "reference": resource.reference,
        "mayAdopt": may_adopt,
    }
