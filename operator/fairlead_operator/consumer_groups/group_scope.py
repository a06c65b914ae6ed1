"""The known ConsumerGroups and LogClusters, and the last state of each group that was read."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead_operator.conditions import is_asleep
from fairlead_operator.consumer_groups.group_resource import (
    ClusterKey,
    GroupResource,
    ResourceKey,
    read_group_resource,
)
from fairlead_operator.specs.views import is_cluster_paused

if TYPE_CHECKING:
    from fairlead_operator.consumer_groups.group_sight import GroupSight


@dataclass(frozen=True, slots=True)
class Followed:
    """A resource and the manifest from which it was read."""

    resource: GroupResource
    manifest: dict[str, Any]


class GroupScope:
    """State without any input or output of its own."""

    def __init__(self) -> None:
        self.groups: dict[ResourceKey, Followed] = {}
        self.clusters: dict[ClusterKey, dict[str, Any]] = {}
        """LogClusters that are not being deleted, by namespace and name."""
        self.sights: dict[ResourceKey, GroupSight] = {}
        """The last sight of each group that can be read."""

    def take(self, key: ResourceKey, manifest: dict[str, Any] | None) -> None:
        """Note a resource's present state, or its deletion."""
        if manifest is None:
            self.groups.pop(key, None)
            self.sights.pop(key, None)
            return
        self.groups[key] = Followed(read_group_resource(manifest), manifest)

    def version(self, key: ResourceKey) -> str:
        """Return the known version of a resource; empty for none."""
        known = self.groups.get(key)
        return "" if known is None else str(known.manifest["metadata"]["resourceVersion"])

    def take_answer(self, key: ResourceKey, answer: dict[str, Any], *, before: str) -> None:
        """Note the answer to one of our requests; `before` was the `version` when it was sent.

        An answer may be late. If the informer has reported something since, that is this answer, or
        a later write, or the deletion of the resource; then the informer's state counts.
        """
        if before and self.version(key) == before:
            self.take(key, answer)

    def cluster_of(self, resource: GroupResource) -> ClusterKey | None:
        """Return the LogCluster that a resource names, or implies; None if there is none."""
        if resource.cluster:
            return resource.cluster_key if resource.cluster_key in self.clusters else None
        places = [place for place in self.clusters if place[0] == resource.namespace]
        return places[0] if len(places) == 1 else None

    def is_paused(self, resource: GroupResource) -> bool:
        """Tell whether a resource, or its whole cluster, is to be left unchanged."""
        place = self.cluster_of(resource)
        return resource.is_paused or (place is not None and is_cluster_paused(self.clusters[place]))

    def is_asleep(self, cluster: ClusterKey) -> bool:
        """Tell whether a cluster hibernates."""
        return is_asleep(self.clusters.get(cluster) or {})

    def of_cluster(self, cluster: ClusterKey) -> list[GroupResource]:
        """Return all resources that are ours and follow a group of this cluster."""
        return [
            followed.resource
            for followed in self.groups.values()
            if followed.resource.is_ours and self.cluster_of(followed.resource) == cluster
        ]
