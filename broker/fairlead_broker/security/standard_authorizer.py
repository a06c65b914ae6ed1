"""The authorizer of this broker: super users first, then the cluster's access rules.

It answers from memory: an index of the rules, and earlier answers, which are dropped when any rule
changes (I13). Before this broker has received the rules, it allows nothing to any client (I14), not
even to super users. Brokers and the controller are not authorized on the brokers' listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import AUTHORIZER_MEMO_MAX, AUTHORIZER_MEMO_NAME_LENGTH_MAX
from fairlead_model.security.acl_index import AclDecision, AclIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairlead_broker.authorization import Principal
    from fairlead_model.cluster import AclChanged
    from fairlead_model.security.acl import AclBinding, Operation, ResourceType

Question = tuple["Principal", str, "Operation", "ResourceType", str]

NOT_READY: Final = AclDecision(False, None, has_rules=False)


class StandardAuthorizer:
    """Kafka's `StandardAuthorizer`, by the rules in this broker's image."""

    def __init__(self, super_users: Iterable[str], *, allows_without_rules: bool) -> None:
        self._super_users = frozenset(super_users)
        self._index = AclIndex(allows_without_rules=allows_without_rules)
        self._memo: dict[Question, bool] = {}
        self._memo_by_type: dict[tuple[Principal, str, Operation, ResourceType], bool] = {}
        self.has_rules = False
        """Whether this broker has received the rules."""
        self.on_denied: Callable[[Question, AclDecision], None] | None = None
        """Called for each denial of a resource that a client has named."""

    def load(self, rules: Iterable[AclBinding]) -> None:
        """Replace all rules by these."""
        self._index = AclIndex(rules, allows_without_rules=self._index.allows_without_rules)
        self.has_rules = True
        self._forget()

    def change(self, changes: Iterable[AclChanged]) -> None:
        """Add and remove rules."""
        for change in changes:
            if change.is_removed:
                self._index.remove(change.rule)
            else:
                self._index.add(change.rule)
        self._forget()

    def _forget(self) -> None:
        self._memo.clear()
        self._memo_by_type.clear()

    def is_super_user(self, principal: Principal) -> bool:
        """Tell whether everything is allowed to a principal, whatever rules say."""
        return f"{principal.type}:{principal.name}" in self._super_users

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Tell whether a principal that connects from a host may do this; report a denial."""
        question = (principal, host, operation, resource_type, name)
        known = self._memo.get(question)
        if known:
            return True
        if known is None:
            known = self._remember(question)
        if not known and self.on_denied is not None:
            self.on_denied(question, self.decide(*question))
        return known

    def would_allow(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Tell the same as `is_allowed`, but report no denial: no client has named the resource.

        For lists, which leave out denied resources, and for authorized operations in a reply.
        """
        question = (principal, host, operation, resource_type, name)
        known = self._memo.get(question)
        return self._remember(question) if known is None else known

    def is_allowed_for_some(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Tell whether a principal may do this to some resource of a type."""
        question = (principal, host, operation, resource_type)
        known = self._memo_by_type.get(question)
        if known is None:
            if not self.has_rules:
                return False
            known = self.is_super_user(principal) or (
                self._index.decide_by_type(str(principal), host, operation, resource_type)
            )
            if len(self._memo_by_type) >= AUTHORIZER_MEMO_MAX:
                self._memo_by_type.clear()
            self._memo_by_type[question] = known
        return known

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> AclDecision:
        """Decide by the rules, and say which one decided."""
        if not self.has_rules:
            return NOT_READY
        return self._index.decide(str(principal), host, operation, resource_type, name)

    def _remember(self, question: Question) -> bool:
        if not self.has_rules:
            return False
        allowed = self.is_super_user(question[0]) or self.decide(*question).is_allowed
        if len(question[-1]) > AUTHORIZER_MEMO_NAME_LENGTH_MAX:
            return allowed
        if len(self._memo) >= AUTHORIZER_MEMO_MAX:
            self._memo.clear()
        self._memo[question] = allowed
        return allowed
