"""Rules and users by Kafka's APIs, decided by the controller's own code."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any, cast

import msgpack
import pytest

from fairlead_broker.handlers import in_turns
from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.state import (
    CountersChanged,
    DeclaredUser,
    UserDeclared,
    initial_state,
)
from fairlead_controller.sessions.call_parsing import parse_call
from fairlead_model.cluster import AclChanged, ClusterDelta, CredentialChanged
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.scram import ScramMechanism, derive
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import (
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Callable

AUTHORIZING = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
RULE = (2, "orders", 3, "User:alice", "*", 4, 3)
SHA_256, SHA_512 = ScramMechanism


def deciding(
    stage: Any, method: str, *declared: UserDeclared
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What a controller does with a call: read it, decide, and publish before it answers."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        sent = msgpack.unpackb(msgpack.packb(body), strict_map_key=False)
        event = parse_call(method, sent, broker_id=1, broker_epoch=1)
        state = initial_state(stage.image, controller_epoch=1, counters=CountersChanged(1, 0))
        state = state.apply(declared)
        decision = decide(state, event, now_ms=0, random=random.Random(1))
        delta = ClusterDelta(cast("Any", decision.changes))
        stage.image = stage.image.apply(delta)
        stage.broker.publish(delta, stage.image)
        reply = msgpack.unpackb(msgpack.packb(decision.reply), strict_map_key=False)
        assert isinstance(reply, dict)
        return reply

    return answer


@pytest.fixture
def stage(stage: Any) -> Any:
    for method in ("create_acls", "delete_acls", "alter_credentials"):
        stage.controller.script[method] = deciding(stage, method)
    return stage


def create(stage: Any, *rules: tuple[Any, ...], version: int = 3) -> list[int]:
    request = create_acls.CreateAclsRequest([create_acls.AclCreation(*rule) for rule in rules])
    return [result.error_code for result in stage.ask(request, version).results]


def delete(stage: Any, *filters: tuple[Any, ...]) -> list[Any]:
    request = delete_acls.DeleteAclsRequest(
        [delete_acls.DeleteAclsFilter(*each) for each in filters]
    )
    results: list[Any] = stage.ask(request, 3).filter_results
    return results


def describe(stage: Any, *wanted: Any) -> Any:
    return stage.ask(describe_acls.DescribeAclsRequest(*wanted), 3)


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_hold_once_the_answer_is_here_and_are_described(stage: Any, version: int) -> None:
    ours = (*RULE[:2], 4, *RULE[3:])
    assert create(stage, RULE, ours, RULE, version=version) == [0, 0, 0]
    assert set(stage.broker.image.acls) == {
        AclBinding(
            ResourceType.TOPIC,
            pattern,
            "orders",
            "User:alice",
            "*",
            Operation.WRITE,
            Permission.ALLOW,
        )
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    }
    reply = describe(stage, 1, None, 1, None, None, 1, 1)
    shown = [
        (each.resource_type, each.resource_name, each.pattern_type, len(each.acls))
        for each in reply.resources
    ]
    assert shown == [(2, "orders", 3, 1), (2, "orders", 4, 1)]
    (acl,) = reply.resources[0].acls
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == RULE[3:]


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
def test_very_many_rules_are_described_in_order_while_others_are_served(
    stage: Any, later_steps: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 took the loop three seconds, which costs a broker its leaders."""
    names = [f"orders-{number:03}" for number in random.Random(1).sample(range(1000), 450)]
    rules = [(2, name, 3, user, *RULE[4:]) for name in names for user in ("User:a", "User:b")]
    assert set(create(stage, *rules)) == {0}
    expected = [(name, ["User:a", "User:b"]) for name in sorted(names)]
    for most, turns in ((900, 0), (899, 8 + 5)):
        monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", most)
        reply = describe(stage, 2, None, 1, None, None, 1, 1)
        assert [
            (each.resource_name, [acl.principal for acl in each.acls]) for each in reply.resources
        ] == expected
        assert len(later_steps) == turns


def revoke_meanwhile(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give everybody the right to see all, and take it back while an answer is made in turns."""
    mine = (4, "kafka-cluster", 3, "User:*", "*", Operation.DESCRIBE, Permission.ALLOW)
    assert create(stage, mine) == [0]
    (rule,) = stage.image.acls

    async def revoke(steps: Any, clock: Any) -> None:
        delta = ClusterDelta((AclChanged(rule, is_removed=True),))
        stage.broker.publish(delta, stage.image.apply(delta))

    stage.authorizer = stage.broker.authorizer
    monkeypatch.setattr(in_turns, "in_slices", revoke)


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
def test_very_many_rules_are_not_told_to_who_may_not_see_them_any_more(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I13."""
    revoke_meanwhile(stage, monkeypatch)
    asked = (1, None, 1, None, None, 1, 1)
    assert describe(stage, *asked).error_code == 0
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 0)
    assert describe(stage, *asked).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
def test_what_is_no_rule_is_refused_in_its_place(stage: Any) -> None:
    wrong = [
        (0, *RULE[1:]),
        (1, *RULE[1:]),
        (99, *RULE[1:]),
        (2, "orders", 2, *RULE[3:]),
        (2, "", *RULE[2:]),
        (4, "cluster", *RULE[2:]),
        (*RULE[:3], "alice", *RULE[4:]),
        (*RULE[:5], 1, 3),
        (*RULE[:6], 0),
    ]
    invalid = ErrorCode.INVALID_REQUEST
    expected = [0, *[invalid] * len(wrong), 0]
    assert create(stage, RULE, *wrong, (4, "kafka-cluster", *RULE[2:])) == expected
    assert len(stage.broker.image.acls) == 2


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
def test_filters_are_told_what_they_removed_and_the_wrong_one_removes_nothing(stage: Any) -> None:
    create(stage, RULE, (2, "or", 4, *RULE[3:]), (2, "*", *RULE[2:]), (3, "orders", *RULE[2:]))
    results = delete(
        stage,
        (2, "orders", 2, None, None, 1, 1),
        (7, "orders", 0, None, None, 1, 1),
        (3, None, 3, "User:bob", None, 1, 1),
    )
    assert [each.error_code for each in results] == [0, ErrorCode.INVALID_REQUEST, 0]
    names = [[acl.resource_name for acl in each.matching_acls] for each in results]
    assert [sorted(each) for each in names] == [["*", "or", "orders"], [], []]
    (left,) = stage.broker.image.acls
    assert left.resource_type is ResourceType.GROUP
    assert describe(stage, 99, None, 1, None, None, 1, 1).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
def test_what_a_resource_declares_is_refused_with_its_name(stage: Any) -> None:
    create(stage, RULE, (*RULE[:3], "User:bob", *RULE[4:]))
    declared = UserDeclared("alice-of-shop", DeclaredUser("User:alice"))
    for method in ("create_acls", "delete_acls"):
        stage.controller.script[method] = deciding(stage, method, declared)
    assert create(stage, (2, "payments", *RULE[2:])) == [ErrorCode.POLICY_VIOLATION]
    (result,) = delete(stage, (1, None, 1, None, None, 1, 1))
    assert result.error_code == 0
    assert [(each.principal, each.error_code) for each in result.matching_acls] == [
        ("User:bob", 0),
        ("User:alice", ErrorCode.POLICY_VIOLATION),
    ]
    assert "alice-of-shop" in result.matching_acls[1].error_message
    assert [each.principal for each in stage.broker.image.acls] == ["User:alice"]


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
def test_without_a_controller_each_rule_says_so(stage: Any) -> None:
    stage.controller.script.clear()
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert create(stage, RULE, (0, *RULE[1:])) == [timed_out, ErrorCode.INVALID_REQUEST]
    assert [each.error_code for each in delete(stage, (2, "t", 3, None, None, 1, 1))] == [timed_out]


def test_a_broker_that_authorizes_nothing_says_so(stage: Any) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    assert create(stage, RULE) == [disabled]
    assert [each.error_code for each in delete(stage, (2, "t", 3, None, None, 1, 1))] == [disabled]
    assert describe(stage, 1, None, 1, None, None, 1, 1).error_code == disabled
    assert stage.controller.calls == []


def alter(stage: Any, deletions: list[Any], upsertions: list[Any]) -> dict[str, int]:
    deletion = alter_user_scram_credentials.ScramCredentialDeletion
    upsertion = alter_user_scram_credentials.ScramCredentialUpsertion
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        [deletion(*each) for each in deletions], [upsertion(*each) for each in upsertions]
    )
    return {each.user: each.error_code for each in stage.ask(request, 0).results}


def salted(password: str, mechanism: ScramMechanism = SHA_256) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), b"salt" * 4, 4096)


def test_a_password_verifies_once_the_answer_is_here_and_never_leaves_the_broker(
    stage: Any,
) -> None:
    heard: list[tuple[ScramMechanism, str]] = []
    stage.broker.credentials.watch(lambda mechanism, user: heard.append((mechanism, user)))
    given = ("alice", 1, 4096, b"salt" * 4, salted("secret"))
    assert alter(stage, [], [given]) == {"alice": 0}
    expected = derive(SHA_256, "secret", 4096, b"salt" * 4)
    assert stage.broker.credentials.find(SHA_256, "alice") == expected
    assert stage.broker.credentials.find(SHA_512, "alice") is None
    ((_, body),) = stage.controller.calls
    assert salted("secret") not in msgpack.packb(body)
    assert alter(stage, [("alice", 1)], []) == {"alice": 0}
    assert stage.broker.credentials.find(SHA_256, "alice") is None
    assert heard == [(SHA_256, "alice"), (SHA_256, "alice")]


def test_users_are_refused_one_by_one(stage: Any) -> None:
    good = salted("secret")
    salt = b"salt" * 4
    outcomes = alter(
        stage,
        [("gone", 1), ("twice", 1), ("mechanism", 3)],
        [
            ("twice", 2, 4096, salt, salted("x", SHA_512)),
            ("", 1, 4096, salt, good),
            ("few", 1, 4095, salt, good),
            ("many", 1, 16385, salt, good),
            ("salt", 1, 4096, b"", good),
            ("endless", 1, 4096, b"s" * 65, good),
            ("empty", 1, 4096, salt, b""),
            ("good", 1, 4096, salt, good),
            ("as Kafka", 2, 4096, b"short", b"of any length"),
        ],
    )
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert outcomes == {
        "gone": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "mechanism": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "": unacceptable,
        "few": unacceptable,
        "many": unacceptable,
        "salt": unacceptable,
        "endless": unacceptable,
        "empty": unacceptable,
        "good": 0,
        "as Kafka": 0,
    }
    assert {user for _, user in stage.broker.image.credentials} == {"good", "as Kafka"}


def test_of_a_user_that_is_named_twice_the_first_that_is_wrong_counts(stage: Any) -> None:
    """As in Kafka: what is invalid by itself is no duplicate, and nothing of that user is done."""
    good, salt = salted("secret"), b"salt" * 4
    valid = ("alice", 1, 4096, salt, good)
    assert alter(stage, [], [valid]) == {"alice": 0}
    outcomes = alter(
        stage,
        [("", 1), ("", 1), ("unknown", 0), ("unknown", 1), ("alice", 1), ("alice", 9)],
        [("", 1, 4096, salt, good), ("few", 1, 1, salt, good), ("few", 1, 4096, salt, good)],
    )
    assert outcomes == {
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "unknown": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    assert {user for _, user in stage.broker.image.credentials} == {"alice"}


def test_what_is_wrong_with_a_credential_is_said_in_kafkas_words(stage: Any) -> None:
    """Kafka's own tests of a cluster compare them."""
    upsertion = alter_user_scram_credentials.ScramCredentialUpsertion
    deletion = alter_user_scram_credentials.ScramCredentialDeletion
    given = [("", 1, 4096), ("few", 1, 4095), ("many", 1, 16385), ("none", 9, 4096)]
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        [deletion("gone", 1), *[deletion("twice", 1)] * 2],
        [upsertion(*each, b"salt" * 4, salted("x")) for each in given],
    )
    assert {each.user: each.error_message for each in stage.ask(request, 0).results} == {
        "gone": "Attempt to delete a user credential that does not exist",
        "twice": "A user credential cannot be altered twice in the same request",
        "": "Username must not be empty",
        "few": "Too few iterations",
        "many": "Too many iterations",
        "none": "Unknown SCRAM mechanism",
    }
    name = describe_user_scram_credentials.UserName
    asked = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        [name("x"), name("y"), name("y")]
    )
    assert [each.error_message for each in stage.ask(asked, 0).results] == [
        "Attempt to describe a user credential that does not exist: x",
        "Cannot describe SCRAM credentials for the same user twice in a single request: y",
    ]


def test_users_are_described_without_what_verifies_them(stage: Any) -> None:
    salt = b"salt" * 4
    alter(stage, [], [("bob", 1, 8192, salt, salted("b"))])
    alter(stage, [], [("alice", 2, 4096, salt, salted("a", SHA_512))])
    alter(stage, [], [("alice", 1, 4096, salt, salted("a"))])
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest
    name = describe_user_scram_credentials.UserName

    def told(users: list[Any] | None) -> list[Any]:
        return [
            (
                each.user,
                each.error_code,
                [(i.mechanism, i.iterations) for i in each.credential_infos],
            )
            for each in stage.ask(request(users), 0).results
        ]

    everybody = [("alice", 0, [(1, 4096), (2, 4096)]), ("bob", 0, [(1, 8192)])]
    assert told(None) == everybody
    assert told([]) == everybody
    assert told([name("bob"), name("x"), name("alice"), name("alice")]) == [
        everybody[1],
        ("x", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("alice", ErrorCode.DUPLICATE_RESOURCE, []),
    ]


def make_users(stage: Any, count: int) -> list[str]:
    names = [f"user-{number:03}" for number in random.Random(1).sample(range(1000), count)]
    credential = derive(SHA_256, "secret", 4096, b"salt" * 4)
    stage.publish(
        *(CredentialChanged(name, each, credential) for name in names for each in ScramMechanism)
    )
    return sorted(names)


def test_very_many_users_are_described_in_order_while_others_are_served(
    stage: Any, later_steps: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 took the loop a third of a second."""
    names = make_users(stage, 450)
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None)
    for most, turns in ((900, 0), (899, 8 + 5)):
        monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", most)
        reply = stage.ask(request, 0)
        told = [(each.user, len(each.credential_infos)) for each in reply.results]
        assert told == [(name, 2) for name in names]
        assert len(later_steps) == turns


@pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
def test_very_many_users_are_not_told_to_who_may_not_see_them_any_more(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I13."""
    revoke_meanwhile(stage, monkeypatch)
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", -1)
    request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None)
    assert stage.ask(request, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
