"""DescribeUserScramCredentials (key 50), version 0.

Behaviour: of each user the mechanisms and their iterations, never a salt or a key; needs DESCRIBE
on the cluster. No users, or an empty list, means all. One who has none answers RESOURCE_NOT_FOUND,
one who is named twice DUPLICATE_RESOURCE.
Versions:  0 only.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.limits import USERS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import repeated
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


def _refuse(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, code: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=code.description)


@handles(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    access=needs_cluster(Operation.DESCRIBE, _refuse),
)
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Answer from the image."""
    if request.users is not None and len(request.users) > USERS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"{len(request.users)} users are asked for")
    known: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), credential in sorted(
        context.broker.image.credentials.items(), key=lambda item: item[0]
    ):
        known.setdefault(user, []).append(CredentialInfo(mechanism, credential.iterations))
    asked = [user.name for user in request.users] if request.users else sorted(known)
    twice = repeated(asked)
    return DescribeUserScramCredentialsResponse(
        results=[_describe(user, known, is_twice=user in twice) for user in dict.fromkeys(asked)],
    )


def _describe(
    user: str, known: dict[str, list[CredentialInfo]], *, is_twice: bool
) -> DescribeUserScramCredentialsResult:
    infos = known.get(user)
    if is_twice:
        code, message = ErrorCode.DUPLICATE_RESOURCE, "the request names this user twice"
    elif infos is None:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credential"
    else:
        return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
