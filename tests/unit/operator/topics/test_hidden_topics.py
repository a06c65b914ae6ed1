"""Topics of a namespace that may not be read stay declared: their resources may be there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_operator.topics.cluster_topics import ClusterTopics
from fairlead_operator.topics.sync import TopicSync
from fairlead_operator.topics.topic_resource import FINALIZER
from fairlead_operator.topics.topic_scope import TopicScope
from fairlead_operator.topics.work_queue import WorkQueue

CLUSTER = ("shop", "demo")


def topic(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Topic",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"clusterName": "demo", "partitions": 1} | spec,
    }


def scope_where(hidden: set[str]) -> TopicScope:
    """The Topic that is known is `a`; the controller has topics of others, of two namespaces."""
    scope = TopicScope(None, WorkQueue(lambda: 0.0), is_hidden=hidden.__contains__)  # type: ignore[arg-type]
    scope.set_cluster(CLUSTER, {"metadata": {"name": "demo"}, "spec": {}})
    scope.take(("shop", "a"), topic("a"))
    view = ClusterTopics(
        CLUSTER, None, **dict.fromkeys(("complete_request", "on_start", "on_change", "on_health"))
    )  # type: ignore[arg-type]
    holders = {"a": "a", "b": "gone", "c": "team/c", "d": ""}
    view.entries = {name: {"name": name, "resource": who} for name, who in holders.items()}
    scope.views[CLUSTER] = view
    return scope


def orphans(scope: TopicScope, names: str = "abcd") -> list[str]:
    return [found for name in names if (found := scope.find_orphan(CLUSTER, name))]


def test_what_is_declared_from_a_namespace_that_may_not_be_read_stays_so() -> None:
    hidden = {"team"}
    scope = scope_where(hidden)
    assert scope.complete_request(CLUSTER)["keep"] == ["a", "team/c"]
    assert orphans(scope) == ["gone"]
    hidden.clear()
    assert scope.complete_request(CLUSTER)["keep"] == ["a"]
    assert orphans(scope) == ["gone", "team/c"]


def test_nobody_takes_over_a_topic_of_a_namespace_that_may_not_be_read() -> None:
    hidden = {"team"}
    scope = scope_where(hidden)
    scope.take(("shop", "mine"), topic("mine", topicName="c"))
    mine = scope.resources["shop", "mine"]
    assert scope.unentitled_holder(mine) == ""
    hidden.clear()
    assert scope.unentitled_holder(mine) == "team/c"


def test_a_topic_that_means_its_cluster_no_more_is_released_there() -> None:
    """Of two clusters of a namespace it means neither then, and is deleted, or names another."""
    scope = scope_where(set())
    nameless = topic("a")
    del nameless["spec"]["clusterName"]
    scope.take(("shop", "a"), nameless)
    assert scope.gone == {}, "the operator is about to write the only one into it"
    scope.take(("shop", "a"), topic("a"))
    scope.set_cluster(("shop", "other"), {"metadata": {"name": "other"}, "spec": {}})
    scope.take(("shop", "a"), nameless)
    assert scope.gone == {CLUSTER: {"a"}}
    scope.gone_told(CLUSTER, ["a"])
    scope.take(("shop", "a"), topic("a", clusterName="other"))
    assert scope.gone == {}


def test_what_is_declared_from_a_namespace_that_is_not_served_for_now_stays_so() -> None:
    """The operator is started anew without it. Whoever took its Topics for gone would let go of
    what the namespace could not take up again: the cluster is not its own."""
    nobody: Any = None
    sync = TopicSync(nobody, nobody, nobody, namespaces=("shop", "web"), closed=("team",))
    sync.scope.set_cluster(CLUSTER, {"metadata": {"name": "demo"}, "spec": {}})
    entries = {"b": {"name": "b", "resource": "gone"}, "c": {"name": "c", "resource": "team/c"}}
    sync.scope.views[CLUSTER] = SimpleNamespace(entries=entries)  # type: ignore[assignment]
    assert orphans(sync.scope, "bc") == ["gone"]
    assert sync.scope.complete_request(CLUSTER)["keep"] == ["team/c"]


def test_a_cluster_of_a_namespace_that_is_not_served_for_now_is_not_gone() -> None:
    """Its Topics elsewhere keep their finalizers, and their statuses."""
    nobody: Any = None
    sync = TopicSync(nobody, nobody, nobody, namespaces=("shop", "web"), closed=("team",))
    writes = {"mine": False, "lost": True}
    for name, cluster_namespace in (("mine", "team"), ("lost", "nowhere")):
        manifest = topic(name, clusterNamespace=cluster_namespace, reclaimPolicy="Delete")
        manifest["metadata"]["finalizers"] = [FINALIZER]
        sync.scope.take(("shop", name), manifest)
        resource = sync.scope.resources["shop", name]
        assert sync.scope.may_act(resource) is writes[name]
        assert sync.statuses._is_ours(resource) is writes[name]


@pytest.mark.parametrize("is_protected", [False, True])
def test_a_topic_of_such_a_cluster_can_be_deleted_unless_it_is_protected(
    is_protected: bool,
) -> None:
    nobody: Any = None
    sync = TopicSync(nobody, nobody, nobody, namespaces=("shop", "web"), closed=("team",))
    manifest = topic("mine", clusterNamespace="team", deletionProtection=is_protected)
    manifest["metadata"] |= {"finalizers": [FINALIZER], "deletionTimestamp": "now"}
    sync.scope.take(("shop", "mine"), manifest)
    assert sync.scope.may_act(sync.scope.resources["shop", "mine"]) is not is_protected
