"""The client quotas that User resources declare. Pure.

A resource that declares quotas is the one source of all quotas of its user, including those for its
client ids: others are removed, and refused from then on. Declared quotas are not above the default
quotas of the cluster (`DEFAULT_ENTITIES`), unless the policy allows it, because a person who may
write a User may not be allowed to change quotas. When the default quotas change, the effective
quotas change, too.
"""

from collections.abc import Iterable, Mapping, Sequence

from fairlead_controller.decisions.state import ControllerState, DeclaredUser
from fairlead_model.cluster import ClientQuotaChanged
from fairlead_model.resources.user_declaration import PRINCIPAL_TYPE
from fairlead_model.security.client_quota import (
    DEFAULT_ENTITIES,
    USER,
    QuotaEntity,
    Quotas,
    default_limits,
    entity_user,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError


def user_entity(declared: DeclaredUser) -> QuotaEntity:
    """Return the entity whose quotas a resource declares."""
    return ((USER, declared.principal.removeprefix(PRINCIPAL_TYPE)),)


def quotas_in_force(declared: DeclaredUser, defaults: Quotas) -> Quotas:
    """Return what holds of declared quotas, given the limits that the defaults set."""
    if declared.quotas is None or declared.exceeds_defaults:
        return declared.quotas or {}
    return {key: min(limit, defaults.get(key, limit)) for key, limit in declared.quotas.items()}


def lowered_quotas(state: ControllerState, declared: DeclaredUser) -> Quotas:
    """Return what is in force instead of each quota that is above the defaults."""
    wanted = declared.quotas or {}
    held = quotas_in_force(declared, default_limits(state.image.client_quotas))
    return {key: limit for key, limit in held.items() if limit != wanted[key]}


def quotas_of_clients(state: ControllerState) -> dict[str, list[QuotaEntity]]:
    """Return, for each user, the quotas that he has with one client id or with the default one."""
    found: dict[str, list[QuotaEntity]] = {}
    for entity in state.image.client_quotas:
        user = entity_user(entity)
        if user is not None and len(entity) > 1:
            found.setdefault(user, []).append(entity)
    return found


def changes_of_declared_quotas(
    state: ControllerState,
    before: DeclaredUser | None,
    after: DeclaredUser | None,
    clients: Mapping[str, Sequence[QuotaEntity]],
) -> list[ClientQuotaChanged]:
    """Return what makes the quotas of a principal those that its resource declares.

    Both are about one principal. Quotas that it has never declared are left to others. `clients`
    is what `quotas_of_clients` has found.
    """
    declared = after if after is not None and after.quotas is not None else before
    if declared is None or declared.quotas is None:
        return []
    entity, known = user_entity(declared), state.image.client_quotas
    wanted: Quotas = {}
    if declared is after:
        wanted = quotas_in_force(declared, default_limits(known))
    others = clients.get(entity_user(entity) or "", ())
    changes = [ClientQuotaChanged(each, {}) for each in others if each in known]
    if known.get(entity, {}) != wanted:
        changes.append(ClientQuotaChanged(entity, wanted))
    return changes


def follow_defaults(
    state: ControllerState, changed: Iterable[ClientQuotaChanged]
) -> list[ClientQuotaChanged]:
    """Return what other defaults change of the quotas that resources declare."""
    edits = {each.entity: each.quotas for each in changed if each.entity in DEFAULT_ENTITIES}
    if not edits:
        return []
    known = state.image.client_quotas
    defaults = default_limits({**{each: known.get(each, {}) for each in DEFAULT_ENTITIES}, **edits})
    changes = []
    for declared in state.users.values():
        if declared.quotas is not None:
            entity, wanted = user_entity(declared), quotas_in_force(declared, defaults)
            if known.get(entity, {}) != wanted:
                changes.append(ClientQuotaChanged(entity, wanted))
    return changes


def declared_quota_refusal(state: ControllerState, entity: QuotaEntity) -> RefusedError | None:
    """Return the refusal for changes of quotas that a User resource declares, if one does."""
    user = entity_user(entity)
    resource = None if user is None else state.principals.get(f"{PRINCIPAL_TYPE}{user}")
    if resource is None or state.users[resource].quotas is None:
        return None
    return RefusedError(
        RefusalCode.POLICY_VIOLATION,
        f"the quotas of user {user!r} are declared by User resource {resource!r}; change the "
        "resource instead",
    )
