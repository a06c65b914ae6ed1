"""DescribeUserScramCredentials (key 50), version 0.

Behaviour: the mechanisms and iterations of each user, never a salt or a key; needs DESCRIBE on the
cluster. No list of users, or an empty one, means all. A user without credentials answers
RESOURCE_NOT_FOUND, a user that is named twice DUPLICATE_RESOURCE. Beyond 5,000 credentials the
broker serves other requests meanwhile.
Versions:  0 only.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.in_turns import in_order, in_turns
from fairlead_broker.limits import USERS_PER_REQUEST_MAX
from fairlead_broker.session.controller_calls import repeated
from fairlead_model.security.scram import ScramMechanism
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_model.security.scram import ScramCredential

    Credentials: TypeAlias = Mapping[tuple[ScramMechanism, str], ScramCredential]


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
) -> DescribeUserScramCredentialsResponse | Pending:
    """Answer from the image."""
    if request.users is not None and len(request.users) > USERS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"{len(request.users)} users are asked for")
    credentials = context.broker.image.credentials
    if request.users:
        asked = [user.name for user in request.users]
        twice = repeated(asked)
        return DescribeUserScramCredentialsResponse(
            results=[
                _describe(user, credentials, is_twice=user in twice)
                for user in dict.fromkeys(asked)
            ]
        )
    results: list[DescribeUserScramCredentialsResult] = []

    def build() -> DescribeUserScramCredentialsResponse:
        # Others may have been served meanwhile, and taken this right away.
        if not context.would_allow_cluster(Operation.DESCRIBE):
            return _refuse(request, context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return DescribeUserScramCredentialsResponse(results=results)

    return in_turns(context, _steps(credentials, results), len(credentials), build)


def _steps(
    credentials: Credentials, results: list[DescribeUserScramCredentialsResult]
) -> Iterator[None]:
    """Tell of each user, in order."""
    for key in in_order(credentials, lambda _: True, key=lambda each: (each[1], each[0])):
        if key is None:
            yield
        elif not results or results[-1].user != key[1]:
            results.append(_describe(key[1], credentials, is_twice=False))


def _describe(
    user: str, credentials: Credentials, *, is_twice: bool
) -> DescribeUserScramCredentialsResult:
    if is_twice:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = (
            "Cannot describe SCRAM credentials for the same user twice in a single request: " + user
        )
        return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
    found = ((each, credentials.get((each, user))) for each in ScramMechanism)
    infos = [CredentialInfo(each, known.iterations) for each, known in found if known is not None]
    if not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
