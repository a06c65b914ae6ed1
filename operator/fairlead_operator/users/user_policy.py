"""Which parts of a User are withheld, because its author may not grant them. Pure.

Whoever may edit in a namespace may write Users there, and may read all their Secrets. So a User
must not give more than that: the administration of the cluster belongs to those who may write the
LogCluster. Names of topics and groups are not limited: Users, Topics and their LogCluster are in
one namespace, where the same people may delete the topics themselves.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_model.security.acl import AclBinding, Permission, ResourceType
from fairlead_operator.resources.user_policy import (
    DEFAULT_CLUSTER_OPERATIONS,
    DEFAULT_QUOTA_POLICY,
)
from fairlead_operator.specs.listener_security import OPERATOR_USER, own_user
from fairlead_operator.users.user_resource import OPERATIONS, QUOTA_FIELDS, UserResource

SUPER_USERS: Final = "super.users"


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What Users of one cluster may be and grant."""

    cluster_operations: frozenset[str]
    super_users: frozenset[str]
    """Principals that may do everything."""
    exceed_defaults: bool
    """Whether quotas may be above the cluster's defaults."""


def read_limits(cluster: Mapping[str, Any]) -> UserLimits:
    """Read the limits in a LogCluster."""
    spec = cluster.get("spec") or {}
    policy = spec.get("userPolicy") or {}
    allowed = policy.get("clusterOperations", DEFAULT_CLUSTER_OPERATIONS)
    configured = str((spec.get("config") or {}).get(SUPER_USERS) or "").split(";")
    named = (spec.get("authorization") or {}).get("superUsers") or ()
    uid = str((cluster.get("metadata") or {}).get("uid") or "")
    named = (*named, own_user(uid, OPERATOR_USER))
    principals = {each.strip() for each in configured} | {f"User:{each}" for each in named}
    return UserLimits(
        frozenset(allowed),
        frozenset(filter(None, principals)),
        policy.get("quotas", DEFAULT_QUOTA_POLICY) == "Any",
    )


def refusal(resource: UserResource, limits: UserLimits) -> str:
    """Return why a User gets nothing; empty if its rules decide."""
    if resource.principal in limits.super_users:
        return (
            f"{resource.principal} is a super user of LogCluster {resource.cluster}, who may do "
            "everything: a User cannot declare a super user; choose another name"
        )
    if is_own_secret(resource.cluster, resource.name):
        return (
            f"metadata.name: Secrets of LogCluster {resource.cluster} itself have such names; "
            "create the User under another name"
        )
    return ""


def split_rules(
    resource: UserResource, limits: UserLimits
) -> tuple[frozenset[AclBinding], frozenset[AclBinding]]:
    """Return the rules that may be granted, and those that are withheld."""
    allowed = {OPERATIONS[name] for name in limits.cluster_operations}
    left_out = frozenset(
        rule
        for rule in resource.rules
        if rule.resource_type is ResourceType.CLUSTER
        and rule.permission is Permission.ALLOW
        and rule.operation not in allowed
    )
    return resource.rules - left_out, left_out


def describe_left_out(left_out: frozenset[AclBinding]) -> str:
    """Return which rules are withheld, as a message."""
    names = {operation: name for name, operation in OPERATIONS.items()}
    operations = ", ".join(sorted(names[rule.operation] for rule in left_out))
    return (
        f"left out: {operations} on the cluster, which Users may not grant; spec.userPolicy of the "
        "LogCluster lists what they may. All other rules are in force"
    )


def describe_lowered(lowered: Mapping[str, float]) -> str:
    """Return which quotas are lowered, by Kafka's keys, as a message."""
    quotas = ", ".join(
        f"{QUOTA_FIELDS.get(key, key)} to {limit:.17g}" for key, limit in sorted(lowered.items())
    )
    return (
        f"lowered: {quotas}, the cluster's default, which Users may not exceed unless "
        "spec.userPolicy.quotas of the LogCluster is Any. All else is in force"
    )


def is_own_secret(cluster: str, name: str) -> bool:
    """Tell whether a Secret of this name is the cluster's own, now or once the cluster needs it."""
    own = rf"{re.escape(cluster)}-(session|ca|ca-key|security-[0-9]+|.+-tls|.+-issued)"
    return re.fullmatch(own, name) is not None
