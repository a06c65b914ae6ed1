"""Adding and removing access rules (Kafka's `AclControlManager`)."""

from collections import defaultdict
from collections.abc import Collection
from itertools import chain
from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import CreateAcls, Decision, DeleteAcls
from fairlead_controller.decisions.security.user_resources import declared_refusal
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import AclChanged
from fairlead_model.codec import encode_acl
from fairlead_model.security.acl import AclBinding, AclFilter, PatternType, binding_problem
from fairlead_model.session.calls import CreateAclsReply, CreatedAcl, DeleteAclsReply, KeptAcl
from fairlead_model.session.refusals import RefusalCode, RefusedError

ACLS_REMOVED_MAX: Final = 10_000
"""Rules that one request may remove, as in Kafka (`MAX_RECORDS_PER_USER_OP`)."""
RULES_LOGGED_MAX: Final = 100
"""Rules of one request that the log names."""


def decide_acl_creation(
    state: ControllerState, event: CreateAcls, room: TableRoom | None = None
) -> Decision:
    """Add rules; one that is there already is a success that writes nothing.

    An invalid rule is refused in its slot, and so is a rule for a principal that a User resource
    declares. All others are added, or none if the tables have no room for them.
    """
    draft = Draft(state, room)
    refusals = {rule: _refusal(state, rule) for rule in event.rules}
    known = state.image.acls
    added = [rule for rule, refusal in refusals.items() if refusal is None and rule not in known]
    try:
        draft.add(*map(AclChanged, added))
    except RefusedError as error:
        refusals |= dict.fromkeys(added, error)
    else:
        _explain(draft, f"{event.asked_by} adds", added)
    results = []
    for rule in event.rules:
        refusal = refusals[rule]
        if refusal is None:
            result = CreatedAcl(error_code=RefusalCode.NONE, error_message=None)
        else:
            result = CreatedAcl(error_code=refusal.code, error_message=refusal.message)
        results.append(result)
    return draft.decision(CreateAclsReply(acls=results))


def _refusal(state: ControllerState, rule: AclBinding) -> RefusedError | None:
    """Say why a rule is not added: it is invalid, or a User resource would remove it again."""
    if problem := binding_problem(rule):
        return RefusedError(RefusalCode.INVALID_REQUEST, problem)
    return None if rule in state.image.acls else declared_refusal(state, rule.principal)


def _explain(draft: Draft, what: str, rules: list[AclBinding]) -> None:
    for rule in rules[:RULES_LOGGED_MAX]:
        draft.explain(f"{what} the access rule {rule}")
    if len(rules) > RULES_LOGGED_MAX:
        draft.explain(f"… and {len(rules) - RULES_LOGGED_MAX} more access rules")


class _Rules:
    """All rules, and by name and principal those that a filter can select.

    Tools remove rules by a filter for each: a thousand walks over all rules would keep the
    controller from its brokers for longer than their sessions last.
    """

    def __init__(self, rules: Collection[AclBinding]) -> None:
        self._all = rules
        self._by_name: defaultdict[str, list[AclBinding]] = defaultdict(list)
        self._by_principal: defaultdict[str, list[AclBinding]] = defaultdict(list)
        for rule in rules:
            self._by_name[rule.name].append(rule)
            self._by_principal[rule.principal].append(rule)

    def selected(self, wanted: AclFilter) -> list[AclBinding]:
        """Return the rules that a filter selects."""
        return [rule for rule in self._candidates(wanted) if wanted.matches(rule)]

    def _candidates(self, wanted: AclFilter) -> Collection[AclBinding]:
        found: list[Collection[AclBinding]] = [self._all]
        if wanted.principal is not None:
            found.append(self._by_principal.get(wanted.principal, ()))
        # A rule for a prefix covers names that it does not have.
        if wanted.name is not None and wanted.pattern_type is not PatternType.MATCH:
            found.append(self._by_name.get(wanted.name, ()))
        return min(found, key=len)


def decide_acl_deletion(state: ControllerState, event: DeleteAcls) -> Decision:
    """Remove the rules that any filter selects, all in one decision.

    The answer has the rules that each filter selects, even those that another one selects, too.
    Rules of principals that User resources declare stay, and the answer has the reason for each.
    """
    selected: list[list[AclBinding]] = []
    rules, count = _Rules(state.image.acls), 0
    for wanted in event.filters:
        selected.append(rules.selected(wanted))
        count += len(selected[-1])
        if count > ACLS_REMOVED_MAX:
            refusal = RefusedError(
                RefusalCode.POLICY_VIOLATION,
                f"one request may remove {ACLS_REMOVED_MAX} access rules; narrow the filter",
            )
            return Decision(reply=refusal)
    removed: dict[AclBinding, None] = {}
    kept: dict[AclBinding, RefusedError] = {}
    for rule in chain.from_iterable(selected):
        if refused := declared_refusal(state, rule.principal):
            kept[rule] = refused
        else:
            removed[rule] = None
    draft = Draft(state)
    draft.add(*(AclChanged(rule, is_removed=True) for rule in removed))
    _explain(draft, f"{event.asked_by} removes", list(removed))
    return draft.decision(
        DeleteAclsReply(
            removed=[
                [encode_acl(rule) for rule in sorted(chosen) if rule in removed]
                for chosen in selected
            ],
            kept=[
                [
                    KeptAcl(
                        acl=encode_acl(rule),
                        error_code=kept[rule].code,
                        error_message=kept[rule].message,
                    )
                    for rule in sorted(chosen)
                    if rule in kept
                ]
                for chosen in selected
            ],
        )
    )
