"""What new, changed and deleted User resources mean for rules, credentials and quotas. Pure.

A resource is the one source of its principal's rights: a rule of the principal that it does not
name is removed, whoever made it, and so is a credential that it does not give. It controls the
user's quotas once it declares some (`declared_quotas`). Rules of other principals are left alone. A
resource never takes a principal from another resource; the caller, who knows all resources, decides
which one has to forget it first.
"""

from collections.abc import Sequence
from typing import Any

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import ApplyUserResources, Decision
from fairlead_controller.decisions.security.declared_quotas import (
    changes_of_declared_quotas,
    lowered_quotas,
    quotas_of_clients,
)
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
    rights = _Rights(state, (*vanished, *event.forget), event.apply)
    for resource in (*vanished, *event.forget):
        results[resource] = _forget(draft, resource, rights)
    for wanted in event.apply:
        try:
            results[wanted.resource] = _apply(draft, wanted, rights)
        except RefusedError as refusal:
            results[wanted.resource] = build_user_result("refused", "NoRoom", refusal.message)
    return draft.decision({"results": results})


class _Rights:
    """The rules of the principals that an event is about, and quotas of users' clients.

    They are found in one pass over all rules, and one over all quotas.
    """

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
        self.quotas_of_clients = quotas_of_clients(state)

    def changes_of_rules(self, principal: str, wanted: frozenset[AclBinding]) -> list[Change]:
        """Return what makes these the only rules of a principal."""
        held = self._held[principal]
        return [
            *(AclChanged(rule, is_removed=True) for rule in sorted(held - wanted)),
            *(AclChanged(rule) for rule in sorted(wanted - held)),
        ]

    def set_rules(self, principal: str, wanted: frozenset[AclBinding]) -> None:
        """Note that a principal has these rules now."""
        self._held[principal] = set(wanted)


def _forget(draft: Draft, resource: str, rights: _Rights) -> Result:
    declared = draft.state.users.get(resource)
    if declared is None:
        return build_user_result("ok", "Unknown", "it declares nobody")
    _revoke(draft, declared, rights)
    draft.add(UserDeclared(resource, None))
    message = f"all rights of {declared.principal} are revoked"
    draft.explain(f"{message}: User {resource} is gone")
    return build_user_result("ok", "Revoked", message)


def _revoke(draft: Draft, declared: DeclaredUser, rights: _Rights) -> None:
    principal = declared.principal
    draft.add(
        *_credential_changes(draft.state, principal, None, keeps=False),
        *rights.changes_of_rules(principal, frozenset()),
        *changes_of_declared_quotas(draft.state, declared, None, rights.quotas_of_clients),
    )
    rights.set_rules(principal, frozenset())


def _apply(draft: Draft, wanted: UserDeclaration, rights: _Rights) -> Result:
    state, resource, principal = draft.state, wanted.resource, wanted.principal
    owner = state.principals.get(principal)
    if owner not in (None, resource):
        message = f"{principal} is declared by User {owner}"
        return build_user_result("refused", "Conflict", message)
    held = state.users.get(resource)
    keeps = wanted.revision != "" and wanted.credential is None
    if keeps and wanted.revision is not None and not _has_credential(state, wanted, held):
        return build_user_result("waiting", "CredentialNeeded", "what verifies its password")
    before = held if held is not None and held.principal == principal else None
    if held is not None and before is None:
        _revoke(draft, held, rights)
    revision = wanted.revision
    if revision is None:
        revision = "" if before is None else before.revision
    declared = DeclaredUser(principal, revision, wanted.quotas, wanted.exceeds_defaults)
    changes = [
        *_credential_changes(draft.state, principal, wanted, keeps=keeps),
        *rights.changes_of_rules(principal, wanted.rules),
        *changes_of_declared_quotas(draft.state, before, declared, rights.quotas_of_clients),
    ]
    # A crash had left it to another resource, too, and with that one went the note whose it is.
    if declared != held or owner is None:
        had_quotas = before is not None and before.quotas is not None
        lets_go = had_quotas and declared.quotas is None
        draft.add(UserDeclared(resource, declared, lets_go), *changes)
    elif changes:
        draft.add(*changes)
    rights.set_rules(principal, wanted.rules)
    if changes:
        draft.explain(
            f"User {resource} gives {principal} {len(wanted.rules)} access rules"
            + (" and a credential" if wanted.credential is not None else "")
            + (" and declares his quotas" if wanted.quotas is not None else "")
        )
    return {**build_user_result("ok", "Applied"), "lowered": lowered_quotas(state, declared)}


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
    """Return the refusal for changes of a principal that a User resource declares, if one does."""
    resource = state.principals.get(principal)
    if resource is None:
        return None
    return RefusedError(
        RefusalCode.POLICY_VIOLATION,
        f"{principal} is declared by User resource {resource!r}; change the resource instead",
    )
