"""All known Users in the watch scope: resources and clusters.

`UserSync` updates it; the reconciler reads it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead_operator.specs.views import is_going
from fairlead_operator.topics.claims import Claims
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey
from fairlead_operator.users.user_policy import UserLimits, read_limits
from fairlead_operator.users.user_resource import UserResource, read_user_resource


class UserScope:
    """State without any input or output of its own."""

    def __init__(self) -> None:
        self.manifests: dict[ResourceKey, dict[str, Any]] = {}
        self.resources: dict[ResourceKey, UserResource] = {}
        self.claims: Claims[UserResource] = Claims()
        self.clusters: dict[ClusterKey, Mapping[str, Any]] = {}
        """LogClusters by namespace and name."""
        self.epochs: dict[ClusterKey, int] = {}
        """The reigns that have been told which resources exist."""
        self.gone: dict[ClusterKey, set[str]] = {}
        """Deleted resources, until the controller knows of it."""

    def take(self, key: ResourceKey, manifest: dict[str, Any] | None) -> frozenset[ResourceKey]:
        """Note a resource's present state or its deletion; return the others that it affects."""
        old = self.resources.pop(key, None)
        self.manifests.pop(key, None)
        new = None if manifest is None else read_user_resource(manifest)
        if new is not None and manifest is not None:
            self.manifests[key], self.resources[key] = manifest, new
        if old is not None and (new is None or self._meant(new) != self._meant(old)):
            self.note_gone(self._meant(old), old.name)
        return self.claims.update(old, new)

    def _meant(self, resource: UserResource) -> ClusterKey:
        """Return the cluster that a resource names, or that is about to be written into it."""
        return resource.namespace, resource.cluster or self.only_cluster(resource.namespace)

    def presence(self, cluster: ClusterKey) -> ClusterPresence:
        """Return the state of a LogCluster."""
        manifest = self.clusters.get(cluster)
        if manifest is None:
            return ClusterPresence.ABSENT
        return ClusterPresence.DELETING if is_going(manifest) else ClusterPresence.PRESENT

    def only_cluster(self, namespace: str) -> str:
        """Return the only LogCluster of a namespace; empty if there is none, or more than one."""
        names = [name for place, name in self.clusters if place == namespace]
        return names[0] if len(names) == 1 else ""

    def may_act(self, resource: UserResource) -> bool:
        """Tell whether everything is known that a plan for a resource needs."""
        is_present = self.presence(resource.cluster_key) is ClusterPresence.PRESENT
        return not is_present or resource.cluster_key in self.epochs

    def limits(self, resource: UserResource) -> UserLimits:
        """Return what Users of its cluster may be and grant."""
        return read_limits(self.clusters.get(resource.cluster_key) or {})

    def owner(self, resource: UserResource) -> str | None:
        """Return the resource that declares the principal of this one."""
        owner = self.claims.owner(resource.claim)
        return None if owner is None else owner[1]

    def of_cluster(self, cluster: ClusterKey) -> list[ResourceKey]:
        """Return all resources that name a cluster."""
        return [resource.key for resource in self.claims.of_cluster(cluster)]

    def names_to_keep(self, cluster: ClusterKey) -> list[str]:
        """Return the resources whose declarations stay unchanged until they are checked."""
        return sorted(resource.name for resource in self.claims.of_cluster(cluster))

    def note_gone(self, cluster: ClusterKey, name: str) -> None:
        """Note that a resource no longer declares a user, unless its cluster is deleted as well."""
        if self.presence(cluster) is not ClusterPresence.ABSENT:
            self.gone.setdefault(cluster, set()).add(name)

    def gone_told(self, cluster: ClusterKey, names: Iterable[str]) -> None:
        """Note that the controller knows that resources were deleted."""
        left = self.gone.get(cluster, set()) - set(names)
        if left:
            self.gone[cluster] = left
        else:
            self.gone.pop(cluster, None)
