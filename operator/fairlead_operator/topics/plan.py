"""What is to be done about one Topic resource. Pure: what is known in, what to do out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fairlead_operator.topics.topic_resource import TopicResource


class ClusterPresence(Enum):
    """How the LogCluster that a Topic names is."""

    PRESENT = "present"
    ABSENT = "absent"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls and writes for one resource, in this order: finalizer on, call, finalizer off."""

    is_applied: bool = False
    """The controller is told its spec."""
    forget: Mapping[str, Any] | None = None
    """The controller is told that it goes."""
    forget_holder: str = ""
    """Another resource that has to let go of the topic in the same call."""
    names_cluster: bool = False
    """The cluster that it means is written into it; everything else follows from there."""
    adds_finalizer: bool = False
    drops_finalizer: bool = False
    """After the calls, if there are any, have succeeded."""
    has_status: bool = True
    """Its status is ours to write."""


def plan_topic(
    resource: TopicResource,
    *,
    cluster: ClusterPresence,
    owner: str | None,
    holder: str = "",
    only_cluster: str = "",
) -> Plan:
    """Decide about a resource.

    `only_cluster` is the one that a resource means which names none.
    `owner` is the resource that speaks for the topic (None for a mirror whose topic nobody claims);
    `holder` the one that declares it at the controller now, where that has no right to it any more.
    """
    if resource.is_deleting:
        return _plan_deletion(resource, cluster, owner)
    if not resource.is_managed:
        return Plan(has_status=False)
    if not resource.cluster and only_cluster:
        return Plan(names_cluster=True, has_status=False)
    if cluster is not ClusterPresence.PRESENT:
        return Plan(drops_finalizer=resource.has_finalizer)
    is_owner = resource.is_mirror or owner == resource.name
    wants = resource.wants_finalizer and is_owner
    return Plan(
        is_applied=is_owner and not resource.is_mirror,
        forget_holder=holder if is_owner and not resource.is_mirror else "",
        adds_finalizer=wants and not resource.has_finalizer,
        drops_finalizer=resource.has_finalizer and not wants,
    )


def _plan_deletion(resource: TopicResource, cluster: ClusterPresence, owner: str | None) -> Plan:
    if not resource.has_finalizer:
        return Plan(has_status=False)
    has_topic = resource.is_mirror or owner == resource.name
    if cluster is not ClusterPresence.PRESENT or not resource.is_managed or not has_topic:
        return Plan(drops_finalizer=True, has_status=False)
    if resource.is_protected:
        return Plan(is_applied=not resource.is_mirror)
    forget: dict[str, Any] = {
        "resource": resource.name,
        "deleteTopic": resource.reclaim_policy == "Delete",
    }
    if resource.is_mirror:
        forget["topicName"] = resource.topic_name
    return Plan(forget=forget, drops_finalizer=True, has_status=False)
