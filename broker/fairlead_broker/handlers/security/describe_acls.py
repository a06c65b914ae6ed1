"""DescribeAcls (key 29), versions 1-3.

Behaviour: the access rules that a filter selects, grouped by resource; needs DESCRIBE on the
cluster. A filter with a number that is not known answers INVALID_REQUEST, and a broker that
authorizes nothing SECURITY_DISABLED, as Kafka does without an authorizer. Where there are more than
5,000 rules others are served meanwhile.
Versions:  2 flexible · 3 resource type USER.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.in_turns import in_order, in_turns
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
    from collections.abc import Iterable, Iterator

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_model.security.acl import AclBinding, AclFilter


def _refuse(
    request: DescribeAclsRequest, context: RequestContext, code: ErrorCode
) -> DescribeAclsResponse:
    # librdkafka 2.x frees a text that is not its own where an error comes with an empty one.
    return DescribeAclsResponse(error_code=code, error_message=code.description)


@handles(ApiKey.DESCRIBE_ACLS, versions=(1, 3), access=needs_cluster(Operation.DESCRIBE, _refuse))
def describe_acls(
    request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse | Pending:
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
    rules = context.broker.image.acls
    resources: list[DescribeAclsResource] = []

    def build() -> DescribeAclsResponse:
        # Others may have been served meanwhile, and taken this right away.
        if not context.would_allow_cluster(Operation.DESCRIBE):
            return _refuse(request, context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return DescribeAclsResponse(error_message=None, resources=resources)

    return in_turns(context, _steps(wanted, rules, resources), len(rules), build)


def _steps(
    wanted: AclFilter, rules: Iterable[AclBinding], resources: list[DescribeAclsResource]
) -> Iterator[None]:
    """Group what is selected by resource, in order."""
    for rule in in_order(rules, wanted.matches, key=lambda each: each):
        if rule is None:
            yield
            continue
        last = resources[-1] if resources else None
        resource = (rule.resource_type, rule.pattern_type, rule.name)
        if last is None or (last.resource_type, last.pattern_type, last.resource_name) != resource:
            last = DescribeAclsResource(
                resource_type=rule.resource_type,
                resource_name=rule.name,
                pattern_type=rule.pattern_type,
            )
            resources.append(last)
        last.acls.append(
            AclDescription(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
        )
