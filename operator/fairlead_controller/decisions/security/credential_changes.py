"""Giving users SCRAM credentials and taking them away (Kafka's `ScramControlManager`)."""

from collections import Counter

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import AlterCredentials, Decision
from fairlead_controller.decisions.security.user_resources import declared_refusal
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import CredentialChanged
from fairlead_model.codec import USER_LENGTH_MAX
from fairlead_model.resources.user_declaration import PRINCIPAL_TYPE
from fairlead_model.security.scram import credential_problem
from fairlead_model.security.user_names import is_user_name
from fairlead_model.session.calls import AlterCredentialsReply, AlteredUser
from fairlead_model.session.refusals import RefusalCode, RefusedError


def decide_credential_changes(
    state: ControllerState, event: AlterCredentials, room: TableRoom | None = None
) -> Decision:
    """Alter the credentials of users; all that is valid is one decision.

    A user that is named twice, even with two mechanisms, keeps its credentials, and so does a user
    that a User resource declares.
    """
    changes = [
        *(CredentialChanged(user, mechanism, None) for user, mechanism in event.deletions),
        *(
            CredentialChanged(user, credential.mechanism, credential)
            for user, credential in event.upsertions
        ),
    ]
    named = Counter(change.user for change in changes)
    draft = Draft(state, room)
    refusals = {
        change.user: RefusedError(
            RefusalCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
        if named[change.user] > 1
        else _refusal(state, change)
        for change in changes
    }
    valid = [change for change in changes if refusals[change.user] is None]
    try:
        draft.add(*valid)
    except RefusedError as error:
        refusals |= dict.fromkeys((change.user for change in valid), error)
    else:
        for change in valid:
            what = "removes the" if change.credential is None else "sets another"
            name = change.mechanism.sasl_name
            draft.explain(f"{event.asked_by} {what} {name} credential of user {change.user!r}")
    results = [
        AlteredUser(user=user, error_code=RefusalCode.NONE, error_message=None)
        if refusal is None
        else AlteredUser(user=user, error_code=refusal.code, error_message=refusal.message)
        for user, refusal in refusals.items()
    ]
    return draft.decision(AlterCredentialsReply(users=results))


def _refusal(state: ControllerState, change: CredentialChanged) -> RefusedError | None:
    code, problem = RefusalCode.UNACCEPTABLE_CREDENTIAL, ""
    if refusal := declared_refusal(state, f"{PRINCIPAL_TYPE}{change.user}"):
        return refusal
    if not change.user:
        problem = "Username must not be empty"
    elif len(change.user) > USER_LENGTH_MAX:
        problem = f"the name of a user has at most {USER_LENGTH_MAX} characters"
    elif change.credential is not None and not is_user_name(change.user):
        problem = (
            f"nobody can log in as {change.user!a}: * means everybody, and names are without "
            "control characters"
        )
    elif change.credential is not None:
        problem = credential_problem(change.credential)
        if not problem and state.limits.why_no_credentials:
            code, problem = RefusalCode.POLICY_VIOLATION, state.limits.why_no_credentials
    elif (change.mechanism, change.user) not in state.image.credentials:
        code = RefusalCode.RESOURCE_NOT_FOUND
        problem = "Attempt to delete a user credential that does not exist"
    return RefusedError(code, problem) if problem else None
