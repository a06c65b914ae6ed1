"""A ConsumerGroup resource as the reconciler reads it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead_operator.resources import ConsumerGroupSpec, ManifestError
from fairlead_operator.resources.consumer_group import GROUP_ID_LENGTH_MAX, REFRESH_S, OffsetReset
from fairlead_operator.specs.names import MANAGED_ANNOTATION

ResourceKey = tuple[str, str]
"""Namespace and name of a ConsumerGroup."""
ClusterKey = tuple[str, str]
"""Namespace and name of a LogCluster."""


@dataclass(frozen=True, slots=True)
class GroupResource:
    """The fields of a manifest that decide what is done about it."""

    namespace: str
    name: str
    uid: str
    generation: int
    cluster: str
    """Empty if the resource names none."""
    group_id: str
    refresh_s: float
    reset: OffsetReset | None
    is_paused: bool
    problem: str
    """Why the spec is invalid; empty if it is valid."""
    is_ours: bool
    """It is neither being deleted nor excluded from the operator's management."""

    @property
    def key(self) -> ResourceKey:
        """The resource's namespace and name."""
        return self.namespace, self.name

    @property
    def cluster_key(self) -> ClusterKey:
        """The cluster that the resource names."""
        return self.namespace, self.cluster


def read_group_resource(manifest: Mapping[str, Any]) -> GroupResource:
    """Read a manifest as the API server returns it."""
    metadata = manifest["metadata"]
    annotations = metadata.get("annotations") or {}
    spec, problem = None, ""
    try:
        spec = ConsumerGroupSpec.from_manifest(manifest)
    except ManifestError as error:
        label = f"ConsumerGroup {metadata['name']}: "
        problem = "; ".join(text.removeprefix(label) for text in error.problems)
    group_id = str((spec and spec.group_id) or metadata["name"])
    return GroupResource(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        cluster=str((manifest.get("spec") or {}).get("clusterName") or ""),
        group_id=group_id[:GROUP_ID_LENGTH_MAX],
        refresh_s=float(REFRESH_S if spec is None else spec.refresh_seconds),
        reset=None if spec is None else spec.offset_reset,
        is_paused=spec is not None and spec.paused,
        problem=problem,
        is_ours=annotations.get(MANAGED_ANNOTATION) != "false"
        and "deletionTimestamp" not in metadata,
    )


def differs_for_us(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether a change of a manifest is more than a written status."""
    before, after = old["metadata"], new["metadata"]
    fields = ("uid", "generation", "annotations", "deletionTimestamp")
    return any(before.get(field) != after.get(field) for field in fields)
