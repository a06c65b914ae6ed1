"""What new, changed and deleted User resources mean for rules and credentials. Pure.

A resource is the one source of its principal's rights: a rule of the principal that it does not
name is removed, whoever made it, and so is a credential that it does not give. Rules of other
principals are left alone. A resource never takes a principal from another resource; the caller,
who knows all resources, decides which one has to forget it first.
"""

from collections.abc import Sequence
from typing import Any

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import ApplyUserResources, Decision
from fairlead_controller.decisions.state import ControllerState, DeclaredUser, UserDeclared
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import AclChanged, Change, CredentialChanged
from fairlead_model.resources.user_declaration import PRINCIPAL_TYPE, UserDeclaration
from fairlead_model.security.acl import AclBinding
from fairlead_model.security.scram import ScramMechanism
from fairlead_model.session.refusals import RefusalCode, RefusedError

Result = dict[str, Any]


def build_user_result(state: str, reason: str, message: str = "") -> Result:
    """Return the result for one resource: `state` is ok, waiting or refused."""
    return {"state": state, "reason": reason, "message": message}


def decide_user_resources(
    state: ControllerState, event: ApplyUserResources, room: TableRoom | None = None
) -> Decision:
    """Revoke what forgotten resources declared, then apply others; each is decided by itself.

    With a complete set, what resources outside of it declared is revoked, too.
    """
    draft = Draft(state, room)
    results: dict[str, Result] = {}
    vanished = [] if event.complete is None else sorted(set(state.users) - event.complete)
    rules = _Rules(state, (*vanished, *event.forget), event.apply)
    for resource in (*vanished, *event.forget):
        results[resource] = _forget(draft, resource, rules)
    for wanted in event.apply:
        try:
            results[wanted.resource] = _apply(draft, wanted, rules)
        except RefusedError as refusal:
            results[wanted.resource] = build_user_result("refused", "NoRoom", refusal.message)
    return draft.decision({"results": results})


class _Rules:
    """The rules of the principals that an event is about, found in one pass over all rules."""

    def __init__(
        self,
        state: ControllerState,
        forget: Sequence[str],
        apply: Sequence[UserDeclaration],
    ) -> None:
        concerned = {each.principal for each in apply}
        held = (state.users.get(name) for name in (*forget, *(each.resource for each in apply)))
        concerned |= {each.principal for each in held if each is not None}
        self._held: dict[str, set[AclBinding]] = {each: set() for each in concerned}
        for rule in state.image.acls:
            if rule.principal in concerned:
                self._held[rule.principal].add(rule)

    def changes(self, principal: str, wanted: frozenset[AclBinding]) -> list[Change]:
        """Return what makes these the only rules of a principal."""
        held = self._held[principal]
        return [
            *(AclChanged(rule, is_removed=True) for rule in sorted(held - wanted)),
            *(AclChanged(rule) for rule in sorted(wanted - held)),
        ]

    def set(self, principal: str, wanted: frozenset[AclBinding]) -> None:
        """Note that a principal has these rules now."""
        self._held[principal] = set(wanted)


def _forget(draft: Draft, resource: str, rules: _Rules) -> Result:
    declared = draft.state.users.get(resource)
    if declared is None:
        return build_user_result("ok", "Unknown", "it declares nobody")
    _revoke(draft, declared.principal, rules)
    draft.add(UserDeclared(resource, None))
    message = f"all rights of {declared.principal} are revoked"
    draft.explain(f"{message}: User {resource} is gone")
    return build_user_result("ok", "Revoked", message)


def _revoke(draft: Draft, principal: str, rules: _Rules) -> None:
    draft.add(
        *_credential_changes(draft.state, principal, None, keeps=False),
        *rules.changes(principal, frozenset()),
    )
    rules.set(principal, frozenset())


def _apply(draft: Draft, wanted: UserDeclaration, rules: _Rules) -> Result:
    state, resource, principal = draft.state, wanted.resource, wanted.principal
    owner = state.principals.get(principal)
    if owner not in (None, resource):
        message = f"{principal} is declared by User {owner}"
        return build_user_result("refused", "Conflict", message)
    held = state.users.get(resource)
    keeps = wanted.revision != "" and wanted.credential is None
    if keeps and wanted.revision is not None and not _has_credential(state, wanted, held):
        return build_user_result("waiting", "CredentialNeeded", "what verifies its password")
    if held is not None and held.principal != principal:
        _revoke(draft, held.principal, rules)
    changes = [
        *_credential_changes(draft.state, principal, wanted, keeps=keeps),
        *rules.changes(principal, wanted.rules),
    ]
    revision = wanted.revision
    if revision is None:
        revision = held.revision if held is not None and held.principal == principal else ""
    declared = DeclaredUser(principal, revision)
    if declared != held:
        draft.add(UserDeclared(resource, declared), *changes)
    elif changes:
        draft.add(*changes)
    rules.set(principal, wanted.rules)
    if changes:
        draft.explain(
            f"User {resource} gives {principal} {len(wanted.rules)} access rules"
            + (" and a credential" if wanted.credential is not None else "")
        )
    return build_user_result("ok", "Applied")


def _has_credential(
    state: ControllerState, wanted: UserDeclaration, held: DeclaredUser | None
) -> bool:
    """Tell whether a credential is there that was given with this revision for this principal."""
    if held is None or (held.principal, held.revision) != (wanted.principal, wanted.revision):
        return False
    return any((each, wanted.user) in state.image.credentials for each in ScramMechanism)


def _credential_changes(
    state: ControllerState, principal: str, wanted: UserDeclaration | None, *, keeps: bool
) -> list[Change]:
    """Return what makes this the only credential of the principal's name."""
    if keeps:
        return []
    user = principal.removeprefix(PRINCIPAL_TYPE)
    given = None if wanted is None else wanted.credential
    changes: list[Change] = []
    for mechanism in ScramMechanism:
        known = state.image.credentials.get((mechanism, user))
        after = given if given is not None and given.mechanism is mechanism else None
        if known != after:
            changes.append(CredentialChanged(user, mechanism, after))
    return changes


def declared_refusal(state: ControllerState, principal: str) -> RefusedError | None:
    """Return what others are told who change a principal that a User resource declares, if any."""
    resource = state.principals.get(principal)
    if resource is None:
        return None
    return RefusedError(
        RefusalCode.POLICY_VIOLATION,
        f"{principal} is declared by User resource {resource!r}; change the resource instead",
    )
