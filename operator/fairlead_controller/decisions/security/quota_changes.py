"""Setting and removing client quotas (Kafka's `ClientQuotaControlManager`)."""

from collections import Counter

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import AlterClientQuotas, Decision, QuotaChanges
from fairlead_controller.decisions.security.declared_quotas import (
    declared_quota_refusal,
    follow_defaults,
)
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import ClientQuotaChanged, ClusterImage
from fairlead_model.security.client_quota import quota_problem
from fairlead_model.session.calls import AlterClientQuotasReply, AlteredQuotas
from fairlead_model.session.refusals import RefusalCode, RefusedError


def decide_quota_changes(
    state: ControllerState, event: AlterClientQuotas, room: TableRoom | None = None
) -> Decision:
    """Alter the quotas of entities; all that is valid is one decision.

    With `validate_only` only return what would happen. Removing a quota that is not there is no
    error. Quotas that a User resource declares stay; the defaults may limit them.
    """
    named = Counter(changes.entity for changes in event.entries)
    refusals = [
        RefusedError(RefusalCode.INVALID_REQUEST, "an entity may be named once in a request")
        if named[changes.entity] > 1
        else _refusal(state, changes)
        for changes in event.entries
    ]
    draft = Draft(state, room)
    changed = [
        change
        for changes, refusal in zip(event.entries, refusals, strict=True)
        if refusal is None and (change := _change(state.image, changes)) is not None
    ]
    try:
        draft.add(*changed, *follow_defaults(state, changed))
    except RefusedError as error:
        refusals = [error if refusal is None else refusal for refusal in refusals]
    else:
        for change in changed:
            draft.explain(
                f"{event.asked_by} sets the quotas of {dict(change.entity)} to "
                f"{dict(change.quotas) or 'none'}"
            )
    reply = AlterClientQuotasReply(
        entries=[_outcome(refusal) for refusal in refusals],
    )
    return Decision(reply=reply) if event.validate_only else draft.decision(reply)


def _refusal(state: ControllerState, changes: QuotaChanges) -> RefusedError | None:
    """Say why quotas stay as they are: they are none, or a User resource declares others."""
    if problem := _problem(changes):
        return RefusedError(RefusalCode.INVALID_REQUEST, problem)
    return declared_quota_refusal(state, changes.entity)


def _problem(changes: QuotaChanges) -> str:
    keys = [key for key, _ in changes.alterations]
    if len(set(keys)) < len(keys):
        return "a quota may be named once for an entity"
    for key, value in changes.alterations:
        if value is not None and (problem := quota_problem(changes.entity, key, value)):
            return problem
    return ""


def _change(image: ClusterImage, changes: QuotaChanges) -> ClientQuotaChanged | None:
    """Return what becomes of an entity's quotas, None if they stay as they are."""
    before = image.client_quotas.get(changes.entity, {})
    altered = dict(changes.alterations)
    after = {key: value for key, value in before.items() if key not in altered}
    after |= {key: value for key, value in altered.items() if value is not None}
    return ClientQuotaChanged(changes.entity, after) if after != before else None


def _outcome(refusal: RefusedError | None) -> AlteredQuotas:
    if refusal is not None:
        return AlteredQuotas(error_code=refusal.code, error_message=refusal.message)
    return AlteredQuotas(error_code=RefusalCode.NONE, error_message=None)
