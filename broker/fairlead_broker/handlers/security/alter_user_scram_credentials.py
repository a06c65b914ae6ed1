"""AlterUserScramCredentials (key 51), version 0.

Behaviour: one result for each user; needs ALTER on the cluster. Here the salted password, which is
as good as the password, becomes the keys that verify it, and only they travel and are stored. Its
length is not checked, as in Kafka: keys can be made of any, and one of another length than the
mechanism's hash verifies nobody. A user that is named twice, even with two mechanisms, answers
DUPLICATE_RESOURCE, unless what comes first is wrong by itself; an empty name or one that nobody can
log in with (`*`, control characters), an empty salted password, too few or too many iterations, a
salt that is empty or too long UNACCEPTABLE_CREDENTIAL; an unknown mechanism
UNSUPPORTED_SASL_MECHANISM; the deletion of nothing RESOURCE_NOT_FOUND; a credential for a store
that is readable for all, which is ZooKeeper without `zookeeper.set.acl=true`, POLICY_VIOLATION. All
valid changes are made at once, and the answer comes when this broker applies them.
Versions:  0 only.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.security.acl_requests import asked_by
from fairlead_broker.limits import ADMIN_TIMEOUT_MS, USERS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import ask_controller, slot_error
from fairlead_model.codec import encode_credential
from fairlead_model.security.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    credential_of,
    credential_problem,
)
from fairlead_model.session.calls import (
    AlterCredentialsCall,
    CredentialDeletion,
    CredentialUpsertion,
    Method,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


def _refuse(
    request: AlterUserScramCredentialsRequest, context: RequestContext, code: ErrorCode
) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[_result(user, KafkaError(code)) for user in dict.fromkeys(_users(request))]
    )


@handles(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    access=needs_cluster(Operation.ALTER, _refuse),
)
def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> Pending:
    """Turn passwords into what verifies them, and forward that to the controller."""
    if len(request.deletions) + len(request.upsertions) > USERS_PER_REQUEST_MAX:
        raise RemoteProtocolError("AlterUserScramCredentials names too many users")
    return context.later(_alter(request, context))


async def _alter(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    users = _users(request)
    errors: dict[str, KafkaError] = {}
    call = AlterCredentialsCall(deletions=[], upsertions=[], asked_by=asked_by(context))
    deletions, upsertions = call["deletions"], call["upsertions"]
    named: set[str] = set()
    # As in Kafka, the first that is wrong counts: what is invalid, then what is named again.
    for deletion in request.deletions:
        if deletion.name not in errors:
            try:
                _check_repetition(deletion.name, named)
                deletions.append(_deletion(deletion))
            except KafkaError as error:
                errors[deletion.name] = error
    for upsertion in request.upsertions:
        if upsertion.name not in errors:
            try:
                _check_repetition(upsertion.name, named)
                upsertions.append(_upsertion(upsertion))
            except KafkaError as error:
                errors[upsertion.name] = error
    call["deletions"] = [each for each in deletions if each["user"] not in errors]
    call["upsertions"] = [each for each in upsertions if each["user"] not in errors]
    outcomes = {user: _result(user, error) for user, error in errors.items()}
    if call["deletions"] or call["upsertions"]:
        outcomes |= await _forward(call, context)
    return AlterUserScramCredentialsResponse(
        results=[outcomes[user] for user in dict.fromkeys(users)]
    )


async def _forward(
    call: AlterCredentialsCall, context: RequestContext
) -> dict[str, AlterUserScramCredentialsResult]:
    try:
        reply = await ask_controller(
            context.broker, Method.ALTER_CREDENTIALS, call, timeout_ms=ADMIN_TIMEOUT_MS
        )
    except KafkaError as error:
        return {item["user"]: _result(item["user"], error) for item in _items(call)}
    return {
        altered["user"]: AlterUserScramCredentialsResult(altered["user"], *slot_error(altered))
        for altered in reply["users"]
    }


def _items(call: AlterCredentialsCall) -> list[CredentialDeletion | CredentialUpsertion]:
    return [*call["deletions"], *call["upsertions"]]


def _check_repetition(user: str, named: set[str]) -> None:
    if user in named:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )
    named.add(user)


def _deletion(deletion: ScramCredentialDeletion) -> CredentialDeletion:
    mechanism = _mechanism(deletion.mechanism)
    if not deletion.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    return CredentialDeletion(user=deletion.name, mechanism=mechanism)


def _upsertion(upsertion: ScramCredentialUpsertion) -> CredentialUpsertion:
    mechanism = _mechanism(upsertion.mechanism)
    salted_password = bytes(upsertion.salted_password)
    if not upsertion.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if not salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a salted password is not empty")
    if not MIN_ITERATIONS <= upsertion.iterations <= MAX_ITERATIONS:
        few_or_many = "few" if upsertion.iterations < MIN_ITERATIONS else "many"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {few_or_many} iterations")
    credential = credential_of(
        mechanism, salted_password, upsertion.iterations, bytes(upsertion.salt)
    )
    if problem := credential_problem(credential):
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)
    return CredentialUpsertion(
        user=upsertion.name, mechanism=mechanism, credential=encode_credential(credential)
    )


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None


def _users(request: AlterUserScramCredentialsRequest) -> list[str]:
    return [
        *(deletion.name for deletion in request.deletions),
        *(upsertion.name for upsertion in request.upsertions),
    ]


def _result(user: str, error: KafkaError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user, error.code, error.message)
