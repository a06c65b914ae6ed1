"""Topics of a namespace that may not be read stay declared: their resources may be there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from waiting import until

from fairlead_kube.object_changes import ObjectChange
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
    nothing: dict[str, Any] = dict.fromkeys(
        ("complete_request", "on_start", "on_change", "on_health")
    )
    view = ClusterTopics(CLUSTER, cast("Any", None), **nothing)
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


class Told:
    """Stands for the API server and for the writer of Events; remembers what they are given."""

    def __init__(self) -> None:
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.events: list[tuple[str, str, str]] = []

    async def patch(self, kind: Any, namespace: str, name: str, body: dict[str, Any]) -> None:
        self.patches.append((f"{name}/", body))

    async def write_status(
        self, kind: Any, namespace: str, name: str, status: dict[str, Any], *, uid: str
    ) -> None:
        self.patches.append((f"{name}/status", {"status": status}))

    async def emit(self, manifest: Any, reason: str, message: str, type: str) -> None:
        self.events.append((manifest["metadata"]["name"], reason, message))


def foreign(name: str, cluster_namespace: str, **spec: Any) -> dict[str, Any]:
    manifest = topic(name, clusterNamespace=cluster_namespace, reclaimPolicy="Delete", **spec)
    manifest["metadata"]["finalizers"] = [FINALIZER]
    manifest["metadata"]["resourceVersion"] = "7"
    return manifest


def test_a_cluster_of_a_namespace_that_is_not_served_for_now_is_not_gone() -> None:
    """Its Topics elsewhere keep their finalizers."""
    told: Any = Told()
    sync = TopicSync(told, told, told, namespaces=("shop", "web"), closed=("team",))
    writes = {"mine": False, "lost": True}
    for name, cluster_namespace in (("mine", "team"), ("lost", "nowhere")):
        sync.scope.take(("shop", name), foreign(name, cluster_namespace))
        resource = sync.scope.resources["shop", name]
        assert sync.scope.may_act(resource) is writes[name]


@pytest.mark.parametrize("is_deleting", [False, True])
def test_a_topic_says_that_its_cluster_may_not_be_seen(is_deleting: bool) -> None:
    """What it said last may be long untrue; and nothing is said twice. One that is to be deleted is
    held while it is protected."""
    told: Any = Told()
    sync = TopicSync(told, told, told, namespaces=("shop", "web"), closed=("team",))
    manifest = foreign("mine", "team", deletionProtection=is_deleting)
    if is_deleting:
        manifest["metadata"]["deletionTimestamp"] = "now"
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    ready |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    manifest["status"] = {"partitions": 3, "conditions": [ready]}
    sync.scope.take(("shop", "mine"), manifest)

    async def look_twice() -> None:
        for _ in range(2):
            await sync.statuses._consider(("shop", "mine"))

    asyncio.run(look_twice())
    ((place, body),) = told.patches
    assert place == "mine/status"
    (condition,) = body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("Unknown", "ClusterHidden")
    assert "LogClusters of namespace team" in condition["message"]
    assert body["status"]["partitions"] == 3, "they stay"
    assert [event[:2] for event in told.events] == [("mine", "ClusterHidden")]


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_topic_that_is_deleted_while_its_cluster_may_not_be_seen_says_what_stays(
    policy: str,
) -> None:
    """Nobody waits for that namespace; but whoever asked for Delete has to hear of it."""
    told: Any = Told()
    sync = TopicSync(told, told, told, namespaces=("shop", "web"), closed=("team",))
    manifest = foreign("mine", "team", topicName="shop.mine")
    manifest["spec"]["reclaimPolicy"] = policy
    manifest["metadata"]["deletionTimestamp"] = "now"
    sync.scope.take(("shop", "mine"), manifest)
    asyncio.run(sync._reconciler._reconcile(("team", "demo"), [("shop", "mine")]))
    assert [place for place, _ in told.patches] == ["mine/"], "the finalizer"
    if policy == "Retain":
        assert told.events == []
        return
    ((name, reason, message),) = told.events
    assert (name, reason) == ("mine", "TopicRetained")
    assert "topic 'shop.mine' stays if LogCluster team/demo is there" in message


@pytest.mark.parametrize("is_deleting", [False, True])
def test_a_topic_whose_namespace_is_taken_off_the_list_says_that_it_lets_go(
    is_deleting: bool,
) -> None:
    class Controller(Told):
        async def apply_topics(self, *_: Any) -> dict[str, Any]:
            return {"shop/mine": {"state": "ok", "reason": "Retained", "message": ""}}

    told: Any = Controller()
    sync = TopicSync(told, told, told)
    cluster = ("data", "demo")
    sync.scope.set_cluster(cluster, {"metadata": {"name": "demo"}, "spec": {"topicNamespaces": []}})
    entries = {"mine": {"name": "mine", "resource": "shop/mine"}}
    view = SimpleNamespace(entries=entries, is_started=True)
    sync.scope.views[cluster] = view  # type: ignore[assignment]
    manifest = foreign("mine", "data")
    if is_deleting:
        manifest["metadata"]["deletionTimestamp"] = "now"
    sync.scope.take(("shop", "mine"), manifest)
    asyncio.run(sync._reconciler._reconcile(cluster, [("shop", "mine")]))
    assert [place for place, _ in told.patches] == ["mine/"], "the finalizer"
    ((name, reason, message),) = told.events
    assert (name, reason) == ("mine", "TopicRetained")
    assert "stays in LogCluster data/demo, declared by nobody" in message


def test_a_cluster_says_which_of_its_topic_namespaces_are_not_served() -> None:
    told: Any = Told()
    sync = TopicSync(told, told, told, namespaces=("shop", "web"), closed=("team",))
    names = ("web", "team", "other")
    cluster = {
        "metadata": {"name": "demo", "namespace": "shop"},
        "spec": {"topicNamespaces": [{"name": name} for name in names]},
    }

    async def story() -> None:
        working = asyncio.create_task(sync._unserved.run())
        for before in (None, cluster):  # What has not changed is not told again.
            sync._on_cluster(ObjectChange(CLUSTER, before, cluster))
        await until(lambda: len(told.events) == 2)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(story())
    assert {event[:2] for event in told.events} == {("demo", "NamespaceNotServed")}
    other, team = (message for *_, message in told.events)
    assert "namespace other: it is not among the namespaces" in other
    assert "namespace team: the operator may not read it" in team


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
