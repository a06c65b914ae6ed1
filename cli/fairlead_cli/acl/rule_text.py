"""Parse access rules as users write them: `WRITE topic:orders`. Pure.

    OPERATION[,OPERATION…] TYPE:NAME
    OPERATION[,OPERATION…] cluster

Types are topic, group, transactional-id and cluster. A name that ends in `*` is a prefix, and `*`
alone is every name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_model.security.acl import (
    ANY_NAME,
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding_problem,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

RESOURCE_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.CLUSTER,
}
_OPERATIONS: Final = {
    each.name.replace("_", "").lower(): each
    for each in Operation
    if Operation.ALL <= each <= Operation.IDEMPOTENT_WRITE
}
"""The operations of these resource types."""
_EXAMPLE: Final = "'WRITE topic:orders'"


def parse_rules(
    texts: Iterable[str], principal: str, *, host: str, permission: Permission
) -> list[AclBinding]:
    """Return the rules of these texts; ValueError says what is wrong with one."""
    rules: dict[AclBinding, None] = {}
    for text in texts:
        operations, resource_type, pattern_type, name = parse_rights(text)
        for operation in operations:
            rule = AclBinding(
                resource_type, pattern_type, name, principal, host, operation, permission
            )
            if problem := binding_problem(rule):
                raise ValueError(f"{text!r}: {problem}")
            rules[rule] = None
    return list(rules)


def parse_rights(text: str) -> tuple[list[Operation], ResourceType, PatternType, str]:
    """Read operations, type of resource, pattern and name."""
    verbs, blank, resource = text.strip().partition(" ")
    if not blank:
        raise ValueError(f"{text!r} is not written as OPERATION TYPE:NAME, such as {_EXAMPLE}")
    resource_type, pattern_type, name = parse_resource(resource.strip())
    return [parse_operation(verb) for verb in verbs.split(",")], resource_type, pattern_type, name


def parse_operation(text: str) -> Operation:
    """Read an operation; describe-configs, DESCRIBE_CONFIGS and DescribeConfigs are the same."""
    operation = _OPERATIONS.get(text.strip().replace("_", "").replace("-", "").lower())
    if operation is None:
        known = ", ".join(each.name for each in _OPERATIONS.values())
        raise ValueError(f"there is no operation {text.strip()!r}; there are {known}")
    return operation


def parse_resource(text: str) -> tuple[ResourceType, PatternType, str]:
    """Read TYPE:NAME, or cluster."""
    kind, colon, name = text.partition(":")
    resource_type = RESOURCE_TYPES.get(kind.lower())
    if resource_type is None:
        raise ValueError(f"{text!r}: a resource is one of {', '.join(RESOURCE_TYPES)}")
    if resource_type is ResourceType.CLUSTER:
        return resource_type, PatternType.LITERAL, name or CLUSTER_NAME
    if not colon or not name:
        raise ValueError(f"{text!r} names no resource; write {kind}:NAME, or {kind}:* for all")
    if name.endswith(ANY_NAME) and name != ANY_NAME:
        return resource_type, PatternType.PREFIXED, name.removesuffix(ANY_NAME)
    return resource_type, PatternType.LITERAL, name


def resource_text(rule: AclBinding) -> str:
    """Return the resource of a rule in the form that `parse_resource` reads."""
    if rule.resource_type is ResourceType.CLUSTER:
        return "cluster"
    kind = rule.resource_type.name.lower().replace("_", "-")
    star = ANY_NAME if rule.pattern_type is PatternType.PREFIXED else ""
    return f"{kind}:{rule.name}{star}"


def principal_of(user: str) -> str:
    """Return the principal for a user's name; a name with a type is returned unchanged."""
    return user if user.startswith("User:") else f"User:{user}"
