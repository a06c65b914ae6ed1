"""DescribeAcls (key 29), versions 1-3.

Behaviour: the access rules that a filter selects, grouped by resource; needs DESCRIBE on the
cluster. A filter with a number that is not known answers INVALID_REQUEST, and a broker that
authorizes nothing SECURITY_DISABLED, as Kafka does without an authorizer.
Versions:  2 flexible · 3 resource type USER.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.security.acl_requests import read_filter, require_authorizer
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_model.security.acl import AclBinding


def _refuse(
    request: DescribeAclsRequest, context: RequestContext, code: ErrorCode
) -> DescribeAclsResponse:
    # librdkafka 2.x frees a text that is not its own where an error comes with an empty one.
    return DescribeAclsResponse(error_code=code, error_message=code.description)


@handles(ApiKey.DESCRIBE_ACLS, versions=(1, 3), access=needs_cluster(Operation.DESCRIBE, _refuse))
def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Answer from the image."""
    try:
        require_authorizer(context.broker)
        wanted = read_filter(
            (request.resource_type_filter, request.pattern_type_filter),
            (
                request.resource_name_filter,
                request.principal_filter,
                request.host_filter,
            ),
            (request.operation, request.permission_type),
        )
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    by_resource: dict[tuple[int, str, int], list[AclBinding]] = {}
    for rule in sorted(context.broker.image.acls):
        if wanted.matches(rule):
            resource = (rule.resource_type, rule.name, rule.pattern_type)
            by_resource.setdefault(resource, []).append(rule)
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    AclDescription(
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in rules
                ],
            )
            for (kind, name, pattern), rules in by_resource.items()
        ],
    )
