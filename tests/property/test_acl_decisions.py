"""Decisions of the index against a small model of Kafka's authorizer, which knows no index.

The model is written from the words of `StandardAuthorizerData` and of the interface `Authorizer`,
rule by rule, and shares nothing with the product but the shape of a rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead_broker.authorization import Principal
from fairlead_broker.security.standard_authorizer import StandardAuthorizer
from fairlead_model.cluster import AclChanged
from fairlead_model.security.acl import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
OPERATIONS = tuple(each for each in Operation if each >= Operation.ALL)
NAMES = ("a", "ab", "abc", "b", "*", "*a", "hardcode")
USERS = ("User:a", "User:b", "User:*", "User:super")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")

rules = st.builds(
    AclBinding,
    st.sampled_from(TYPES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(NAMES),
    st.sampled_from(USERS[:3]),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


def covers(rule: AclBinding, kind: ResourceType, name: str) -> bool:
    if rule.resource_type != kind:
        return False
    if rule.pattern_type == PatternType.PREFIXED:
        return name[: len(rule.name)] == rule.name
    return rule.name == "*" or rule.name == name


def is_for(rule: AclBinding, principal: str, host: str) -> bool:
    return rule.principal in {principal, "User:*"} and rule.host in {host, "*"}


def model(
    held: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    default: bool,
) -> bool:
    if principal == "User:super":
        return True
    applying = [rule for rule in held if covers(rule, kind, name)]
    if not applying:
        return default
    enough = {operation, Operation.ALL}
    if any(
        is_for(rule, principal, host)
        and rule.operation in enough
        and rule.permission == Permission.DENY
        for rule in applying
    ):
        return False
    if operation == Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(
        is_for(rule, principal, host)
        and rule.operation in enough
        and rule.permission == Permission.ALLOW
        for rule in applying
    )


def model_by_type(
    held: Iterable[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    *,
    default: bool,
) -> bool:
    if model(held, principal, host, operation, kind, "hardcode", default=default):
        return True
    mine = [
        rule
        for rule in held
        if rule.resource_type == kind
        and is_for(rule, principal, host)
        and rule.operation in {operation, Operation.ALL}
    ]
    denied = [rule for rule in mine if rule.permission == Permission.DENY]
    if any(rule.pattern_type == PatternType.LITERAL and rule.name == "*" for rule in denied):
        return False
    for rule in mine:
        if rule.permission == Permission.DENY:
            continue
        if rule.pattern_type == PatternType.LITERAL and rule.name == "*":
            return True
        same = rule._replace(permission=Permission.DENY)
        hidden = rule.pattern_type == PatternType.LITERAL and any(
            (each.pattern_type, each.name) == (same.pattern_type, same.name) for each in denied
        )
        hidden = hidden or any(
            each.pattern_type == PatternType.PREFIXED and rule.name.startswith(each.name)
            for each in denied
        )
        if not hidden:
            return True
    return False


def everyone(held: set[AclBinding], authorizer: StandardAuthorizer, *, default: bool) -> None:
    """Compare every question that the rules can be asked."""
    for user in ("a", "b", "super"):
        who = Principal("User", user)
        for kind in TYPES:
            for operation in OPERATIONS:
                wanted = model_by_type(held, str(who), "10.0.0.1", operation, kind, default=default)
                assert authorizer.is_allowed_for_some(who, "10.0.0.1", operation, kind) == wanted
                for name in ("a", "ab", "c", "*a"):
                    wanted = model(
                        held, str(who), "10.0.0.1", operation, kind, name, default=default
                    )
                    question = (who, "10.0.0.1", operation, kind, name)
                    assert authorizer.is_allowed(*question) == wanted
                    assert authorizer.would_allow(*question) == wanted
                    assert authorizer.is_allowed(*question) == wanted  # And from memory.


LITERAL_ALLOW = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "a",
    "User:a",
    "*",
    Operation.READ,
    Permission.ALLOW,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(rules, max_size=8),
    st.lists(st.tuples(rules, st.booleans()), max_size=6),
    st.booleans(),
)
@example([LITERAL_ALLOW], [(LITERAL_ALLOW._replace(permission=Permission.DENY), False)], False)
def test_decisions_are_those_of_kafkas_authorizer(
    first: list[AclBinding], later: list[tuple[AclBinding, bool]], default: bool
) -> None:
    authorizer = StandardAuthorizer({"User:super"}, allows_without_rules=default)
    authorizer.load(first)
    held = set(first)
    everyone(held, authorizer, default=default)
    for rule, is_removed in later:
        authorizer.change([AclChanged(rule, is_removed=is_removed)])
        if is_removed:
            held.discard(rule)
        else:
            held.add(rule)
    everyone(held, authorizer, default=default)


filters = st.builds(
    AclFilter,
    st.sampled_from((ResourceType.ANY, *TYPES)),
    st.sampled_from(list(PatternType)[1:]),
    st.sampled_from((None, *NAMES)),
    st.sampled_from((None, *USERS)),
    st.sampled_from((None, *HOSTS)),
    st.sampled_from((Operation.ANY, *OPERATIONS)),
    st.sampled_from([Permission.ANY, Permission.ALLOW, Permission.DENY]),
)


@settings(max_examples=500, deadline=None)
@given(filters, rules)
def test_filters_select_what_kafkas_select(wanted: AclFilter, rule: AclBinding) -> None:
    """As ResourcePatternFilter.matches and AccessControlEntryFilter.matches say it."""
    expected = True
    if wanted.resource_type != ResourceType.ANY and wanted.resource_type != rule.resource_type:
        expected = False
    if wanted.pattern_type in {PatternType.LITERAL, PatternType.PREFIXED}:
        expected = expected and wanted.pattern_type == rule.pattern_type
    if wanted.name is not None:
        if wanted.pattern_type != PatternType.MATCH:
            expected = expected and wanted.name == rule.name
        elif rule.pattern_type == PatternType.LITERAL:
            expected = expected and rule.name in {wanted.name, "*"}
        else:
            expected = expected and wanted.name.startswith(rule.name)
    expected = expected and wanted.principal in {None, rule.principal}
    expected = expected and wanted.host in {None, rule.host}
    expected = expected and wanted.operation in {Operation.ANY, rule.operation}
    expected = expected and wanted.permission in {Permission.ANY, rule.permission}
    assert wanted.matches(rule) == expected
