"""Access rules, indexed by resource and principal, and the decision that follows. Pure.

The order of decisions is that of Kafka's `StandardAuthorizerData`:

1. Take the rules that apply to the resource: literals of its name, literal `*`, prefixes of it.
2. Of these, take the rules for this principal (or `User:*`), host (or `*`) and operation (or ALL).
   A rule that allows an operation also allows the operations that it implies.
3. If any of these rules denies, the answer is no; else, if any allows, the answer is yes.
4. If no rule for any principal applies to the resource, `allow.everyone.if.no.acl.found` decides.

The caller handles super users before all of this. A decision looks only at rules of its principal
and of `User:*`, and among these at those of its host and of `*`: one request asks thousands of
questions, and a resource may have rules of thousands of users, or for thousands of hosts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from fairlead_model.host_address import peer_address
from fairlead_model.security.acl import (
    ANY_NAME,
    ANY_USER,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""By operation: if one of these operations is allowed, it is, too. This does not hold for DENY."""
_NOTHING: Final[frozenset[Operation]] = frozenset()
_ANYBODYS_NAME: Final = "hardcode"
"""The resource name that `Authorizer.authorizeByResourceType` tries first."""


_ByHost: TypeAlias = "dict[str, dict[AclBinding, None]]"
"""Rules by their host, in the form in which hosts are compared."""
_Held: TypeAlias = "dict[str, _ByHost]"
"""Rules of one resource by principal."""


class AclDecision(NamedTuple):
    """The decision, and the rule that decided it."""

    is_allowed: bool
    rule: AclBinding | None
    """None if no rule decided: no rule is for this principal, or none applies to the resource."""
    has_rules: bool
    """Whether any rule, for any principal, applies to the resource."""


class AclIndex:
    """All access rules of a cluster; rules are added and removed one by one."""

    def __init__(self, rules: Iterable[AclBinding] = (), *, allows_without_rules: bool) -> None:
        """`allows_without_rules` is the value of `allow.everyone.if.no.acl.found`."""
        self.allows_without_rules = allows_without_rules
        self._literals: dict[tuple[ResourceType, str], _Held] = {}
        self._prefixes: dict[tuple[ResourceType, str], _Held] = {}
        self._lengths: dict[ResourceType, dict[int, int]] = {}
        """By type: the lengths of prefixes, with the number of prefixes of each length."""
        for rule in rules:
            self.add(rule)

    def add(self, rule: AclBinding) -> None:
        """Add a rule, unless the index has it."""
        by_name = self._by_name(rule)
        held = by_name.get((rule.resource_type, rule.name))
        if held is None:
            held = by_name[rule.resource_type, rule.name] = {}
            if by_name is self._prefixes:
                lengths = self._lengths.setdefault(rule.resource_type, {})
                lengths[len(rule.name)] = lengths.get(len(rule.name), 0) + 1
        by_host = held.setdefault(rule.principal, {})
        by_host.setdefault(comparable_host(rule.host), {})[rule] = None

    def remove(self, rule: AclBinding) -> None:
        """Remove a rule, if the index has it."""
        by_name = self._by_name(rule)
        held = by_name.get((rule.resource_type, rule.name))
        by_host = None if held is None else held.get(rule.principal)
        host = comparable_host(rule.host)
        rules = None if by_host is None else by_host.get(host)
        if held is None or by_host is None or rules is None or rule not in rules:
            return
        del rules[rule]
        if not rules:
            del by_host[host]
        if not by_host:
            del held[rule.principal]
        if held:
            return
        del by_name[rule.resource_type, rule.name]
        if by_name is self._prefixes:
            lengths = self._lengths[rule.resource_type]
            lengths[len(rule.name)] -= 1
            if not lengths[len(rule.name)]:
                del lengths[len(rule.name)]

    def _by_name(self, rule: AclBinding) -> dict[tuple[ResourceType, str], _Held]:
        return self._prefixes if rule.pattern_type is PatternType.PREFIXED else self._literals

    def decide(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> AclDecision:
        """Decide on an operation of a principal that is not a super user."""
        has_rules = False
        allowing: AclBinding | None = None
        compared = _Host(host)
        implied_by = IMPLIED_BY.get(operation, _NOTHING)
        for held in self._applying(resource_type, name):
            has_rules = True
            for rule in _rules_for(held, principal, compared):
                is_meant = rule.operation in (operation, Operation.ALL)
                if rule.permission is Permission.DENY:
                    if is_meant:
                        return AclDecision(False, rule, True)
                elif allowing is None and (is_meant or rule.operation in implied_by):
                    allowing = rule
        if allowing is not None:
            return AclDecision(True, allowing, True)
        return AclDecision(not has_rules and self.allows_without_rules, None, has_rules)

    def applying_rules(self, resource_type: ResourceType, name: str) -> list[AclBinding]:
        """Return every rule that applies to a resource, for any principal."""
        return [
            rule
            for held in self._applying(resource_type, name)
            for by_host in held.values()
            for rules in by_host.values()
            for rule in rules
        ]

    def _applying(self, resource_type: ResourceType, name: str) -> Iterator[_Held]:
        literals, prefixes = self._literals, self._prefixes
        rules = literals.get((resource_type, name))
        if rules is not None:
            yield rules
        if name != ANY_NAME:
            rules = literals.get((resource_type, ANY_NAME))
            if rules is not None:
                yield rules
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                rules = prefixes.get((resource_type, name[:length]))
                if rules is not None:
                    yield rules

    def decide_by_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Tell whether a principal may do an operation on at least one resource of a type.

        As in `Authorizer.authorizeByResourceType`, implied operations do not count.
        """
        if self.decide(principal, host, operation, resource_type, _ANYBODYS_NAME).is_allowed:
            return True
        compared = _Host(host)
        allowed: list[AclBinding] = []
        denied: set[tuple[PatternType, str]] = set()
        for by_name in (self._literals, self._prefixes):
            for (kind, _), held in by_name.items():
                if kind is not resource_type:
                    continue
                for rule in _rules_for(held, principal, compared):
                    if rule.operation not in (operation, Operation.ALL):
                        continue
                    if rule.permission is Permission.ALLOW:
                        allowed.append(rule)
                    else:
                        denied.add((rule.pattern_type, rule.name))
        if (PatternType.LITERAL, ANY_NAME) in denied:
            return False
        return any(not _is_dominated(rule, denied) for rule in allowed)


class _Host:
    """The host of a client, whose comparable form is made only if a rule names a host."""

    __slots__ = ("_comparable", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._comparable: str | None = None

    @property
    def comparable(self) -> str:
        if self._comparable is None:
            self._comparable = comparable_host(self._text)
        return self._comparable


def _rules_for(held: _Held, principal: str, host: _Host) -> Iterator[AclBinding]:
    """Yield the rules of a principal and of everybody that are for this host, or for any."""
    for each in {principal: None, ANY_USER: None}:
        by_host = held.get(each)
        if by_host is None:
            continue
        anywhere = by_host.get(ANY_NAME)
        if anywhere is not None:
            yield from anywhere
            if len(by_host) == 1:
                continue
        here = by_host.get(host.comparable)
        if here is not None and here is not anywhere:
            yield from here


def _is_dominated(rule: AclBinding, denied: set[tuple[PatternType, str]]) -> bool:
    """Tell whether DENY rules cover everything that an ALLOW rule allows."""
    if rule.pattern_type is PatternType.LITERAL:
        if rule.name == ANY_NAME:
            return False
        if (PatternType.LITERAL, rule.name) in denied:
            return True
    return any(
        (PatternType.PREFIXED, rule.name[:length]) in denied
        for length in range(1, len(rule.name) + 1)
    )


def comparable_host(host: str) -> str:
    """Return the normal form of an address, in which addresses are compared.

    Kafka compares texts, so a rule for `::1` matches no client there: Java writes
    `0:0:0:0:0:0:0:1`. Here both mean the same address. A host that is not an address stays as is.
    """
    return peer_address(host)
