"""Where a job reaches its LogCluster, and as whom."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead_operator.stream_jobs.job_access import (
    JobAccess,
    elsewhere,
    find_open_access,
    find_secret_access,
    find_user_access,
)

OPEN = {"name": "plain", "type": "Internal", "port": 9092}
TLS = {
    "name": "tls",
    "type": "Internal",
    "port": 9093,
    "tls": {},
    "authentication": {"type": "tls"},
}
SCRAM = {"name": "scram", "type": "Internal", "port": 9094, "authentication": {"type": "x"}}
PASSWORD = {**SCRAM, "authentication": {"type": "scram-sha-512"}}


def cluster(*listeners: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "demo", "namespace": "shop"}, "spec": {"listeners": listeners}}


def user(login: str = "tls", cluster: str | None = "demo", **status: Any) -> dict[str, Any]:
    spec = {"clusterName": cluster, "authentication": {"type": login}}
    return {"metadata": {"name": "app"}, "spec": spec, "status": {"secret": "app", **status}}


@pytest.mark.parametrize(
    ("listeners", "port"),
    [((), 9092), ((TLS, OPEN), 9092), (({**TLS, "tls": {"enabled": False}}, OPEN), 9092)],
)
def test_a_job_without_a_user_goes_where_everybody_may(
    listeners: tuple[dict[str, Any], ...], port: int
) -> None:
    found = find_open_access("demo", "shop", cluster(*listeners))
    assert found == JobAccess(f"demo-bootstrap.shop.svc:{port}")


def test_where_nobody_may_it_is_told_to_name_a_user() -> None:
    found = find_open_access("demo", "shop", cluster(TLS, SCRAM))
    assert found.obstacle is not None
    assert found.obstacle[0] == "ClusterSecured"
    assert "name a User by spec.user" in found.obstacle[1]
    found = find_open_access("demo", "shop", cluster(TLS, SCRAM), is_elsewhere=True)
    assert found.obstacle is not None
    assert "Secret of the job's namespace by spec.authentication" in found.obstacle[1]


def test_a_user_comes_in_by_the_listener_that_takes_his_login() -> None:
    both = cluster(OPEN, TLS, PASSWORD)
    assert find_user_access("demo", both, "app", user()).bootstrap.endswith(":9093")
    found = find_user_access("demo", both, "app", user("scram-sha-512"))
    assert found == JobAccess("demo-bootstrap.shop.svc:9094")


@pytest.mark.parametrize(
    ("found", "reason", "said"),
    [
        (None, "UserNotFound", "there is no User app"),
        (user(cluster="other"), "UserNotFound", "belongs to other, not to LogCluster demo"),
        (user(cluster=None), "UserNotFound", "belongs to no LogCluster yet"),
        (user("oauth"), "UserNotUsable", "jobs can use scram-sha-512 or tls"),
        (user("scram-sha-512"), "UserNotReady", "no listener of LogCluster demo"),
    ],
)
def test_a_user_who_cannot_come_in_is_named_with_the_reason(
    found: dict[str, Any] | None, reason: str, said: str
) -> None:
    access = find_user_access("demo", cluster(TLS), "app", found)
    assert access.obstacle is not None
    assert access.obstacle[0] == reason
    assert said in access.obstacle[1]


def test_no_secret_is_mounted_but_one_that_the_operator_says_is_the_users() -> None:
    """A User named as a Secret of somebody else has none: its status says so."""
    going = user()
    going["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"
    for found in (user(secret=None), user(secret="other"), going):
        access = find_user_access("demo", cluster(TLS), "app", found)
        assert access.obstacle is not None
        assert access.obstacle[0] == "UserNotReady"
        # So a driver that runs is made of the same, and left alone.
        assert access.bootstrap == "demo-bootstrap.shop.svc:9093"


def test_a_job_elsewhere_cannot_mount_the_secret_of_a_user_and_is_told_what_to_do() -> None:
    obstacle = elsewhere("jobs", "data", "app").obstacle
    assert obstacle is not None
    assert obstacle[0] == "UserNotFound"
    for said in (
        "spec.user: a User is in the namespace of its LogCluster, data",
        "Have the Secret app copied from data to jobs",
        "spec.authentication.secretName",
        "or make the job in data",
    ):
        assert said in obstacle[1]


def test_the_login_of_a_secret_leads_to_the_listener_that_takes_it() -> None:
    both = cluster(OPEN, TLS, PASSWORD)
    assert find_secret_access("demo", both, "tls") == JobAccess("demo-bootstrap.shop.svc:9093")
    found = find_secret_access("demo", both, "scram-sha-512")
    assert found == JobAccess("demo-bootstrap.shop.svc:9094")
    obstacle = find_secret_access("demo", cluster(TLS), "scram-sha-512").obstacle
    assert obstacle is not None
    assert obstacle[0] == "NoListener"
    assert obstacle[1].startswith("spec.authentication.type: ")
