"""Which namespaces may put Topics into a cluster, under which names, and how many. Pure.

Topics of the cluster's own namespace need no rule. Those of any other namespace are refused until
`spec.topicNamespaces` of the LogCluster names it, because whoever may create a Topic there may use
this cluster's disks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from fairlead_operator.topics.topic_resource import ResourceKey, TopicResource

Refusal = tuple[str, str]
"""Reason and message for a Topic that may not be in its cluster."""
NOT_ALLOWED: Final = "NamespaceNotAllowed"


@dataclass(frozen=True, slots=True)
class NamespaceRule:
    """What one namespace may have; None if there is no limit."""

    topic_prefix: str = ""
    topics_max: int | None = None
    partitions_max: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether its Topics have to be counted."""
        return self.topics_max is not None or self.partitions_max is not None


class LimitUse(NamedTuple):
    """How much of one limit a namespace uses."""

    resource: Literal["topics", "partitions"]
    used: int
    limit: int


def uses_of_limits(
    rule: NamespaceRule, partitions_held: Mapping[ResourceKey, int]
) -> list[LimitUse]:
    """Return how much of each limit the existing topics use (`partitions_held`)."""
    uses = []
    if rule.topics_max is not None:
        uses.append(LimitUse("topics", len(partitions_held), rule.topics_max))
    if rule.partitions_max is not None:
        uses.append(LimitUse("partitions", sum(partitions_held.values()), rule.partitions_max))
    return uses


def read_namespace_rules(log_cluster: Mapping[str, Any]) -> dict[str, NamespaceRule]:
    """Return the rules of a LogCluster by namespace."""
    listed = (log_cluster.get("spec") or {}).get("topicNamespaces") or ()
    return {
        str(each["name"]): NamespaceRule(
            topic_prefix=str(each.get("topicPrefix") or ""),
            topics_max=each.get("topicsMax"),
            partitions_max=each.get("partitionsMax"),
        )
        for each in listed
    }


def may_adopt(resource: TopicResource, rule: NamespaceRule | None) -> bool:
    """Tell whether a Topic may adopt a topic that no resource declares.

    A Topic of another namespace would take a topic that it never created, unless the name has the
    prefix of its namespace.
    """
    return not resource.is_foreign or (rule is not None and bool(rule.topic_prefix))


def refusal_by_rule(resource: TopicResource, rule: NamespaceRule | None) -> Refusal | None:
    """Return why the rules refuse a Topic, apart from quotas; None if they allow it."""
    if rule is None:
        if not resource.is_foreign:
            return None
        message = (
            f"spec.clusterNamespace: LogCluster {resource.cluster_namespace}/{resource.cluster} "
            f"takes no Topics of namespace {resource.namespace}: its spec.topicNamespaces has to "
            "name it"
        )
        return NOT_ALLOWED, message
    if not resource.topic_name.startswith(rule.topic_prefix):
        message = (
            f"spec.topicName: topics of namespace {resource.namespace} begin with "
            f"{rule.topic_prefix!r} in LogCluster {resource.cluster_namespace}/{resource.cluster}"
        )
        return "PrefixRequired", message
    return None


def refusals_by_quota(
    rule: NamespaceRule,
    resources: Iterable[TopicResource],
    partitions_held: Mapping[ResourceKey, int],
    *,
    default_partitions: int,
) -> dict[ResourceKey, Refusal]:
    """Return those of a namespace's Topics that exceed its limits.

    Existing topics stay and count first (`partitions_held`); then the oldest come first. A Topic
    that declares the same as an older Topic adds nothing; its conflict is reported elsewhere.
    """
    topics, partitions = len(partitions_held), sum(partitions_held.values())
    refused: dict[ResourceKey, Refusal] = {}
    admitted: set[tuple[str, str, str]] = set()
    for resource in sorted(resources, key=lambda each: each.claimant):
        held = partitions_held.get(resource.key)
        if held is None and resource.claim in admitted:
            continue
        wanted = resource.partitions or (default_partitions if held is None else held)
        new_topics = int(held is None)
        new_partitions = max(wanted - (held or 0), 0)
        problem = None
        if new_topics or new_partitions:
            problem = _problem(rule, topics + new_topics, partitions + new_partitions)
        if held is not None or problem is None:
            admitted.add(resource.claim)
        if problem is None:
            topics += new_topics
            partitions += new_partitions
        else:
            where = f"namespace {resource.namespace} in LogCluster"
            message = f"{where} {resource.cluster_namespace}/{resource.cluster}: {problem}"
            refused[resource.key] = ("QuotaExceeded", message)
    return refused


def _problem(rule: NamespaceRule, topics: int, partitions: int) -> str | None:
    if rule.topics_max is not None and topics > rule.topics_max:
        return f"{topics} topics, and topicsMax is {rule.topics_max}"
    if rule.partitions_max is not None and partitions > rule.partitions_max:
        return f"{partitions} partitions, and partitionsMax is {rule.partitions_max}"
    return None
