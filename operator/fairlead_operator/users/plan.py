"""What to do about one User resource. Pure: facts in, plan out."""

from dataclasses import dataclass

from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.users.user_resource import UserResource


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps for one resource, in this order: finalizer on, Secret, call, finalizer off."""

    names_cluster: bool = False
    """Its only possible cluster is written into its spec; the rest follows after that."""
    is_applied: bool = False
    """It gets its Secret, and the controller gets its declaration."""
    is_forgotten: bool = False
    """The controller is told that it declares no user."""
    adds_finalizer: bool = False
    drops_finalizer: bool = False
    """After the call, if there is one, has succeeded."""


def plan_user(
    resource: UserResource,
    *,
    cluster: ClusterPresence,
    owner: str | None,
    refusal: str = "",
    only_cluster: str = "",
) -> Plan:
    """Decide about a resource.

    `only_cluster` is the cluster of a resource that names none. `owner` is the resource that
    declares the principal. `refusal` says why the resource gets nothing.
    """
    is_present = cluster is ClusterPresence.PRESENT
    if not resource.is_managed:
        drops = resource.is_deleting and resource.has_finalizer
        return Plan(drops_finalizer=drops)
    if resource.is_deleting:
        drops = resource.has_finalizer
        return Plan(is_forgotten=is_present and drops, drops_finalizer=drops)
    if not resource.cluster and only_cluster:
        return Plan(names_cluster=True)
    if not is_present:
        return Plan(drops_finalizer=resource.has_finalizer)
    if resource.problem:
        # The earlier declaration stays: an unreadable manifest declares nothing new.
        return Plan()
    if refusal or owner != resource.name:
        return Plan(is_forgotten=True, drops_finalizer=resource.has_finalizer)
    return Plan(is_applied=True, adds_finalizer=not resource.has_finalizer)
