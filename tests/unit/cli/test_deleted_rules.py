"""`fairlead acl delete` tells a rule that the cluster keeps from one that is gone."""

from types import SimpleNamespace
from typing import Any

import pytest
from answering_broker import answering_broker

from fairlead_cli.client.acls import delete_rules
from fairlead_cli.errors import CliError
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

RULE = AclBinding(
    *(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:anna", "*"),
    *(Operation.READ, Permission.ALLOW),
)


def delete(*results: DeleteAclsFilterResult) -> list[AclBinding]:
    response = DeleteAclsResponse(filter_results=list(results))
    with answering_broker({ApiKey.DELETE_ACLS: response}) as port:
        broker = SimpleNamespace(id=1, host="127.0.0.1", port=port)
        metadata = SimpleNamespace(brokers={1: broker}, controller_id=1)
        admin: Any = SimpleNamespace(list_topics=lambda **_: metadata)
        return delete_rules(admin, [RULE])


def matching(code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> Any:
    return DeleteAclsMatchingAcl(code, message, 2, "orders", 3, "User:anna", "*", 3, 3)


def test_a_rule_that_the_cluster_keeps_is_not_told_as_removed() -> None:
    """That of a principal that a User resource declares: its right stays."""
    kept = matching(ErrorCode.POLICY_VIOLATION, "the User anna declares it")
    with pytest.raises(CliError, match=r"anna.*: the User anna declares it .POLICY_VIOLATION."):
        delete(DeleteAclsFilterResult(matching_acls=[kept]))


def test_rules_that_are_gone_are_told() -> None:
    assert delete(DeleteAclsFilterResult(matching_acls=[matching()])) == [RULE]
    assert delete(DeleteAclsFilterResult()) == []


def test_a_refusal_is_told() -> None:
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, "this broker authorizes nothing")
    with pytest.raises(CliError, match=r"this broker authorizes nothing .SECURITY"):
        delete(refused)
