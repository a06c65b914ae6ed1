"""The status of a User: what became of its spec. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fairlead_model.security.acl import AclBinding
from fairlead_operator.conditions import find_condition, set_condition, shortened
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_status import READY, Verdict
from fairlead_operator.users.user_policy import describe_left_out, describe_lowered
from fairlead_operator.users.user_resource import UserResource

Problem = tuple[str, str]
"""A reason and a message."""
PASSING: Final = frozenset({"BrokersBehind", "CredentialNeeded", "ControllerUnavailable"})
"""Reasons that end by themselves, so no Event reports them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSight:
    """What is known of one User."""

    cluster: ClusterPresence
    owner: str | None
    """The resource that declares the principal."""
    refusal: str = ""
    """Why the resource gets nothing."""
    left_out: frozenset[AclBinding] = frozenset()
    secret_problem: Problem | None = None
    has_listener: bool = True
    """Whether a listener accepts its login."""
    result: Mapping[str, Any] | None = None
    """The controller's answer to this spec."""


def judge(resource: UserResource, sight: UserSight) -> Verdict | None:  # noqa: PLR0911
    """Return the content of `Ready`; None while there is nothing to report yet."""
    if not resource.cluster:
        message = (
            f"spec.clusterName: name one of the LogClusters in namespace {resource.namespace}; it "
            "may be left out only where there is exactly one"
        )
        return False, "ClusterNotFound", message
    if sight.cluster is not ClusterPresence.PRESENT:
        what = "is being deleted" if sight.cluster is ClusterPresence.DELETING else "does not exist"
        place = f"LogCluster {resource.namespace}/{resource.cluster}"
        return False, "ClusterNotFound", f"spec.clusterName: {place} {what}"
    if resource.problem:
        return False, "InvalidSpec", resource.problem
    if sight.refusal:
        return False, "NotAllowed", sight.refusal
    if sight.owner != resource.name:
        message = (
            f"User {sight.owner} is older and declares {resource.principal} too; delete one of the "
            "two"
        )
        return False, "Conflict", message
    if sight.result is not None and sight.result["state"] != "ok":
        return False, str(sight.result["reason"]), str(sight.result["message"])
    if sight.secret_problem is not None:
        return False, *sight.secret_problem
    if sight.result is None:
        return None
    if not sight.has_listener:
        message = (
            f"no listener of LogCluster {resource.cluster}, nor its HTTP API, has "
            f"authentication.type {resource.login}, so the Secret says nothing about where to "
            "connect"
        )
        return False, "NoListener", message
    if sight.left_out:
        return False, "NotAllowed", describe_left_out(sight.left_out)
    if lowered := sight.result.get("lowered"):
        return False, "NotAllowed", describe_lowered(lowered)
    return True, "Ready", "its rights are in force, and its Secret has what a client needs"


def build_user_status(
    resource: UserResource,
    before: Mapping[str, Any],
    verdict: Verdict,
    *,
    rules: int | None,
    has_secret: bool,
    now: datetime,
) -> dict[str, Any]:
    """Return the status; equal to the one before if nothing has changed.

    `rules` is None if it has no rights of its own.
    """
    is_ready, reason, message = verdict
    conditions = set_condition(
        before.get("conditions") or [],
        READY,
        is_ready,
        reason,
        message,
        generation=resource.generation,
        now=now,
    )
    status: dict[str, Any] = {
        "conditions": conditions,
        "observedGeneration": resource.generation,
    }
    if resource.user:
        status["principal"] = resource.principal
    if rules is not None:
        status["rules"] = rules
    if has_secret:
        status["secret"] = resource.name
    return status


def turned_bad(before: Mapping[str, Any], verdict: Verdict) -> bool:
    """Tell whether a resource is not ready for a new reason that does not end by itself."""
    is_ready, reason, message = verdict
    if is_ready or reason in PASSING:
        return False
    known = find_condition(before.get("conditions") or [], READY)
    if known is None:
        return True
    return (known.get("reason"), known.get("message")) != (reason, shortened(message))
