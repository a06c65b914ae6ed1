"""Access rules as people write them, and why a decision is as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from fairlead_cli.acl import acl
from fairlead_cli.acl.rule_text import (
    parse_operation,
    parse_resource,
    parse_rules,
    principal_of,
    resource_text,
)
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.acl_explanation import explain

if TYPE_CHECKING:
    from pathlib import Path

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("topic:orders", (TOPIC, LITERAL, "orders")),
        ("topic:orders-*", (TOPIC, PREFIXED, "orders-")),
        ("topic:*", (TOPIC, LITERAL, "*")),
        ("TOPIC:a:b", (TOPIC, LITERAL, "a:b")),
        ("group:billing", (ResourceType.GROUP, LITERAL, "billing")),
        ("transactional-id:t*", (ResourceType.TRANSACTIONAL_ID, PREFIXED, "t")),
        ("cluster", (ResourceType.CLUSTER, LITERAL, "kafka-cluster")),
    ],
)
def test_resources_are_read_as_they_are_shown(text: str, resource: tuple[object, ...]) -> None:
    assert parse_resource(text) == resource
    rule = AclBinding(*resource, "User:a", "*", Operation.READ, Permission.ALLOW)
    assert parse_resource(resource_text(rule)) == resource


def test_one_text_may_name_several_operations() -> None:
    rules = parse_rules(
        ["READ,describe-configs topic:t", "Read topic:t"],
        "User:alice",
        host="10.0.0.1",
        permission=Permission.DENY,
    )
    assert [rule.operation for rule in rules] == [Operation.READ, Operation.DESCRIBE_CONFIGS]
    assert {rule[2:5] for rule in rules} == {("t", "User:alice", "10.0.0.1")}
    assert {rule.permission for rule in rules} == {Permission.DENY}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("READ", "OPERATION TYPE:NAME"),
        ("READ topic", "topic:NAME"),
        ("READ topic:", "topic:NAME"),
        ("READ queue:x", "transactional-id"),
        ("FLY topic:x", "IDEMPOTENT_WRITE"),
        ("ANY topic:x", "'ANY'"),
        ("READ, topic:x", "''"),
        ("READ cluster:other", "kafka-cluster"),
    ],
)
def test_what_is_no_rule_is_said_to_be_none(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_rules([text], "User:a", host="*", permission=Permission.ALLOW)


def test_names_of_users() -> None:
    assert principal_of("alice") == "User:alice"
    assert principal_of("User:alice") == "User:alice"
    assert principal_of("*") == "User:*"
    assert parse_operation("idempotentwrite") is Operation.IDEMPOTENT_WRITE


def rule(
    operation: Operation, principal: str = "User:a", *, deny: bool = False, name: str = "t"
) -> AclBinding:
    permission = Permission.DENY if deny else Permission.ALLOW
    return AclBinding(TOPIC, LITERAL, name, principal, "*", operation, permission)


def test_a_decision_is_explained_rule_by_rule() -> None:
    rules = [
        rule(Operation.WRITE),
        rule(Operation.ALL, "User:b", deny=True),
        rule(Operation.READ, deny=True),
        rule(Operation.CREATE),
        rule(Operation.ALL, name="other"),
        rule(Operation.READ, name="*")._replace(host="10.0.0.1"),
    ]
    question = ("User:a", "127.0.0.1", Operation.DESCRIBE, TOPIC, "t")
    told = explain(rules, question, super_users=(), allows_without_rules=True)
    assert told.is_allowed
    assert told.reason == "a rule allows it: ALLOW User:a WRITE TOPIC t"
    assert {str(each.rule): each.verdict for each in told.rules} == {
        "ALLOW User:a WRITE TOPIC t": "allows it: WRITE implies DESCRIBE",
        "DENY User:b ALL TOPIC t": "is for another user",
        "DENY User:a READ TOPIC t": "denies READ, which says nothing of DESCRIBE",
        "ALLOW User:a CREATE TOPIC t": "is for another operation",
        "ALLOW User:a from 10.0.0.1 READ TOPIC *": "is for another host",
    }
    denied = explain(
        [*rules, rule(Operation.DESCRIBE, "User:*", deny=True)],
        question,
        super_users=(),
        allows_without_rules=True,
    )
    assert not denied.is_allowed
    assert denied.reason == "a rule denies it: DENY User:* DESCRIBE TOPIC t"
    root = explain(rules, question, super_users=("User:a",), allows_without_rules=False)
    assert (root.is_allowed, root.reason) == (True, "User:a is in super.users: no rule counts")


@pytest.mark.parametrize("default", [True, False])
def test_where_no_rule_decides_it_is_said_why(default: bool) -> None:
    question = ("User:a", "h", Operation.READ, TOPIC, "t")
    none = explain([], question, super_users=(), allows_without_rules=default)
    assert none.is_allowed is default
    assert f"allow.everyone.if.no.acl.found={str(default).lower()}" in none.reason
    other = explain(
        [rule(Operation.ALL, "User:b")], question, super_users=(), allows_without_rules=default
    )
    assert not other.is_allowed
    assert other.reason == "rules apply to this resource, and none of them allows it"


@pytest.mark.parametrize("host", ["10.0.0.0/8", "db.example", "999.1.1.1", "[::1]", ""])
def test_a_rule_for_hosts_that_no_client_has_is_not_made(host: str, tmp_path: Path) -> None:
    """A rule that denies would deny nobody, and nothing would say so."""
    asked = ["create", "--user", "a", "--data", str(tmp_path), "--host", host, "READ topic:t"]
    result = CliRunner().invoke(acl, asked)
    assert result.exit_code == 2
    assert f"'{host}' is no address: rules are for one address or for *" in unwrapped(result.output)


@pytest.mark.parametrize("host", ["*", "10.0.0.1", "::1", "0:0:0:0:0:0:0:1"])
def test_a_rule_for_an_address_is_made(host: str, tmp_path: Path) -> None:
    asked = ["create", "--user", "a", "--data", str(tmp_path), "--host", host, "READ topic:t"]
    result = CliRunner().invoke(acl, asked)
    assert "there is no local cluster" in str(result.exception)


def unwrapped(text: str) -> str:
    return " ".join(text.split())
