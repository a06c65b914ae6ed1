"""What to do about one Topic resource. Pure: facts in, plan out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fairlead_operator.topics.namespace_rules import NOT_ALLOWED, Refusal
from fairlead_operator.topics.topic_resource import TopicResource


class ClusterPresence(Enum):
    """The state of the LogCluster that a Topic names."""

    PRESENT = "present"
    ABSENT = "absent"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls and writes for one resource, in this order: finalizer on, call, finalizer off."""

    is_applied: bool = False
    """The controller gets its spec."""
    forget: Mapping[str, Any] | None = None
    """The controller is told that the resource was deleted."""
    forget_holder: str = ""
    """Another resource that has to release the topic in the same call."""
    names_cluster: bool = False
    """Its only possible cluster is written into its spec; the rest follows after that."""
    adds_finalizer: bool = False
    drops_finalizer: bool = False
    """After the calls, if there are any, have succeeded."""
    has_status: bool = True
    """The operator writes its status."""


def plan_topic(
    resource: TopicResource,
    *,
    cluster: ClusterPresence,
    owner: str | None,
    holder: str = "",
    only_cluster: str = "",
    refusal: Refusal | None = None,
    is_holder: bool = False,
    is_paused: bool = False,
) -> Plan:
    """Decide about a resource.

    `only_cluster` is the cluster of a resource that names none. `owner` is the resource that
    declares the topic (None if the resource only shows a topic and no other resource claims it).
    `holder` is the resource that declares it at the controller now, if that resource is no longer
    entitled to it. A resource that its cluster does not accept has a `refusal`; `is_holder` if the
    controller knows it nevertheless. While it `is_paused`, the controller is told only of its
    deletion. `owner` and `holder` are references.
    """
    if refusal is not None and refusal[0] == NOT_ALLOWED and resource.is_managed:
        # Its namespace was allowed once: the topic stays, and no resource declares it.
        forget = {"resource": resource.reference, "deleteTopic": False} if is_holder else None
        return Plan(
            forget=forget,
            drops_finalizer=resource.has_finalizer,
            has_status=not resource.is_deleting,
        )
    if resource.is_deleting:
        return _plan_deletion(resource, cluster, owner, is_paused=is_paused)
    if not resource.is_managed:
        return Plan(has_status=False)
    if not resource.cluster and only_cluster:
        return Plan(names_cluster=True, has_status=False)
    if cluster is not ClusterPresence.PRESENT:
        return Plan(drops_finalizer=resource.has_finalizer)
    if refusal is not None:
        return Plan(drops_finalizer=resource.has_finalizer and not is_holder)
    is_owner = resource.is_mirror or owner == resource.reference
    wants = resource.wants_finalizer and is_owner
    is_applied = is_owner and not resource.is_mirror and not is_paused
    return Plan(
        is_applied=is_applied,
        forget_holder=holder if is_applied else "",
        adds_finalizer=wants and not resource.has_finalizer,
        drops_finalizer=resource.has_finalizer and not wants,
    )


def _plan_deletion(
    resource: TopicResource, cluster: ClusterPresence, owner: str | None, *, is_paused: bool
) -> Plan:
    if not resource.has_finalizer:
        return Plan(has_status=False)
    has_topic = resource.is_mirror or owner == resource.reference
    if cluster is not ClusterPresence.PRESENT or not resource.is_managed or not has_topic:
        return Plan(drops_finalizer=True, has_status=False)
    if resource.is_protected:
        return Plan(is_applied=not resource.is_mirror and not is_paused)
    forget: dict[str, Any] = {
        "resource": resource.reference,
        "deleteTopic": resource.reclaim_policy == "Delete",
    }
    if resource.is_mirror:
        forget["topicName"] = resource.topic_name
    return Plan(forget=forget, drops_finalizer=True, has_status=False)
