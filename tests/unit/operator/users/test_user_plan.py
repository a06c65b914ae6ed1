"""What is done about a User, what it may give, and what its status says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead_model.security.acl import Operation, Permission
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_resource import FINALIZER
from fairlead_operator.users.plan import Plan, plan_user
from fairlead_operator.users.user_policy import (
    describe_left_out,
    is_own_secret,
    read_limits,
    refusal,
    split_rules,
)
from fairlead_operator.users.user_resource import UserResource, read_user_resource
from fairlead_operator.users.user_scope import UserScope
from fairlead_operator.users.user_status import UserSight, build_user_status, judge, turned_bad

PRESENT = ClusterPresence.PRESENT
OK = {"state": "ok", "reason": "Applied", "message": ""}


def manifest(name: str = "app", uid: str = "1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "User",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid,
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:00:0{uid}Z",
        },
        "spec": {"clusterName": "demo", "authentication": {"type": "scram-sha-512"}} | spec,
    }


def resource(name: str = "app", **spec: Any) -> UserResource:
    return read_user_resource(manifest(name, **spec))


def cluster_acl(*operations: str, **fields: Any) -> dict[str, Any]:
    return {"resource": {"type": "cluster"}, "operations": list(operations), **fields}


APP = resource()
HELD = replace(APP, has_finalizer=True)
GOING = replace(HELD, is_deleting=True)


@pytest.mark.parametrize(
    ("user", "facts", "expected"),
    [
        (APP, {}, Plan(is_applied=True, adds_finalizer=True)),
        (HELD, {}, Plan(is_applied=True)),
        (GOING, {}, Plan(is_forgotten=True, drops_finalizer=True)),
        (GOING, {"owner": "other"}, Plan(is_forgotten=True, drops_finalizer=True)),
        (GOING, {"cluster": ClusterPresence.ABSENT}, Plan(drops_finalizer=True)),
        (GOING, {"cluster": ClusterPresence.DELETING}, Plan(drops_finalizer=True)),
        (replace(GOING, has_finalizer=False), {}, Plan()),
        (replace(GOING, problem="x", user=""), {}, Plan(is_forgotten=True, drops_finalizer=True)),
        (HELD, {"owner": "other"}, Plan(is_forgotten=True, drops_finalizer=True)),
        (HELD, {"refusal": "no"}, Plan(is_forgotten=True, drops_finalizer=True)),
        (HELD, {"cluster": ClusterPresence.ABSENT}, Plan(drops_finalizer=True)),
        (replace(HELD, problem="x"), {}, Plan()),
        (replace(APP, cluster=""), {"only_cluster": "demo"}, Plan(names_cluster=True)),
        (replace(APP, is_managed=False), {}, Plan()),
        (replace(GOING, is_managed=False), {}, Plan(drops_finalizer=True)),
    ],
)
def test_plans(user: UserResource, facts: dict[str, Any], expected: Plan) -> None:
    given: dict[str, Any] = {"cluster": PRESENT, "owner": "app"} | facts
    assert plan_user(user, **given) == expected


def test_rules_are_one_for_each_operation() -> None:
    acls = [
        {
            "resource": {"type": "group", "name": "app-", "patternType": "prefixed"},
            "operations": ["Read", "Delete"],
            "host": "10.0.0.1",
            "type": "deny",
        },
        {"resource": {"type": "transactionalId", "name": "*"}, "operations": ["All"]},
        cluster_acl("Describe"),
    ]
    assert sorted(map(str, resource(acls=acls).rules)) == [
        "ALLOW User:app ALL TRANSACTIONAL_ID *",
        "ALLOW User:app DESCRIBE CLUSTER kafka-cluster",
        "DENY User:app from 10.0.0.1 DELETE GROUP prefix app-",
        "DENY User:app from 10.0.0.1 READ GROUP prefix app-",
    ]


@pytest.mark.parametrize("host", ["10.0.0.0/8", "app.example.com", "10.0.0", "[::1]"])
def test_a_rule_for_a_host_that_no_client_has_is_refused(host: str) -> None:
    """It would match nobody: who is to be denied would not be."""
    refused = resource(acls=[cluster_acl("Describe"), cluster_acl("Create", host=host)])
    assert refused.problem.startswith(f"spec.acls[1].host: {host!r} is no address: ")
    assert resource(acls=[cluster_acl("Create", host="2001:db8::1")]).problem == ""


def test_a_spec_that_cannot_be_read_claims_nobody() -> None:
    broken = resource(authentication={"type": "oauth"})
    assert "oauth needs it" in broken.problem
    assert not broken.is_claiming
    verdict = judge(broken, UserSight(cluster=PRESENT, owner=None))
    assert verdict is not None
    assert verdict[1] == "InvalidSpec"


def test_users_are_called_by_their_names_or_subjects() -> None:
    assert resource(authentication={"type": "tls"}).principal == "User:app"
    oauth = resource(authentication={"type": "oauth", "subject": "a b"})
    assert oauth.principal == "User:a b"


def test_what_administers_the_cluster_is_left_out_unless_the_cluster_allows_it() -> None:
    user = resource(
        acls=[
            cluster_acl("Alter", "ClusterAction", "All", "Create"),
            cluster_acl("Alter", type="deny"),
        ]
    )
    given, left_out = split_rules(user, read_limits({"spec": {}}))
    assert {(rule.operation, rule.permission) for rule in given} == {
        (Operation.CREATE, Permission.ALLOW),
        (Operation.ALTER, Permission.DENY),
    }
    assert "left out: All, Alter, ClusterAction on the cluster" in describe_left_out(left_out)
    policy = {"spec": {"userPolicy": {"clusterOperations": ["All", "Alter", "ClusterAction"]}}}
    assert {rule.operation for rule in split_rules(user, read_limits(policy))[1]} == {
        Operation.CREATE
    }
    nothing = read_limits({"spec": {"userPolicy": {"clusterOperations": []}}})
    assert len(split_rules(user, nothing)[1]) == 4


@pytest.mark.parametrize(
    "spec",
    [
        {"authorization": {"superUsers": ["root", "app"]}},
        {"config": {"super.users": "User:root; User:app"}},
    ],
)
def test_a_user_cannot_become_a_super_user(spec: dict[str, Any]) -> None:
    limits = read_limits({"spec": spec})
    assert "super user" in refusal(APP, limits)
    subject = resource("x", authentication={"type": "oauth", "subject": "app"})
    assert "super user" in refusal(subject, limits)
    assert refusal(resource("other"), limits) == ""


def test_a_user_cannot_become_the_operator_and_slow_it_down_by_a_quota() -> None:
    limits = read_limits({"metadata": {"uid": "1-2"}, "spec": {}})
    login = {"type": "oauth", "subject": "fairlead-operator:1-2"}
    operator = resource("x", authentication=login, quotas={"requestPercentage": 1})
    assert "super user" in refusal(operator, limits)
    another = resource("x", authentication=login | {"subject": "fairlead-operator:3-4"})
    assert refusal(another, limits) == ""


def test_a_user_cannot_take_the_place_of_a_secret_of_the_cluster() -> None:
    own = ("session", "ca", "ca-key", "security-00012", "brokers-tls", "brokers-scram-issued")
    assert all(is_own_secret("demo", f"demo-{each}") for each in own)
    assert not any(is_own_secret("demo", each) for each in ("demo-app", "other-ca", "demo-car"))
    assert "other name" in refusal(resource("demo-ca-key"), read_limits({}))


@pytest.mark.parametrize(
    ("sight", "reason"),
    [
        ({"cluster": ClusterPresence.ABSENT}, "ClusterNotFound"),
        ({"refusal": "x"}, "NotAllowed"),
        ({"owner": "older"}, "Conflict"),
        ({"result": {"state": "refused", "reason": "NoRoom", "message": "x"}}, "NoRoom"),
        ({"secret_problem": ("SecretConflict", "x")}, "SecretConflict"),
        ({"result": None}, None),
        ({"has_listener": False}, "NoListener"),
        ({"left_out": resource(acls=[cluster_acl("Alter")]).rules}, "NotAllowed"),
        ({}, "Ready"),
    ],
)
def test_ready_says_the_first_thing_that_is_wrong(sight: dict[str, Any], reason: str) -> None:
    known: dict[str, Any] = {"cluster": PRESENT, "owner": "app", "result": OK} | sight
    verdict = judge(APP, UserSight(**known))
    assert (None if verdict is None else verdict[1]) == reason


def test_a_status_changes_only_when_something_has_and_bad_news_are_told_once() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    verdict = (False, "Conflict", "x")
    status = build_user_status(APP, {}, verdict, rules=None, has_secret=False, now=now)
    assert turned_bad({}, verdict)
    assert not turned_bad(status, verdict)
    assert not turned_bad({}, (False, "BrokersBehind", "x"))
    long = (False, "NotAllowed", "x" * 2000)
    after = build_user_status(APP, {}, long, rules=None, has_secret=False, now=now)
    assert not turned_bad(after, long)
    later = datetime(2026, 1, 2, tzinfo=UTC)
    assert (
        build_user_status(APP, status, verdict, rules=None, has_secret=False, now=later) == status
    )
    assert build_user_status(APP, {}, verdict, rules=3, has_secret=True, now=now)["rules"] == 3


def test_what_leaves_a_cluster_is_gone_there() -> None:
    scope = UserScope()
    for name in ("demo", "other"):
        scope.clusters["shop", name] = {"metadata": {"name": name}}
    scope.take(("shop", "app"), manifest())
    assert scope.names_to_keep(("shop", "demo")) == ["app"]
    scope.take(("shop", "app"), manifest(clusterName="other"))
    assert scope.gone == {("shop", "demo"): {"app"}}
    scope.gone_told(("shop", "demo"), ["app"])
    scope.take(("shop", "app"), None)
    assert scope.gone == {("shop", "other"): {"app"}}


def test_of_two_resources_for_one_principal_the_older_speaks() -> None:
    scope = UserScope()
    younger = manifest("b", "2", authentication={"type": "oauth", "subject": "app"})
    scope.take(("shop", "b"), younger)
    assert scope.take(("shop", "app"), manifest()) == {("shop", "b")}
    assert scope.owner(scope.resources["shop", "b"]) == "app"
    held = manifest()
    held["metadata"]["finalizers"] = [FINALIZER]
    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:09Z"
    scope.take(("shop", "app"), held)
    assert scope.owner(scope.resources["shop", "b"]) == "app", "until its rights are revoked"


@pytest.mark.parametrize(
    ("spec", "presence"),
    [
        ({}, ClusterPresence.DELETING),
        ({"deletionProtection": True}, ClusterPresence.PRESENT),
    ],
)
def test_a_protected_cluster_that_somebody_deletes_keeps_its_users(
    spec: dict[str, Any], presence: ClusterPresence
) -> None:
    scope = UserScope()
    going = {"metadata": {"name": "demo", "deletionTimestamp": "now"}, "spec": spec}
    scope.clusters["shop", "demo"] = going
    assert scope.presence(("shop", "demo")) is presence
