"""Which resource speaks for a topic: of several with one topicName the oldest, then by name.

Kept up to date change by change. Resources that only show a topic made over Kafka claim nothing.
"""

from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey, TopicResource

Claim = tuple[str, str, str]


class Claims:
    """All claims in the watch scope."""

    def __init__(self) -> None:
        self._by_topic: dict[Claim, dict[ResourceKey, tuple[str, str]]] = {}
        self._by_cluster: dict[ClusterKey, dict[ResourceKey, TopicResource]] = {}

    def update(
        self, old: TopicResource | None, new: TopicResource | None
    ) -> frozenset[ResourceKey]:
        """Take a change; give the other resources that it may concern."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._by_cluster.setdefault(new.cluster_key, {})[new.key] = new
            if not new.is_mirror:
                contenders = self._by_topic.setdefault(new.claim, {})
                contenders[new.key] = (new.created, new.name)
        concerned: set[ResourceKey] = set()
        for each in (old, new):
            if each is not None:
                concerned |= self._by_topic.get(each.claim, {}).keys() - {each.key}
        return frozenset(concerned)

    def owner(self, claim: Claim) -> ResourceKey | None:
        """Give the resource that speaks for a topic."""
        contenders = self._by_topic.get(claim)
        return min(contenders, key=contenders.__getitem__) if contenders else None

    def of_cluster(self, cluster: ClusterKey) -> list[TopicResource]:
        """Give all resources that name a cluster."""
        return list(self._by_cluster.get(cluster, {}).values())

    def _remove(self, resource: TopicResource) -> None:
        of_cluster = self._by_cluster.get(resource.cluster_key, {})
        of_cluster.pop(resource.key, None)
        if not of_cluster:
            self._by_cluster.pop(resource.cluster_key, None)
        contenders = self._by_topic.get(resource.claim, {})
        contenders.pop(resource.key, None)
        if not contenders:
            self._by_topic.pop(resource.claim, None)
