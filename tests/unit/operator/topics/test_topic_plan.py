"""What follows for one Topic from all that is known."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead_operator.resources.crd import build_crd
from fairlead_operator.resources.topic import TOPIC
from fairlead_operator.topics.claims import Claims
from fairlead_operator.topics.kafka_origin import build_mirror, build_mirror_patch, is_shown
from fairlead_operator.topics.plan import ClusterPresence, Plan, plan_topic
from fairlead_operator.topics.topic_resource import (
    FINALIZER,
    TopicResource,
    differs_for_us,
    mirror_name,
    read_topic_resource,
)
from fairlead_operator.topics.topic_status import judge

PRESENT, ABSENT = ClusterPresence.PRESENT, ClusterPresence.ABSENT
DELETING = ClusterPresence.DELETING
ENTRY: dict[str, Any] = {
    "name": "My_Topic",
    "partitions": 3,
    "replicationFactor": 3,
    "configs": {"retention.ms": "7"},
    "origin": "kafka",
    "resource": None,
    "isInternal": False,
}


def manifest(name: str = "orders", **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": name, "uid": name, "generation": 1}
    metadata |= {"creationTimestamp": "2026-01-01T00:00:00Z", **fields.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"clusterName": "demo", **fields}}


def resource(name: str = "orders", **fields: Any) -> TopicResource:
    return read_topic_resource(manifest(name, **fields))


def plan(item: TopicResource, **fields: Any) -> Plan:
    return plan_topic(item, **{"cluster": PRESENT, "owner": item.name, **fields})


def test_a_plain_resource_is_applied_without_a_write() -> None:
    assert plan(resource()) == Plan(is_applied=True)


@pytest.mark.parametrize("fields", [{"reclaimPolicy": "Delete"}, {"deletionProtection": True}])
def test_a_finalizer_only_where_a_deletion_has_to_be_held_up(
    fields: dict[str, Any],
) -> None:
    item = resource(**fields)
    assert plan(item) == Plan(is_applied=True, adds_finalizer=True)
    held = replace(item, has_finalizer=True)
    assert plan(held) == Plan(is_applied=True)
    let_go = replace(resource(), has_finalizer=True)
    assert plan(let_go) == Plan(is_applied=True, drops_finalizer=True)


def test_a_resource_without_the_claim_is_only_told_why() -> None:
    item = resource(reclaimPolicy="Delete")
    assert plan(item, owner="older") == Plan()
    assert plan(replace(item, has_finalizer=True), owner="older") == Plan(drops_finalizer=True)


def test_the_holder_of_before_lets_go_in_the_same_call() -> None:
    assert plan(resource(), holder="gone") == Plan(is_applied=True, forget_holder="gone")
    assert plan(resource(), owner="older", holder="x") == Plan()


def test_unmanaged_is_left_alone() -> None:
    item = resource(metadata={"annotations": {"fairlead.io/managed": "false"}})
    assert plan(item) == Plan(has_status=False)


@pytest.mark.parametrize("cluster", [ABSENT, DELETING])
def test_without_a_cluster_nothing_holds_a_resource(cluster: ClusterPresence) -> None:
    item = replace(resource(reclaimPolicy="Delete"), has_finalizer=True)
    assert plan(item, cluster=cluster) == Plan(drops_finalizer=True)
    going = replace(item, is_deleting=True, is_protected=True)
    assert plan(going, cluster=cluster) == Plan(drops_finalizer=True, has_status=False)


def test_a_deletion_is_carried_out_before_the_finalizer_falls() -> None:
    item = replace(resource(reclaimPolicy="Delete"), has_finalizer=True, is_deleting=True)
    forget = {"resource": "orders", "deleteTopic": True}
    assert plan(item) == Plan(forget=forget, drops_finalizer=True, has_status=False)
    retained = replace(item, reclaim_policy="Retain")
    assert plan(retained).forget == {"resource": "orders", "deleteTopic": False}
    assert plan(item, owner="older") == Plan(drops_finalizer=True, has_status=False)
    assert plan(replace(item, is_managed=False)).forget is None


def test_a_protected_resource_stays() -> None:
    item = resource(reclaimPolicy="Delete", deletionProtection=True)
    going = replace(item, has_finalizer=True, is_deleting=True)
    assert plan(going) == Plan(is_applied=True)


def test_of_a_paused_resource_the_controller_hears_nothing_but_its_end() -> None:
    item = resource(paused=True, reclaimPolicy="Delete", deletionProtection=True)
    assert item.is_paused
    assert plan(item, is_paused=True, holder="gone") == Plan(adds_finalizer=True)
    going = replace(item, has_finalizer=True, is_deleting=True)
    assert plan(going, is_paused=True) == Plan(), "it is protected all the same"
    let_go = replace(going, is_protected=False)
    forget = {"resource": "orders", "deleteTopic": True}
    expected = Plan(forget=forget, drops_finalizer=True, has_status=False)
    assert plan(let_go, is_paused=True) == expected


def test_a_mirror_declares_nothing_and_deletes_by_the_name_of_its_topic() -> None:
    item = read_topic_resource(build_mirror(("ns", "demo"), ENTRY))
    assert item.is_mirror
    assert plan(item, owner=None) == Plan()
    going = replace(item, reclaim_policy="Delete", has_finalizer=True, is_deleting=True)
    forget = plan(going, owner=None).forget
    assert forget == {"resource": item.name, "deleteTopic": True, "topicName": "My_Topic"}


def test_a_label_alone_makes_no_mirror() -> None:
    labels = {"fairlead.io/origin": "kafka"}
    assert not resource("mine", metadata={"labels": labels}).is_mirror


def test_names_of_mirrors_are_legal_and_kept_apart() -> None:
    names = {mirror_name("demo", topic) for topic in ("Orders", "orders", "a.b", "a_b", "_", "..x")}
    names.add(mirror_name("other", "orders"))
    names.add(mirror_name("demo", "x" * 249))
    assert len(names) == 8
    for name in names:
        assert len(name) <= 80
        assert name.replace("-", "").isalnum()
        assert name == name.lower()


def test_only_topics_of_kafka_that_nobody_declares_are_shown() -> None:
    assert is_shown(ENTRY, is_claimed=False)
    assert not is_shown(ENTRY, is_claimed=True)
    assert not is_shown(ENTRY | {"name": "fairlead-drill-12ab"}, is_claimed=False)
    assert not is_shown(None, is_claimed=False)
    for fields in ({"origin": "resource"}, {"resource": "x"}, {"isInternal": True}):
        assert not is_shown({**ENTRY, **fields}, is_claimed=False)


def test_a_mirror_leaves_out_a_setting_that_is_too_long_for_the_definition() -> None:
    """`kafka-reassign-partitions --throttle` names every replica of a topic in one."""
    root = build_crd(TOPIC)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    longest = root["properties"]["spec"]["properties"]["config"]["additionalProperties"]
    fits, throttle = "x" * longest["maxLength"], "leader.replication.throttled.replicas"
    entry = ENTRY | {"configs": {throttle: fits}}
    assert build_mirror(("ns", "demo"), entry)["spec"]["config"] == {throttle: fits}
    entry = ENTRY | {"configs": ENTRY["configs"] | {throttle: f"{fits}x"}}
    shown = build_mirror(("ns", "demo"), entry)
    assert shown["spec"]["config"] == ENTRY["configs"]
    assert build_mirror_patch(shown, entry) == {}


def test_a_mirror_follows_its_topic_and_keeps_what_is_the_users() -> None:
    shown = build_mirror(("ns", "demo"), ENTRY)
    assert build_mirror_patch(shown, ENTRY) == {}
    shown["spec"]["reclaimPolicy"] = "Delete"
    grown = {**ENTRY, "partitions": 5, "configs": {"segment.bytes": "9"}}
    config = {"segment.bytes": "9", "retention.ms": None}
    assert build_mirror_patch(shown, grown) == {"spec": {"partitions": 5, "config": config}}


def test_the_oldest_claim_wins_then_the_name() -> None:
    claims: Claims[Any] = Claims(lambda _: True)
    late = resource("a", topicName="t", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"})
    early, twin = resource("c", topicName="t"), resource("b", topicName="t")
    assert claims.update(None, late) == frozenset()
    assert claims.owner(late.claim) == ("ns", "a")
    assert claims.update(None, early) == {("ns", "a")}
    assert claims.owner(late.claim) == ("ns", "c")
    claims.update(None, twin)
    assert claims.owner(late.claim) == ("ns", "b")
    assert claims.update(twin, None) == {("ns", "a"), ("ns", "c")}
    claims.update(early, None)
    claims.update(late, None)
    assert claims.owner(late.claim) is None
    assert claims.of_cluster(("ns", "demo")) == []


def test_claims_of_namespaces_and_clusters_are_apart() -> None:
    claims: Claims[Any] = Claims(lambda _: True)
    one, other = resource("a", topicName="t"), resource("b", topicName="t", clusterName="other")
    claims.update(None, one)
    assert claims.update(None, other) == frozenset()
    assert claims.owner(other.claim) == ("ns", "b")


def test_a_status_that_was_written_is_no_news() -> None:
    old = manifest()
    new = {**manifest(metadata={"resourceVersion": "2"}), "status": {"partitions": 3}}
    assert not differs_for_us(old, new)
    assert differs_for_us(old, manifest(metadata={"generation": 2}))
    assert differs_for_us(old, manifest(metadata={"finalizers": [FINALIZER]}))


def test_a_resource_that_names_no_cluster_means_the_only_one() -> None:
    nameless = resource(clusterName=None)
    assert nameless.cluster == ""
    named = plan(nameless, cluster=ClusterPresence.ABSENT, only_cluster="demo")
    assert named == Plan(names_cluster=True, has_status=False)
    assert not plan(nameless, cluster=ClusterPresence.ABSENT).names_cluster
    verdict = judge(nameless, cluster=ClusterPresence.ABSENT, owner=None, result=None, entry=None)
    assert verdict is not None
    assert "name one of the LogClusters" in verdict[2]
