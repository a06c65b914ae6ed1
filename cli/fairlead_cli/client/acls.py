"""Access rules of a cluster through Kafka's admin APIs, as values of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, build_error, fetch_metadata
from fairlead_cli.client.wire_call import asking_order, call_any
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import name_error
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_wire.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

EVERY_RULE: Final = DescribeAclsRequest(
    ResourceType.ANY,
    None,
    PatternType.ANY,
    None,
    None,
    Operation.ANY,
    Permission.ANY,
)
_SETTINGS: Final = ("super.users", "allow.everyone.if.no.acl.found")


class AuthorizerSettings(NamedTuple):
    """What a broker's settings say of authorization."""

    super_users: frozenset[str]
    allows_without_rules: bool


def fetch_rules(admin: AdminClient) -> list[AclBinding]:
    """Return all access rules, sorted; CliError.

    Without librdkafka, whose Python client takes a refusal for an empty list.
    """
    reply = call_any(asking_order(fetch_metadata(admin)), EVERY_RULE, 1)
    if reply.error_code:
        raise CliError(
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
    """Remove rules; return those that existed. CliError with the first refusal."""
    from confluent_kafka import KafkaException

    removed: list[AclBinding] = []
    filters = [_filter(rule) for rule in rules]
    for future in admin.delete_acls(filters, request_timeout=REQUEST_TIMEOUT_S).values():
        try:
            removed += map(_rule, future.result())
        except KafkaException as exception:
            raise build_error("cannot remove an access rule", exception.args[0]) from exception
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


def _rule(binding: Any) -> AclBinding:
    return AclBinding(
        ResourceType(int(binding.restype.value)),
        PatternType(int(binding.resource_pattern_type.value)),
        binding.name,
        binding.principal,
        binding.host,
        Operation(int(binding.operation.value)),
        Permission(int(binding.permission_type.value)),
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


def _filter(rule: AclBinding) -> Any:
    """Return the filter that selects one rule."""
    from confluent_kafka.admin import AclBindingFilter

    return AclBindingFilter(
        int(rule.resource_type),
        rule.name,
        int(rule.pattern_type),
        rule.principal,
        rule.host,
        int(rule.operation),
        int(rule.permission),
    )
