"""All known Topics in the watch scope: resources, clusters, the controller's view.

`TopicSync` updates it; the reconciler, the status writer and the mirror read it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fairlead_model.resources.topic_claims import read_reference
from fairlead_operator.conditions import is_asleep
from fairlead_operator.specs.views import is_cluster_paused, is_going
from fairlead_operator.topics.claims import Claims
from fairlead_operator.topics.cluster_topics import ClusterTopics, TopicController
from fairlead_operator.topics.namespace_rules import (
    NOT_ALLOWED,
    LimitUse,
    NamespaceRule,
    Refusal,
    may_adopt,
    read_namespace_rules,
    refusal_by_rule,
    refusals_by_quota,
    uses_of_limits,
)
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

    def __init__(
        self,
        controller: TopicController,
        queue: WorkQueue[ResourceKey],
        *,
        is_hidden: Callable[[str], bool] = lambda _: False,
        are_clusters_hidden: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_hidden` tells whether a namespace may have Topics that are not known.

        `are_clusters_hidden` tells the same for LogClusters.
        """
        self.controller = controller
        self.manifests: dict[ResourceKey, dict[str, Any]] = {}
        self.resources: dict[ResourceKey, TopicResource] = {}
        self.claims: Claims[TopicResource] = Claims(self._may_be_there)
        self.results: dict[ResourceKey, tuple[str, int, Mapping[str, Any]]] = {}
        """The controller's last answer: the resource's uid and generation, and the result."""
        self.clusters: dict[ClusterKey, Mapping[str, Any]] = {}
        """LogClusters by namespace and name."""
        self.views: dict[ClusterKey, ClusterTopics] = {}
        self.gone: dict[ClusterKey, set[str]] = {}
        """Deleted resources, by their references, until the controller knows of it."""
        self._rules: dict[ClusterKey, dict[str, NamespaceRule]] = {}
        self._queue = queue
        self._is_hidden = is_hidden
        self._are_clusters_hidden = are_clusters_hidden
        self._over_quota: dict[tuple[ClusterKey, str], dict[ResourceKey, Refusal]] = {}
        """By cluster and namespace, as long as nothing changes there."""
        self._too_many: dict[tuple[ClusterKey, str], frozenset[ResourceKey]] = {}
        """Topics that the last count of a namespace refused."""

    def take(self, key: ResourceKey, manifest: dict[str, Any] | None) -> frozenset[ResourceKey]:
        """Note a resource's present state or its deletion; return the others that it affects."""
        old = self.resources.pop(key, None)
        self.manifests.pop(key, None)
        new = None if manifest is None else read_topic_resource(manifest)
        recounted = self._recount(old) | self._recount(new)
        if new is not None and manifest is not None:
            self.manifests[key], self.resources[key] = manifest, new
        if old is None or new is None or old.uid != new.uid:
            self.results.pop(key, None)
        if old is not None and not old.is_mirror and not self._is_still_there(old, new):
            self.note_gone(self._meant(old), old.reference)
        concerned = self.claims.update(old, new)
        for each in concerned:
            # This resource may own the topic from now on, and then counts.
            self._recount(self.resources[each])
        return (concerned | recounted) - {key}

    def _is_still_there(self, old: TopicResource, new: TopicResource | None) -> bool:
        """Tell whether a resource still declares a topic of the same cluster."""
        if new is None or new.is_mirror or old.uid != new.uid:
            return False
        return self._meant(new) == self._meant(old)

    def _meant(self, resource: TopicResource) -> ClusterKey:
        """Return the cluster that a resource names, or that is about to be written into it."""
        return resource.cluster_namespace, resource.cluster or self.only_cluster(resource)

    def set_cluster(self, cluster: ClusterKey, manifest: Mapping[str, Any] | None) -> None:
        """Note a LogCluster's present state, or its deletion."""
        before = self.clusters.pop(cluster, {})
        if manifest is not None:
            self.clusters[cluster] = manifest
        if manifest is None or manifest.get("spec") != before.get("spec"):
            self._rules.pop(cluster, None)
            self.forget_counts(cluster)

    def forget_counts(self, cluster: ClusterKey) -> None:
        """Count a cluster's topics again, because some were created, deleted or enlarged.

        Topics that exceeded a limit are checked again.
        """
        for place, refused in self._too_many.items():
            if place[0] == cluster:
                self._over_quota.pop(place, None)
                for key in refused:
                    self._queue.add(key)

    def refusal(self, resource: TopicResource) -> Refusal | None:
        """Return why the cluster refuses a resource; None if it accepts it, or does not exist."""
        if resource.is_mirror or resource.cluster_key not in self.clusters:
            return None
        rule = self._rule(resource)
        by_rule = refusal_by_rule(resource, rule)
        if by_rule is not None or rule is None or not rule.is_bounded:
            return by_rule
        return self._refusals_by_quota(resource, rule).get(resource.key)

    def may_adopt(self, resource: TopicResource) -> bool:
        """Tell whether a resource may adopt a topic that no resource declares."""
        return may_adopt(resource, self._rule(resource))

    def is_holder(self, resource: TopicResource) -> bool:
        """Tell whether a resource declares its topic at the controller now."""
        entry = self.entry(resource.cluster_key, resource.topic_name)
        return entry is not None and entry["resource"] == resource.reference

    def limit_uses(self) -> Iterator[tuple[ClusterKey, str, LimitUse]]:
        """Yield cluster, namespace and use, for each limit that a namespace has.

        A cluster whose topics are not known yet yields nothing.
        """
        for cluster in self.clusters:
            bounded = {
                name: rule for name, rule in self._rules_of(cluster).items() if rule.is_bounded
            }
            if not bounded or not self.is_started(cluster):
                continue
            held: dict[str, dict[ResourceKey, int]] = {name: {} for name in bounded}
            for each in self.claims.of_cluster(cluster):
                if each.namespace in held and self._is_counted(each) and self.is_holder(each):
                    held[each.namespace][each.key] = self._partitions(each)
            for name, rule in bounded.items():
                for use in uses_of_limits(rule, held[name]):
                    yield cluster, name, use

    def _rule(self, resource: TopicResource) -> NamespaceRule | None:
        return self._rules_of(resource.cluster_key).get(resource.namespace)

    def _rules_of(self, cluster: ClusterKey) -> dict[str, NamespaceRule]:
        rules = self._rules.get(cluster)
        if rules is None:
            rules = self._rules[cluster] = read_namespace_rules(self.clusters.get(cluster, {}))
        return rules

    @staticmethod
    def _is_counted(resource: TopicResource) -> bool:
        """Tell whether a Topic counts towards the limits of its namespace."""
        return not resource.is_mirror and resource.is_managed

    def _refusals_by_quota(
        self, resource: TopicResource, rule: NamespaceRule
    ) -> dict[ResourceKey, Refusal]:
        place = (resource.cluster_key, resource.namespace)
        known = self._over_quota.get(place)
        if known is None:
            resources = [
                each
                for each in self.claims.of_cluster(resource.cluster_key)
                if each.namespace == resource.namespace
                and self._is_counted(each)
                and not self._is_taken(each)
            ]
            defaults = (self.clusters[resource.cluster_key].get("spec") or {}).get("defaults") or {}
            known = self._over_quota[place] = refusals_by_quota(
                rule,
                resources,
                {each.key: self._partitions(each) for each in resources if self.is_holder(each)},
                default_partitions=int(defaults.get("partitions") or 1),
            )
            self._too_many[place] = frozenset(known)
        return known

    def _is_taken(self, resource: TopicResource) -> bool:
        """Tell whether the topic exists and cannot be had: such a conflict never counts.

        The topic then belongs to an older resource, or no resource declares it and it may not be
        adopted.
        """
        entry = self.entry(resource.cluster_key, resource.topic_name)
        if entry is None or self.is_holder(resource):
            return False
        holder = str(entry["resource"] or "")
        if not holder:
            return not self.may_adopt(resource)
        other = self.resources.get(
            read_reference(holder, cluster_namespace=resource.cluster_namespace)
        )
        if other is None or other.is_mirror or other.claim != resource.claim:
            return False
        return other.claimant < resource.claimant

    def _partitions(self, resource: TopicResource) -> int:
        entry = self.entry(resource.cluster_key, resource.topic_name)
        return 0 if entry is None else int(entry["partitions"])

    def _recount(self, resource: TopicResource | None) -> frozenset[ResourceKey]:
        """Drop the count that includes a resource; return the Topics that exceeded it."""
        if resource is None:
            return frozenset()
        place = (resource.cluster_key, resource.namespace)
        self._over_quota.pop(place, None)
        return self._too_many.get(place, frozenset())

    def _may_be_there(self, key: ResourceKey) -> bool:
        resource = self.resources[key]
        return self.refusal(resource) is None or self.is_holder(resource)

    def presence(self, cluster: ClusterKey) -> ClusterPresence:
        """Return the state of a LogCluster."""
        manifest = self.clusters.get(cluster)
        if manifest is None:
            return ClusterPresence.ABSENT
        return ClusterPresence.DELETING if is_going(manifest) else ClusterPresence.PRESENT

    def is_paused(self, resource: TopicResource) -> bool:
        """Tell whether a resource, or its whole cluster, is to be left unchanged."""
        cluster = self.clusters.get(resource.cluster_key)
        return resource.is_paused or (cluster is not None and is_cluster_paused(cluster))

    def is_asleep(self, resource: TopicResource) -> bool:
        """Tell whether a resource's cluster hibernates."""
        return is_asleep(self.clusters.get(resource.cluster_key) or {})

    def only_cluster(self, resource: TopicResource) -> str:
        """Return the only LogCluster of a namespace; empty if there is none, or more than one.

        Topics of this namespace that name no cluster use that LogCluster.
        """
        if resource.is_foreign:
            return ""
        names = [name for place, name in self.clusters if place == resource.namespace]
        return names[0] if len(names) == 1 else ""

    def is_started(self, cluster: ClusterKey) -> bool:
        """Tell whether the controller may be told of single resources of a cluster."""
        view = self.views.get(cluster)
        return view is not None and view.is_started

    def is_unknown(self, cluster: ClusterKey) -> bool:
        """Tell whether LogClusters may not be read here: then an unknown one is not absent."""
        return cluster not in self.clusters and self._are_clusters_hidden(cluster[0])

    def may_act(self, resource: TopicResource) -> bool:
        """Tell whether everything is known that a plan for a resource needs."""
        if self.is_unknown(resource.cluster_key):
            # Its namespace may be deleted for good, and the deletion of a resource must not wait
            # for that.
            return resource.is_deleting and not resource.is_protected
        is_present = self.presence(resource.cluster_key) is ClusterPresence.PRESENT
        return not is_present or self.is_started(resource.cluster_key)

    def farewell(self, resource: TopicResource) -> str:
        """Return a message that a resource's topic stays, if its owner would expect a deletion.

        Empty if there is nothing to report.
        """
        place = f"{resource.cluster_namespace}/{resource.cluster}"
        topic = f"topic {resource.topic_name!r}"
        if self.is_unknown(resource.cluster_key):
            if not resource.is_deleting or resource.reclaim_policy != "Delete":
                return ""
            return (
                f"{topic} stays if LogCluster {place} is there, whatever reclaimPolicy says: the "
                f"operator may not read LogClusters of namespace {resource.cluster_namespace}"
            )
        refusal = self.refusal(resource)
        if refusal is None or refusal[0] != NOT_ALLOWED or not self.is_holder(resource):
            return ""
        return (
            f"{topic} stays in LogCluster {place}, declared by nobody, also when this Topic is "
            f"deleted: spec.topicNamespaces does not name {resource.namespace} any more"
        )

    def owner(self, resource: TopicResource) -> str | None:
        """Return the reference of the resource that declares the topic of this one."""
        owner = self.claims.owner(resource.claim)
        return None if owner is None else self.resources[owner].reference

    def entry(self, cluster: ClusterKey, topic_name: str) -> Mapping[str, Any] | None:
        """Return what the controller shows of a topic."""
        view = self.views.get(cluster)
        return None if view is None else view.entries.get(topic_name)

    def unentitled_holder(self, resource: TopicResource) -> str:
        """Return the resource that declares this topic at the controller without being entitled."""
        entry = self.entry(resource.cluster_key, resource.topic_name)
        holder = "" if entry is None else str(entry["resource"] or "")
        if holder in {"", resource.reference}:
            return ""
        key = read_reference(holder, cluster_namespace=resource.cluster_namespace)
        other = self.resources.get(key)
        if other is None and self._is_hidden(key[0]):
            return ""  # it may exist, and be older
        if other is not None and other.claim != resource.claim and not other.is_mirror:
            return ""  # it was created again, for another topic
        return holder

    def complete_request(self, cluster: ClusterKey) -> dict[str, Any]:
        """Build the request that lets all other resources release their topics; it applies nothing.

        Topics that a namespace declares which may not be read stay declared.
        """
        keep = {
            resource.reference
            for resource in self.claims.of_cluster(cluster)
            if not resource.is_mirror and self.owner(resource) == resource.reference
        }
        view = self.views.get(cluster)
        for entry in () if view is None else view.entries.values():
            holder = str(entry["resource"] or "")
            key = read_reference(holder, cluster_namespace=cluster[0])
            if holder and key not in self.resources and self._is_hidden(key[0]):
                keep.add(holder)
        return {"apply": [], "forget": [], "keep": sorted(keep), "isComplete": True}

    def find_orphan(self, cluster: ClusterKey, topic_name: str) -> str:
        """Return the resource that declares a topic and does not exist; empty if there is none."""
        entry = self.entry(cluster, topic_name)
        holder = "" if entry is None else str(entry["resource"] or "")
        key = read_reference(holder, cluster_namespace=cluster[0])
        return "" if key in self.resources or self._is_hidden(key[0]) else holder

    def note_gone(self, cluster: ClusterKey, reference: str) -> None:
        """Note that a resource declares nothing any more, unless its cluster is deleted, too."""
        if self.presence(cluster) is not ClusterPresence.ABSENT:
            self.gone.setdefault(cluster, set()).add(reference)

    def gone_told(self, cluster: ClusterKey, references: Iterable[str]) -> None:
        """Note that the controller knows that resources were deleted."""
        left = self.gone.get(cluster, set()) - set(references)
        if left:
            self.gone[cluster] = left
        else:
            self.gone.pop(cluster, None)

    def retry_gone(self, cluster: ClusterKey) -> None:
        """Have the queue try deleted resources again."""
        for reference in self.gone.get(cluster, ()):
            self._queue.retry(read_reference(reference, cluster_namespace=cluster[0]))
