"""Which of several Topic resources speaks for a topic."""

from typing import Any

from fairlead_controller.kubernetes.topic_resource_calls import read_topic_request
from fairlead_model.resources.topic_claims import (
    Claimant,
    oldest,
    read_claimant,
    read_reference,
    topic_reference,
)
from fairlead_model.resources.topic_manifest import API_VERSION
from fairlead_operator.topics.claims import Claims
from fairlead_operator.topics.topic_resource import read_topic_resource

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def manifest(name: str, created: str | None) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Topic",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": created},
        "spec": {"clusterName": "demo", "topicName": "t"},
    }


def test_the_oldest_speaks_then_the_first_by_name() -> None:
    late, early, twin = Claimant(NEW, "a"), Claimant(OLD, "c"), Claimant(OLD, "b")
    assert oldest([late]) == late
    assert oldest([late, early]) == early
    assert oldest([late, early, twin]) == twin


def test_one_without_a_time_is_the_oldest() -> None:
    """A manifest of a file is in no cluster; null stands for the same as a field that is absent."""
    assert read_claimant({}, "a") == read_claimant({"creationTimestamp": None}, "a")
    assert oldest([Claimant(OLD, "a"), read_claimant({}, "b")]).reference == "b"


def test_a_cluster_knows_resources_of_other_namespaces_by_both_names() -> None:
    near = topic_reference("data", "orders", cluster_namespace="data")
    far = topic_reference("shop", "orders", cluster_namespace="data")
    assert (near, far) == ("orders", "shop/orders")
    assert read_reference(near, cluster_namespace="data") == ("data", "orders")
    assert read_reference(far, cluster_namespace="data") == ("shop", "orders")


def test_operator_and_controller_say_the_same() -> None:
    """A null time: to the operator it was the newest, to the controller the oldest."""
    manifests = [manifest("late", NEW), manifest("early", OLD), manifest("timeless", None)]
    claims: Claims[Any] = Claims(lambda _: True)
    for each in manifests:
        claims.update(None, read_topic_resource(each))
    wanted = read_topic_request({"apply": manifests})
    assert claims.owner(("ns", "demo", "t")) == ("ns", "timeless")
    assert [spec.resource for spec in wanted.apply] == ["timeless"]
    assert {name: each["reason"] for name, each in wanted.results.items()} == {
        "early": "Conflict",
        "late": "Conflict",
    }
