"""DeleteAcls (key 31), versions 1-3.

Behaviour: the rules that any filter selects are deleted at once; the answer has the selected rules
of each filter. Needs ALTER on the cluster. A filter with a number that is not known answers
INVALID_REQUEST, and the others are carried out. A rule of a principal that a User resource declares
stays, and answers POLICY_VIOLATION. The answer comes when this broker no longer applies the deleted
rules. Without an authorizer SECURITY_DISABLED.
Versions:  2 flexible · 3 resource type USER.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.security.acl_requests import asked_by, read_filter, require_authorizer
from fairlead_broker.limits import ACL_FILTERS_PER_REQUEST_MAX, ADMIN_TIMEOUT_MS
from fairlead_broker.session.controller_calls import ask_controller, slot_error
from fairlead_model.security.acl import AclFilter
from fairlead_model.session.calls import DeleteAclsCall, KeptAcl, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


def _refuse(
    request: DeleteAclsRequest, context: RequestContext, code: ErrorCode
) -> DeleteAclsResponse:
    return _all_refused(request, KafkaError(code))


@handles(ApiKey.DELETE_ACLS, versions=(1, 3), access=needs_cluster(Operation.ALTER, _refuse))
def delete_acls(
    request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse | Pending:
    """Forward to the controller the filters that can be applied."""
    if len(request.filters) > ACL_FILTERS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DeleteAcls has {len(request.filters)} filters")
    try:
        require_authorizer(context.broker)
    except KafkaError as error:
        return _all_refused(request, error)
    return context.later(_delete(request, context))


async def _delete(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    wanted = [_read(each) for each in request.filters]
    valid = [each for each in wanted if isinstance(each, AclFilter)]
    removed: list[list[list[Any]]] = []
    kept: list[list[KeptAcl]] = []
    failure: KafkaError | None = None
    if valid:
        call = DeleteAclsCall(filters=[[*each] for each in valid], asked_by=asked_by(context))
        try:
            reply = await ask_controller(
                context.broker, Method.DELETE_ACLS, call, timeout_ms=ADMIN_TIMEOUT_MS
            )
            removed = reply["removed"]
            kept = reply.get("kept") or [[] for _ in removed]
        except KafkaError as error:
            failure = error
    answers = zip(removed, kept, strict=True)
    results = []
    for each in wanted:
        if isinstance(each, KafkaError):
            results.append(_refused(each))
        elif failure is not None:
            results.append(_refused(failure))
        else:
            results.append(_told(*next(answers)))
    return DeleteAclsResponse(filter_results=results)


def _read(each: DeleteAclsFilter) -> AclFilter | KafkaError:
    try:
        return read_filter(
            (each.resource_type_filter, each.pattern_type_filter),
            (each.resource_name_filter, each.principal_filter, each.host_filter),
            (each.operation, each.permission_type),
        )
    except KafkaError as error:
        return error


def _told(removed: list[list[Any]], kept: list[KeptAcl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            *(_matching(rule) for rule in removed),
            *(_matching(each["acl"], *slot_error(each)) for each in kept),
        ],
    )


def _matching(
    rule: list[Any], code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> DeleteAclsMatchingAcl:
    kind, pattern, name, principal, host, operation, permission = rule
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=message,
        resource_type=kind,
        pattern_type=pattern,
        resource_name=name,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def _refused(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message)


def _all_refused(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_refused(error) for _ in request.filters])
