from typing import Any

import pytest

from fairlead_model.resources.topic_manifest import (
    API_VERSION,
    ManifestError,
    TopicSpec,
    build_topic_manifest,
    is_topic_manifest,
    parse_topic_manifest,
    parse_topic_manifests,
)


def manifest(name: str = "orders", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_a_full_manifest() -> None:
    spec = parse_topic_manifest(
        manifest(
            topicName="shop.Orders",
            partitions=6,
            replicationFactor=1,
            config={"retention.ms": 3600000, "preallocate": True, "cleanup.policy": "delete"},
            reclaimPolicy="Delete",
            deletionProtection=True,
        )
    )
    assert spec == TopicSpec(
        "orders",
        "shop.Orders",
        6,
        1,
        {"retention.ms": "3600000", "preallocate": "true", "cleanup.policy": "delete"},
        "Delete",
        True,
    )
    assert parse_topic_manifest(build_topic_manifest(spec)) == spec


def test_defaults_are_left_to_the_cluster() -> None:
    bare = {"apiVersion": API_VERSION, "kind": "Topic", "metadata": {"name": "orders"}}
    assert parse_topic_manifest(bare) == TopicSpec("orders", "orders")
    assert parse_topic_manifest(build_topic_manifest(TopicSpec("a", "a"))) == TopicSpec("a", "a")


def test_a_cluster_may_be_named_and_null_configs_are_left_alone() -> None:
    given = manifest(clusterName="demo", config={"retention.ms": None, "preallocate": True})
    spec = parse_topic_manifest(given)
    assert spec.cluster_name == "demo"
    assert spec.configs == {"preallocate": "true"}
    assert spec.left_alone == {"retention.ms"}
    assert parse_topic_manifest(build_topic_manifest(spec)) == spec


def test_null_stands_for_a_field_that_is_left_out() -> None:
    absent: dict[str, Any] = dict.fromkeys(
        ("clusterName", "topicName", "partitions", "config", "reclaimPolicy")
    )
    assert parse_topic_manifest(manifest(**absent)) == TopicSpec("orders", "orders")


WRONG = [
    ("text", "a manifest is a mapping"),
    ({"kind": "Topic"}, "metadata.name: a name is needed"),
    (manifest() | {"apiVersion": "v1"}, "Topic orders: apiVersion: expected fairlead.io/v1alpha1"),
    (manifest() | {"kind": "Queue"}, "kind: expected Topic, got 'Queue'"),
    (manifest() | {"spec": []}, "spec: expected a mapping"),
    (manifest("Orders"), "metadata.name: 'Orders' is not a resource name"),
    (manifest(topicName="a b"), "spec.topicName: the topic name 'a b' may only hold"),
    (manifest(topicName=5), "spec.topicName: expected a text, got 5"),
    (manifest(topicName="__consumer_offsets"), "spec.topicName: '__consumer_offsets' belongs"),
    (manifest(partitions=0), "spec.partitions: expected a whole number of 1 to 10000, got 0"),
    (manifest(partitions="six"), "spec.partitions: expected"),
    (manifest(partitions=True), "spec.partitions: expected"),
    (manifest(replicationFactor=-1), "spec.replicationFactor: expected"),
    (manifest(config=[1]), "spec.config: expected a mapping"),
    (manifest(config={"retention.m": 1}), "spec.config[retention.m]: unknown topic config"),
    (manifest(config={"retention.ms": []}), "spec.config[retention.ms]: expected a text"),
    (manifest(config={"retention.m": None}), "spec.config[retention.m]: unknown topic config"),
    (manifest(clusterName="Demo"), "spec.clusterName: 'Demo' is not the name of a LogCluster"),
    (manifest(config={"cleanup.policy": "shred"}), "shred"),
    (manifest(reclaimPolicy="Keep"), "spec.reclaimPolicy: expected Retain or Delete, got 'Keep'"),
    (manifest(deletionProtection="no"), "spec.deletionProtection: expected true or false"),
    (manifest(paused=True), "spec.paused: only the operator on Kubernetes can wait"),
    (manifest(partition=3), "spec.partition: unknown field; did you mean partitions?"),
]


@pytest.mark.parametrize(("value", "message"), WRONG, ids=[message for _, message in WRONG])
def test_findings_name_the_field(value: Any, message: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse_topic_manifest(value)
    assert message in str(refused.value)


def test_all_findings_come_at_once() -> None:
    with pytest.raises(ManifestError) as refused:
        parse_topic_manifest(manifest(partitions=0, reclaimPolicy="x", extra=1))
    assert len(refused.value.problems) == 3


def test_two_manifests_of_one_topic_are_refused() -> None:
    with pytest.raises(ManifestError, match="declared twice"):
        parse_topic_manifests([manifest("a"), manifest("a")])
    with pytest.raises(ManifestError, match="also declared by Topic a"):
        parse_topic_manifests([manifest("a"), manifest("b", topicName="a")])
    assert len(parse_topic_manifests([manifest("a"), manifest("b")])) == 2


def test_other_kinds_are_told_apart() -> None:
    assert is_topic_manifest(manifest())
    assert not is_topic_manifest({"kind": "Topic", "apiVersion": "kafka.strimzi.io/v1"})
    assert not is_topic_manifest(None)
