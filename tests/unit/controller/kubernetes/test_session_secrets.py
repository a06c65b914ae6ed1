"""Which Secret counts as the session secret of a LogCluster."""

import base64
from typing import Any

import pytest

from fairlead_controller.kubernetes.watches import Watches

KEY = ("shop", "demo")
SECRET = base64.b64encode(b"s" * 32)


def secret(*owners: tuple[str, str]) -> dict[str, Any]:
    references = [{"kind": kind, "name": "demo", "uid": uid} for kind, uid in owners]
    return {
        "metadata": {"name": "demo-session", "ownerReferences": references},
        "data": {"secret": base64.b64encode(SECRET).decode()},
    }


@pytest.mark.parametrize(
    ("owners", "is_found"),
    [
        ([("LogCluster", "now")], True),
        ([("LogCluster", "before")], False),
        ([], True),
        ([("ExternalSecret", "other")], True),
    ],
    ids=["its own", "that of an earlier cluster of the name", "one that people made", "a tool's"],
)
def test_a_secret_that_is_about_to_go_is_not_taken_up(
    owners: list[tuple[str, str]], is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = None  # nothing is asked
    watches = Watches(client, (), on_clusters=lambda: None, on_machines=lambda: None)
    cluster = {"metadata": {"name": "demo", "uid": "now"}}
    monkeypatch.setattr(watches.clusters, "objects", {KEY: cluster})
    monkeypatch.setattr(watches.secrets, "objects", {("shop", "demo-session"): secret(*owners)})
    assert (watches.find_secret(KEY) is not None) is is_found


def test_a_cluster_says_whether_its_brokers_come_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = None
    watches = Watches(client, (), on_clusters=lambda: None, on_machines=lambda: None)
    specs: list[Any] = [None, {}, {"interBroker": {}}, {"interBroker": {"tls": False}}]
    for spec in specs:
        monkeypatch.setattr(watches.clusters, "objects", {KEY: {"spec": spec}})
        assert not watches.wants_tls(KEY)
    monkeypatch.setattr(
        watches.clusters, "objects", {KEY: {"spec": {"interBroker": {"tls": True}}}}
    )
    assert watches.wants_tls(KEY)
    monkeypatch.setattr(watches.clusters, "objects", {})
    assert not watches.wants_tls(KEY)
