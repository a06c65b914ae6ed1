"""Access rules of a cluster through Kafka's admin APIs, as values of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, build_error, fetch_metadata
from fairlead_cli.client.wire_call import asking_order, call_any, call_first
from fairlead_cli.errors import CliError, NothingAuthorizedError
from fairlead_cli.wire_exchange import explain_error, name_error
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from fairlead_wire.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

    from fairlead_wire.messages.delete_acls import DeleteAclsMatchingAcl

EVERY_RULE: Final = DescribeAclsRequest(
    ResourceType.ANY,
    None,
    PatternType.ANY,
    None,
    None,
    Operation.ANY,
    Permission.ANY,
)
# Brokers take a thousand.
FILTERS_A_REQUEST: Final = 500
_SETTINGS: Final = ("super.users", "allow.everyone.if.no.acl.found")


class AuthorizerSettings(NamedTuple):
    """What a broker's settings say of authorization."""

    super_users: frozenset[str]
    allows_without_rules: bool


def fetch_rules(admin: AdminClient) -> list[AclBinding]:
    """Return all access rules, sorted; CliError, NothingAuthorizedError where none apply.

    Without librdkafka, whose Python client takes a refusal for an empty list.
    """
    reply = call_any(asking_order(fetch_metadata(admin)), EVERY_RULE, 1)
    if reply.error_code:
        disabled = reply.error_code == ErrorCode.SECURITY_DISABLED
        raise (NothingAuthorizedError if disabled else CliError)(
            f"cannot read the access rules: {name_error(reply.error_code)}: {reply.error_message}"
        )
    return sorted(
        AclBinding(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            resource.resource_name,
            acl.principal,
            acl.host,
            Operation(acl.operation),
            Permission(acl.permission_type),
        )
        for resource in reply.resources
        for acl in resource.acls
    )


def create_rules(admin: AdminClient, rules: Iterable[AclBinding]) -> None:
    """Add rules; CliError with the first refusal."""
    from confluent_kafka import KafkaException

    bindings = [_binding(rule) for rule in rules]
    for future in admin.create_acls(bindings, request_timeout=REQUEST_TIMEOUT_S).values():
        try:
            future.result()
        except KafkaException as exception:
            raise build_error("cannot add an access rule", exception.args[0]) from exception


def delete_rules(admin: AdminClient, rules: Iterable[AclBinding]) -> list[AclBinding]:
    """Remove rules; return those that existed. CliError with the first refusal.

    Without librdkafka, whose Python client takes a rule that the cluster keeps for a removed one.
    """
    filters = [_filter(rule) for rule in rules]
    addresses = asking_order(fetch_metadata(admin))
    removed: list[AclBinding] = []
    for start in range(0, len(filters), FILTERS_A_REQUEST):
        request = DeleteAclsRequest(filters[start : start + FILTERS_A_REQUEST])
        for result in call_first(addresses, request, 1).filter_results:
            if result.error_code:
                why = explain_error(result.error_code, result.error_message)
                raise CliError(f"cannot remove an access rule: {why}")
            for told in result.matching_acls:
                rule = _told_rule(told)
                if told.error_code:
                    why = explain_error(told.error_code, told.error_message)
                    raise CliError(f"cannot remove {rule}: {why}")
                removed.append(rule)
    return sorted(set(removed))


def fetch_authorizer_settings(admin: AdminClient) -> AuthorizerSettings:
    """Return the settings of one broker; CliError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource

    broker = fetch_metadata(admin).controller_id  # The broker that has just answered.
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    try:
        asked = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
        configs = asked[resource].result()
    except KafkaException as exception:
        raise build_error(
            f"cannot read the settings of broker {broker}", exception.args[0]
        ) from exception
    users, default = (configs[name].value if name in configs else "" for name in _SETTINGS)
    named = (user.strip() for user in (users or "").split(";"))
    return AuthorizerSettings(frozenset(filter(None, named)), default == "true")


def _told_rule(told: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourceType(told.resource_type),
        PatternType(told.pattern_type),
        told.resource_name,
        told.principal,
        told.host,
        Operation(told.operation),
        Permission(told.permission_type),
    )


def _binding(rule: AclBinding) -> Any:
    from confluent_kafka.admin import AclBinding as Binding

    return Binding(
        int(rule.resource_type),
        rule.name,
        int(rule.pattern_type),
        rule.principal,
        rule.host,
        int(rule.operation),
        int(rule.permission),
    )


def _filter(rule: AclBinding) -> DeleteAclsFilter:
    """Return the filter that selects one rule."""
    return DeleteAclsFilter(
        rule.resource_type,
        rule.name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )
