"""What is known of all Topics in the watch scope: resources, clusters, the controller's view.

Kept by `TopicSync`; the reconciler, the status writer and the mirror read it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from fairlead_operator.topics.claims import Claims
from fairlead_operator.topics.cluster_view import ClusterView, TopicController
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_resource import (
    ClusterKey,
    ResourceKey,
    TopicResource,
    read_topic_resource,
)
from fairlead_operator.topics.work_queue import WorkQueue


class TopicScope:
    """State without any input or output of its own."""

    def __init__(self, controller: TopicController, queue: WorkQueue[ResourceKey]) -> None:
        self.controller = controller
        self.manifests: dict[ResourceKey, dict[str, Any]] = {}
        self.resources: dict[ResourceKey, TopicResource] = {}
        self.claims = Claims()
        self.results: dict[ResourceKey, tuple[str, int, Mapping[str, Any]]] = {}
        """The controller's last answer: for which uid and generation, and what."""
        self.clusters: dict[ClusterKey, Mapping[str, Any]] = {}
        """LogClusters by place."""
        self.views: dict[ClusterKey, ClusterView] = {}
        self.gone: dict[ClusterKey, set[str]] = {}
        """Resources that are gone, until the controller knows."""
        self._queue = queue

    def take(self, key: ResourceKey, manifest: dict[str, Any] | None) -> frozenset[ResourceKey]:
        """Note a resource as it is now, or that it is gone; give the others that it concerns."""
        old = self.resources.pop(key, None)
        self.manifests.pop(key, None)
        new = None if manifest is None else read_topic_resource(manifest)
        if new is not None and manifest is not None:
            self.manifests[key], self.resources[key] = manifest, new
        is_same = old is not None and new is not None and old.uid == new.uid
        if not is_same:
            self.results.pop(key, None)
            if old is not None and not old.is_mirror:
                self.note_gone(old.cluster_key, old.name)
        elif old is not None and new is not None and new.is_mirror and not old.is_mirror:
            self.note_gone(old.cluster_key, old.name)
        return self.claims.update(old, new)

    def presence(self, cluster: ClusterKey) -> ClusterPresence:
        """Tell how a LogCluster is."""
        manifest = self.clusters.get(cluster)
        if manifest is None:
            return ClusterPresence.ABSENT
        is_deleting = "deletionTimestamp" in manifest["metadata"]
        return ClusterPresence.DELETING if is_deleting else ClusterPresence.PRESENT

    def only_cluster(self, namespace: str) -> str:
        """Name the one LogCluster of a namespace, which Topics that name none mean; empty if there
        is none or more than one."""
        names = [name for place, name in self.clusters if place == namespace]
        return names[0] if len(names) == 1 else ""

    def is_started(self, cluster: ClusterKey) -> bool:
        """Tell whether the controller may be told of single resources of a cluster."""
        view = self.views.get(cluster)
        return view is not None and view.is_started

    def may_act(self, resource: TopicResource) -> bool:
        """Tell whether all is known that a plan for a resource needs."""
        is_present = self.presence(resource.cluster_key) is ClusterPresence.PRESENT
        return not is_present or self.is_started(resource.cluster_key)

    def owner(self, resource: TopicResource) -> str | None:
        """Name the resource that speaks for the topic of this one."""
        owner = self.claims.owner(resource.claim)
        return None if owner is None else owner[1]

    def entry(self, cluster: ClusterKey, topic_name: str) -> Mapping[str, Any] | None:
        """Give what the controller shows of a topic."""
        view = self.views.get(cluster)
        return None if view is None else view.entries.get(topic_name)

    def unentitled_holder(self, resource: TopicResource) -> str:
        """Name the resource that declares this topic at the controller without speaking for it."""
        entry = self.entry(resource.cluster_key, resource.topic_name)
        holder = "" if entry is None else str(entry["resource"] or "")
        if holder in {"", resource.name}:
            return ""
        other = self.resources.get((resource.namespace, holder))
        if other is not None and other.claim != resource.claim and not other.is_mirror:
            return ""  # it has been made anew, for another topic
        return holder

    def complete_request(self, cluster: ClusterKey) -> dict[str, Any]:
        """Build the request that lets all others release their topics; nothing is applied yet."""
        keep = [
            resource.name
            for resource in self.claims.of_cluster(cluster)
            if not resource.is_mirror and self.owner(resource) == resource.name
        ]
        return {"apply": [], "forget": [], "keep": sorted(keep), "isComplete": True}

    def note_gone(self, cluster: ClusterKey, name: str) -> None:
        """Note that a resource declares nothing any more, unless its cluster is gone as well."""
        if self.presence(cluster) is not ClusterPresence.ABSENT:
            self.gone.setdefault(cluster, set()).add(name)

    def gone_told(self, cluster: ClusterKey, names: Iterable[str]) -> None:
        """Note that the controller knows that resources are gone."""
        left = self.gone.get(cluster, set()) - set(names)
        if left:
            self.gone[cluster] = left
        else:
            self.gone.pop(cluster, None)

    def retry_gone(self, cluster: ClusterKey) -> None:
        """Let the queue turn again for what is gone."""
        for name in self.gone.get(cluster, ()):
            self._queue.retry((cluster[0], name))
