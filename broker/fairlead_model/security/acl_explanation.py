"""Explain, rule by rule, why an operation is allowed or denied. Pure.

`AclIndex.decide` decides; this module reports what each rule contributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_model.security.acl import ANY_NAME, ANY_USER, Operation, Permission
from fairlead_model.security.acl_index import IMPLIED_BY, AclIndex, comparable_host

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fairlead_model.security.acl import AclBinding, ResourceType


class JudgedRule(NamedTuple):
    """A rule that applies to the resource, and its effect on this question."""

    rule: AclBinding
    verdict: str


class Explanation(NamedTuple):
    """A decision and its reasons."""

    is_allowed: bool
    reason: str
    rules: list[JudgedRule]
    """The rules that apply to the resource, for any principal."""


def explain(
    rules: Iterable[AclBinding],
    question: tuple[str, str, Operation, ResourceType, str],
    *,
    super_users: Collection[str],
    allows_without_rules: bool,
) -> Explanation:
    """Explain a decision. `question` is a principal, host, operation, resource type and name."""
    principal, host, operation, resource_type, name = question
    index = AclIndex(rules, allows_without_rules=allows_without_rules)
    decision = index.decide(*question)
    judged = [
        JudgedRule(rule, _verdict(rule, principal, host, operation))
        for rule in sorted(index.applying_rules(resource_type, name))
    ]
    if principal in super_users:
        return Explanation(True, f"{principal} is in super.users: no rule counts", judged)
    if decision.rule is not None:
        verb = "allows" if decision.is_allowed else "denies"
        return Explanation(decision.is_allowed, f"a rule {verb} it: {decision.rule}", judged)
    if decision.has_rules:
        reason = "rules apply to this resource, and none of them allows it"
    else:
        setting = "true" if allows_without_rules else "false"
        reason = (
            "no rule of anybody applies to this resource, and "
            f"allow.everyone.if.no.acl.found={setting}"
        )
    return Explanation(decision.is_allowed, reason, judged)


def _verdict(rule: AclBinding, principal: str, host: str, operation: Operation) -> str:
    if rule.principal not in (principal, ANY_USER):
        return "is for another user"
    if rule.host != ANY_NAME and comparable_host(rule.host) != comparable_host(host):
        return "is for another host"
    if rule.operation not in (operation, Operation.ALL):
        implied_by = IMPLIED_BY.get(operation, ())
        if rule.operation not in implied_by:
            return "is for another operation"
        if rule.permission is Permission.DENY:
            return f"denies {rule.operation.name}, which says nothing of {operation.name}"
        return f"allows it: {rule.operation.name} implies {operation.name}"
    return "denies it" if rule.permission is Permission.DENY else "allows it"
