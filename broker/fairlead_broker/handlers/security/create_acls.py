"""CreateAcls (key 30), versions 1-3.

Behaviour: each rule on its own, in the order of the request; needs ALTER on the cluster. An invalid
rule answers INVALID_REQUEST, a rule that exists already is a success. The answer comes when this
broker applies the new rules: `kafka-acls.sh` asks for them next, and clients may use them at once.
Without an authorizer SECURITY_DISABLED.
Versions:  2 flexible · 3 resource type USER.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.security.acl_requests import (
    asked_by,
    known_number,
    require_authorizer,
)
from fairlead_broker.limits import ACLS_PER_REQUEST_MAX, ADMIN_TIMEOUT_MS
from fairlead_broker.session.controller_calls import ask_in_parts, slot_error
from fairlead_model.codec import encode_acl
from fairlead_model.security.acl import (
    AclBinding,
    PatternType,
    Permission,
    ResourceType,
    binding_problem,
)
from fairlead_model.session.calls import CreateAclsCall, Method
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext


def _refuse(
    request: CreateAclsRequest, context: RequestContext, code: ErrorCode
) -> CreateAclsResponse:
    return _all_refused(request, KafkaError(code))


@handles(ApiKey.CREATE_ACLS, versions=(1, 3), access=needs_cluster(Operation.ALTER, _refuse))
def create_acls(
    request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse | Pending:
    """Forward to the controller what is a rule."""
    if len(request.creations) > ACLS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"CreateAcls names {len(request.creations)} rules")
    try:
        require_authorizer(context.broker)
    except KafkaError as error:
        return _all_refused(request, error)
    return context.later(_create(request, context))


async def _create(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    rules = [_rule(creation) for creation in request.creations]
    problems = [binding_problem(rule) for rule in rules]
    valid = [rule for rule, problem in zip(rules, problems, strict=True) if not problem]
    outcomes: list[AclCreationResult] = []
    if valid:
        call = CreateAclsCall(acls=[encode_acl(rule) for rule in valid], asked_by=asked_by(context))
        reply = await ask_in_parts(
            context.broker, Method.CREATE_ACLS, call, "acls", timeout_ms=ADMIN_TIMEOUT_MS
        )
        outcomes = [AclCreationResult(*slot_error(created)) for created in reply.answers]
        if reply.error is not None:
            outcomes += [_refused(reply.error) for _ in reply.unanswered]
    answers = iter(outcomes)
    return CreateAclsResponse(
        results=[
            _refused(KafkaError(ErrorCode.INVALID_REQUEST, problem)) if problem else next(answers)
            for problem in problems
        ]
    )


def _rule(creation: AclCreation) -> AclBinding:
    return AclBinding(
        known_number(ResourceType, creation.resource_type),
        known_number(PatternType, creation.resource_pattern_type),
        creation.resource_name,
        creation.principal,
        creation.host,
        known_number(Operation, creation.operation),
        known_number(Permission, creation.permission_type),
    )


def _refused(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _all_refused(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_refused(error) for _ in request.creations])
