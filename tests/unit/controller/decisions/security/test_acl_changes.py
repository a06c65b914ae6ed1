"""Adding and removing access rules, as AclControlManager does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from decision_world import reply_of

from fairlead_controller.decisions.events import CreateAcls, DeleteAcls
from fairlead_controller.decisions.security.acl_changes import ACLS_REMOVED_MAX
from fairlead_model.cluster import AclChanged
from fairlead_model.codec import encode_acl
from fairlead_model.security.acl import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from decision_world import World

ALICE = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    Operation.WRITE,
    Permission.ALLOW,
)
ANYTHING = AclFilter(
    ResourceType.ANY, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY
)


def create(*rules: AclBinding) -> CreateAcls:
    return CreateAcls(rules, "User:admin from 127.0.0.1")


def delete(*filters: AclFilter) -> DeleteAcls:
    return DeleteAcls(filters, "User:admin from 127.0.0.1")


def test_a_rule_that_is_there_is_a_success_that_writes_nothing(world: World) -> None:
    assert world.decide(create(ALICE)).changes == (AclChanged(ALICE),)
    world.do(create(ALICE))
    assert set(world.state.image.acls) == {ALICE}
    again = world.decide(create(ALICE, ALICE))
    assert again.changes == ()
    assert [result["error_code"] for result in reply_of(again)["acls"]] == [0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        ALICE._replace(resource_type=ResourceType.ANY),
        ALICE._replace(resource_type=ResourceType.UNKNOWN),
        ALICE._replace(pattern_type=PatternType.MATCH),
        ALICE._replace(pattern_type=PatternType.ANY),
        ALICE._replace(operation=Operation.ANY),
        ALICE._replace(permission=Permission.UNKNOWN),
        ALICE._replace(name=""),
        ALICE._replace(host=""),
        ALICE._replace(principal="alice"),
        ALICE._replace(principal="User:"),
        ALICE._replace(principal=f"User:{'a' * 1000}"),
        ALICE._replace(resource_type=ResourceType.CLUSTER),
    ],
)
def test_what_is_no_rule_is_refused_in_its_slot_alone(world: World, wrong: AclBinding) -> None:
    reply = world.do(create(wrong, ALICE))
    codes = [result["error_code"] for result in reply["acls"]]
    assert codes == [RefusalCode.INVALID_REQUEST, 0]
    assert set(world.state.image.acls) == {ALICE}


def test_each_filter_is_told_what_it_removed_and_all_go_at_once(world: World) -> None:
    prefixed = ALICE._replace(pattern_type=PatternType.PREFIXED, name="or")
    everywhere = ALICE._replace(name="*", principal="User:*")
    other = ALICE._replace(name="payments", operation=Operation.READ)
    world.do(create(ALICE, prefixed, everywhere, other))
    match = ANYTHING._replace(pattern_type=PatternType.MATCH, name="orders")
    named = ANYTHING._replace(name="orders")
    told = world.do(delete(match, named, ANYTHING._replace(principal="User:nobody")))["removed"]
    assert [sorted(rules) for rules in told] == [
        sorted(encode_acl(rule) for rule in (ALICE, prefixed, everywhere)),
        [encode_acl(ALICE)],
        [],
    ]
    assert set(world.state.image.acls) == {other}


def test_filters_for_one_rule_each_do_not_walk_over_all_rules(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them took the controller for longer than sessions last."""
    rules = [ALICE._replace(name=f"t{n}", principal=f"User:{n % 50}") for n in range(2_000)]
    world.do(create(*rules))
    compared = []
    matches = AclFilter.matches

    def count_and_match(*both: Any) -> bool:
        compared.append(1)
        return matches(*both)

    monkeypatch.setattr(AclFilter, "matches", count_and_match)
    reply = world.do(delete(*(AclFilter(*rule) for rule in rules[:1_000])))
    assert [len(each) for each in reply["removed"]] == [1] * 1_000
    assert set(world.state.image.acls) == set(rules[1_000:])
    assert len(compared) == 1_000


@pytest.mark.parametrize("pattern_type", [*PatternType][1:])
@pytest.mark.parametrize("name", [None, "a", "ab", "*"])
@pytest.mark.parametrize("principal", [None, "User:alice", "User:nobody"])
def test_what_is_found_by_name_or_principal_is_what_matches(
    world: World, pattern_type: PatternType, name: str | None, principal: str | None
) -> None:
    for pattern in (PatternType.LITERAL, PatternType.PREFIXED):
        for resource in ("a", "ab", "*"):
            for who in ("User:alice", "User:bob"):
                rule = ALICE._replace(pattern_type=pattern, name=resource, principal=who)
                world.do(create(rule))
    wanted = ANYTHING._replace(pattern_type=pattern_type, name=name, principal=principal)
    matching = {rule for rule in world.state.image.acls if wanted.matches(rule)}
    (removed,) = reply_of(world.decide(delete(wanted)))["removed"]
    assert removed == [encode_acl(rule) for rule in sorted(matching)]


def test_more_than_a_request_may_remove_removes_nothing(world: World) -> None:
    rules = [ALICE._replace(name=f"t{number}") for number in range(ACLS_REMOVED_MAX + 1)]
    world.do(create(*rules))
    decision = world.decide(delete(ANYTHING))
    assert isinstance(decision.reply, RefusedError)
    assert decision.reply.code == RefusalCode.POLICY_VIOLATION
    assert decision.changes == ()
    world.do(delete(ANYTHING._replace(name="t1")))
    assert len(world.decide(delete(ANYTHING)).changes) == ACLS_REMOVED_MAX
