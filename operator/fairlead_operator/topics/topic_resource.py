"""A Topic resource as the reconciler looks at it. Pure."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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
    """What of a manifest decides what is done about it."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    cluster: str
    topic_name: str
    reclaim_policy: str
    is_protected: bool
    is_mirror: bool
    """It only shows a topic that was made over Kafka, and declares nothing."""
    is_managed: bool
    is_deleting: bool
    has_finalizer: bool

    @property
    def key(self) -> ResourceKey:
        """Where it is."""
        return self.namespace, self.name

    @property
    def cluster_key(self) -> ClusterKey:
        """The cluster that it names."""
        return self.namespace, self.cluster

    @property
    def claim(self) -> tuple[str, str, str]:
        """The topic that it is about: namespace, cluster, topic's name."""
        return self.namespace, self.cluster, self.topic_name

    @property
    def wants_finalizer(self) -> bool:
        """Whether its deletion has to be held up; all others are spared the write."""
        return self.reclaim_policy == "Delete" or self.is_protected


def read_topic_resource(manifest: Mapping[str, Any]) -> TopicResource:
    """Look at a manifest as the API server gives it."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    cluster = str(spec.get("clusterName") or "")
    topic_name = str(spec.get("topicName") or metadata["name"])
    return TopicResource(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        created=str(metadata.get("creationTimestamp", "")),
        cluster=cluster,
        topic_name=topic_name,
        reclaim_policy=str(spec.get("reclaimPolicy", "Retain")),
        is_protected=spec.get("deletionProtection") is True,
        is_mirror=labels.get(ORIGIN_LABEL) == FROM_KAFKA
        and metadata["name"] == mirror_name(cluster, topic_name),
        is_managed=annotations.get(MANAGED_ANNOTATION) != "false",
        is_deleting="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
    )


def mirror_name(cluster: str, topic_name: str) -> str:
    """Give the name of the resource that shows a topic made over Kafka.

    The beginning can be read; the hash keeps names apart that a resource's name cannot tell apart,
    such as `Orders` and `orders`, or one topic's name in two clusters.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", topic_name.lower()).strip("-")[:_SLUG_LENGTH_MAX].strip("-")
    digest = hashlib.sha256(f"{cluster}/{topic_name}".encode()).hexdigest()[:10]
    return "-".join(part for part in ("kafka", slug, digest) if part)


def differs_for_us(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether a change of a manifest is more than a status that was written."""
    before, after = old["metadata"], new["metadata"]
    fields = ("generation", "labels", "annotations", "finalizers", "deletionTimestamp")
    return any(before.get(field) != after.get(field) for field in fields)


def build_request_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the controller needs to know of a manifest."""
    metadata = manifest["metadata"]
    return {
        "apiVersion": manifest.get("apiVersion"),
        "kind": manifest.get("kind"),
        "metadata": {
            "name": metadata["name"],
            "creationTimestamp": metadata.get("creationTimestamp"),
        },
        "spec": manifest.get("spec") or {},
    }
