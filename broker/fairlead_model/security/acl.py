"""Access rules: Kafka's ACL bindings, the filters that select them, and the numbers of both.

Bindings are compared by value: two with the same seven fields are one rule. The names of the
enumerations are those that Kafka's tools print.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from fairlead_model.host_address import is_address

ANY_NAME: Final = "*"
"""Name of a literal pattern: every resource of the type. As a host: every address."""
ANY_USER: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
ACL_TEXT_MAX: Final = 1_000
"""Most characters of a name, a principal or a host in a rule."""


class ResourceType(IntEnum):
    """Kinds of resources (`org.apache.kafka.common.resource.ResourceType`)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a rule is compared (`PatternType`); ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done to a resource (`AclOperation`)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule allows or denies (`AclPermissionType`)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclBinding(NamedTuple):
    """One access rule."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    """`Type:name`, such as `User:alice`; `User:*` means every user."""
    host: str
    """An address as text, or `*`."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        pattern = "" if self.pattern_type is PatternType.LITERAL else "prefix "
        host = "" if self.host == ANY_NAME else f" from {self.host}"
        return (
            f"{self.permission.name} {self.principal}{host} {self.operation.name} "
            f"{self.resource_type.name} {pattern}{self.name}"
        )


class AclFilter(NamedTuple):
    """Selects rules; None and ANY select everything."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str | None
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, rule: AclBinding) -> bool:
        """Tell whether a rule is selected (`AclBindingFilter.matches`)."""
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
            and self._matches_pattern(rule)
        )

    def _matches_pattern(self, rule: AclBinding) -> bool:
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or applies_to(rule, self.name)
        return self.pattern_type in (PatternType.ANY, rule.pattern_type) and self.name in (
            None,
            rule.name,
        )


def applies_to(rule: AclBinding, name: str) -> bool:
    """Tell whether the pattern of a rule covers a resource of this name."""
    if rule.pattern_type is PatternType.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, ANY_NAME)


def binding_problem(rule: AclBinding) -> str:
    """Return why Kafka would refuse this rule (`AclControlManager.validateNewAcl`), or ""."""
    if rule.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"a rule is for one type of resources, not {rule.resource_type.name}"
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"a rule's pattern is LITERAL or PREFIXED, not {rule.pattern_type.name}"
    if rule.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"a rule is for one operation or ALL, not {rule.operation.name}"
    if rule.permission not in (Permission.ALLOW, Permission.DENY):
        return f"a rule says ALLOW or DENY, not {rule.permission.name}"
    if not rule.name:
        return "a rule names a resource; the name is empty"
    if rule.resource_type is ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        return f"the only resource of the type CLUSTER is {CLUSTER_NAME}"
    kind, colon, user = rule.principal.partition(":")
    if not (kind and colon and user):
        return "a principal is written as Type:name, such as User:alice"
    if not rule.host:
        return "a rule names a host, or * for all"
    if max(len(rule.name), len(rule.principal), len(rule.host)) > ACL_TEXT_MAX:
        return f"name, principal and host have at most {ACL_TEXT_MAX} characters each"
    return ""


def host_problem(host: str) -> str:
    """Return why no client can ever match a rule's host, or "".

    Brokers accept such a rule, as Kafka's do; then a rule that denies would deny nobody.
    """
    if host == ANY_NAME or is_address(host):
        return ""
    return f"{host!r} is no address: rules are for one address or for *, not a name or a network"


def filter_problem(wanted: AclFilter) -> str:
    """Return why a filter cannot be applied, or "": it has an unknown number."""
    for value in (
        wanted.resource_type,
        wanted.pattern_type,
        wanted.operation,
        wanted.permission,
    ):
        if value.name == "UNKNOWN":
            return f"the filter has an unknown {type(value).__name__}"
    return ""
