"""Topic resources that come, change and go, some at a time."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from decision_world import World

from fairlead_controller.decisions.events import ApplyTopicResources, ForgetTopic
from fairlead_controller.kubernetes.topic_resource_calls import (
    TopicDefaults,
    TopicRequestError,
    _slices,
    read_topic_request,
)
from fairlead_model.resources.topic_manifest import API_VERSION, TopicSpec
from fairlead_model.topic import TopicOrigin

ORDERS = TopicSpec("orders", "orders", 3, 3, configs={"retention.ms": "5"})


def apply(world: World, *specs: TopicSpec, **fields: Any) -> Any:
    return world.do(ApplyTopicResources(apply=specs, **fields))["results"]


def forget(world: World, *forgotten: ForgetTopic) -> Any:
    return world.do(ApplyTopicResources(forget=forgotten))["results"]


def manifest(name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Topic",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"clusterName": "demo", **spec},
    }


def request(world: World, **fields: Any) -> Any:
    """A request as `apply_topics` carries it out, without its loop."""
    wanted = read_topic_request(fields)
    results = dict(wanted.results)
    for event in _slices(wanted, TopicDefaults(2, 3)):
        results.update(world.do(event)["results"])
    return results


def test_a_resource_makes_its_topic_once(world: World) -> None:
    first = apply(world, ORDERS)["orders"]
    assert (first["state"], first["reason"]) == ("ok", "Applied")
    topic = world.topic("orders")
    assert len(topic.partitions) == 3
    assert topic.header.resource == "orders"
    assert topic.header.origin is TopicOrigin.RESOURCE
    assert world.decide(ApplyTopicResources(apply=(ORDERS,))).changes == ()
    assert apply(world, ORDERS)["orders"] == first


def test_some_resources_leave_the_others_alone(world: World) -> None:
    apply(world, ORDERS)
    apply(world, TopicSpec("other", "other", 1))
    assert world.topic("orders").header.resource == "orders"


def test_few_brokers_let_a_resource_wait(make_world: Callable[..., World]) -> None:
    world = make_world(2)
    result = apply(world, ORDERS)["orders"]
    assert (result["state"], result["reason"]) == ("waiting", "TooFewBrokers")
    assert "spec.replicationFactor" in result["message"]
    assert world.state.image.topic("orders") is None
    world.start_broker(2)
    assert apply(world, ORDERS)["orders"]["state"] == "ok"


def test_partitions_wait_for_brokers_that_are_still_to_come(world: World) -> None:
    result = apply(world, ORDERS, waits_for="2 of 3")["orders"]
    assert (result["state"], result["reason"]) == ("waiting", "WaitingForBrokers")
    assert (result["message"], world.state.image.topic("orders")) == ("2 of 3", None)
    apply(world, ORDERS)
    assert apply(world, ORDERS, waits_for="2 of 3")["orders"]["state"] == "ok"
    grown = TopicSpec("orders", "orders", 5, 3)
    assert apply(world, grown, waits_for="2 of 3")["orders"]["state"] == "waiting"
    assert len(world.partitions("orders")) == 3
    wrong = apply(world, TopicSpec("x", "a b", 1, 1), waits_for="2 of 3")["x"]
    assert (wrong["state"], wrong["reason"]) == ("refused", "InvalidSpec")


def test_growth_that_waits_keeps_the_rest_of_the_spec(world: World) -> None:
    apply(world, ORDERS)
    world.fence(0, 1, 2)
    grown = TopicSpec("orders", "orders", 5, 3, configs={"retention.ms": "6"})
    assert apply(world, grown)["orders"]["state"] == "waiting"
    assert world.topic("orders").configs == {"retention.ms": "6"}
    world.restart(2, "again")
    assert apply(world, grown)["orders"]["state"] == "ok"
    assert len(world.partitions("orders")) == 5


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (TopicSpec("orders", "orders", 2, 3), "spec.partitions: 2 is less than the 3"),
        (TopicSpec("orders", "renamed", 3, 3), "spec.topicName: the resource declares"),
        (TopicSpec("x", "__consumer_offsets", 3, 3), "spec.topicName: '__consumer_offsets'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    world: World, spec: TopicSpec, field: str
) -> None:
    apply(world, ORDERS)
    result = apply(world, spec)[spec.resource]
    assert (result["state"], result["reason"]) == ("refused", "InvalidSpec")
    assert result["message"].startswith(field)
    assert len(world.partitions("orders")) == 3


def test_more_replicas_than_brokers_wait_for_brokers(world: World) -> None:
    apply(world, ORDERS)
    wanted = TopicSpec("orders", "orders", 3, 4, configs={"retention.ms": "6"})
    result = apply(world, wanted)["orders"]
    assert (result["state"], result["reason"]) == ("waiting", "TooFewBrokers")
    assert result["message"].startswith("spec.replicationFactor: 4 replicas need as many brokers")
    assert "3 of 3 partitions" in result["message"]
    assert not world.state.moves
    assert world.topic("orders").configs == {"retention.ms": "6"}, "the rest holds"
    world.start_broker(3)
    assert apply(world, wanted)["orders"]["state"] == "ok"
    assert all(part.adding_replicas == (3,) for part in world.partitions("orders"))


def test_other_replicas_wait_while_a_cluster_starts(world: World) -> None:
    apply(world, ORDERS)
    result = apply(world, TopicSpec("orders", "orders", 3, 2), waits_for="brokers come")["orders"]
    assert (result["state"], result["reason"]) == ("waiting", "WaitingForBrokers")
    assert not world.state.moves


def test_new_partitions_get_as_many_replicas_as_the_resource_says(world: World) -> None:
    apply(world, TopicSpec("t", "t", 2, 1))
    apply(world, TopicSpec("t", "t", 4, 3))
    assert [len(part.replicas) for part in world.partitions("t")] == [3] * 4
    assert [len(part.adding_replicas) for part in world.partitions("t")] == [2, 2, 0, 0]


def test_null_configs_stay_as_they_are(world: World) -> None:
    apply(world, TopicSpec("t", "t", 1, 1, configs={"retention.ms": "5", "segment.bytes": "2048"}))
    kept = TopicSpec("t", "t", 1, 1, left_alone=frozenset({"retention.ms", "max.message.bytes"}))
    apply(world, kept)
    assert world.topic("t").configs == {"retention.ms": "5"}


def test_another_minimum_of_replicas_reaches_the_partitions(world: World) -> None:
    apply(world, ORDERS)
    apply(world, TopicSpec("orders", "orders", 3, 3, configs={"min.insync.replicas": "2"}))
    assert {part.min_insync_replicas for part in world.partitions("orders")} == {2}


def test_forgetting_retains_the_topic_and_another_resource_adopts_its_id(world: World) -> None:
    topic_id = apply(world, ORDERS)["orders"]["topicId"]
    result = forget(world, ForgetTopic("orders"))["orders"]
    assert (result["reason"], result["topicId"]) == ("Retained", topic_id)
    assert world.topic("orders").header.resource == ""
    adopted = apply(world, TopicSpec("again", "orders", 3, 3))["again"]
    assert adopted["topicId"] == topic_id
    assert world.topic("orders").header.resource == "again"


def test_forgetting_may_delete_the_topic(world: World) -> None:
    apply(world, ORDERS)
    assert forget(world, ForgetTopic("orders", True))["orders"]["reason"] == "Deleted"
    assert world.state.image.topic("orders") is None
    assert "orders" not in world.state.declared
    assert forget(world, ForgetTopic("orders", True))["orders"]["reason"] == "Unknown"


def test_a_made_again_topic_has_another_id(world: World) -> None:
    first = apply(world, ORDERS)["orders"]["topicId"]
    forget(world, ForgetTopic("orders", True))
    assert apply(world, ORDERS)["orders"]["topicId"] != first


def test_a_topic_made_over_kafka_is_adopted_and_no_longer_counts_as_made_there(
    world: World,
) -> None:
    world.create("orders", partitions=1, replication_factor=3)
    assert apply(world, ORDERS)["orders"]["state"] == "ok"
    header = world.topic("orders").header
    assert (header.origin, header.partition_count) == (TopicOrigin.RESOURCE, 3)


def test_a_resource_that_only_shows_a_topic_of_kafka_may_delete_it_by_name(world: World) -> None:
    world.create("shown")
    apply(world, ORDERS)
    wrong = ForgetTopic("kafka-x", True, "orders")
    assert forget(world, wrong)["kafka-x"]["reason"] == "Unknown"
    right = ForgetTopic("kafka-y", True, "shown")
    assert forget(world, right)["kafka-y"]["reason"] == "Deleted"
    assert world.state.image.topic("orders") is not None


def test_a_declared_topic_is_not_taken_over(world: World) -> None:
    apply(world, ORDERS)
    result = apply(world, TopicSpec("thief", "orders"))["thief"]
    assert (result["state"], result["reason"]) == ("refused", "Conflict")
    assert "Topic orders" in result["message"]


def test_the_loser_takes_over_in_the_call_that_forgets_the_winner(world: World) -> None:
    topic_id = apply(world, ORDERS)["orders"]["topicId"]
    results = apply(world, TopicSpec("next", "orders", 3, 3), forget=(ForgetTopic("orders"),))
    assert results["next"]["topicId"] == topic_id
    assert world.state.declared.get("next") is not None


def test_a_complete_set_releases_what_has_vanished(world: World) -> None:
    apply(world, ORDERS, TopicSpec("other", "other", 1))
    world.do(ApplyTopicResources(complete=frozenset({"other"})))
    assert world.topic("orders").header.resource == ""
    assert world.topic("other").header.resource == "other"


def test_the_older_of_two_resources_with_one_topic_name_wins(world: World) -> None:
    results = request(
        world,
        apply=[
            manifest("a", "2026-01-02T00:00:00Z", topicName="t"),
            manifest("b", "2026-01-01T00:00:00Z", topicName="t"),
            manifest("c", "2026-01-01T00:00:00Z", topicName="t"),
        ],
    )
    assert results["b"]["state"] == "ok"
    assert {results["a"]["reason"], results["c"]["reason"]} == {"Conflict"}
    assert world.topic("t").header.resource == "b"


def test_a_complete_request_keeps_what_is_named_and_what_is_wrong(world: World) -> None:
    request(world, apply=[manifest("a"), manifest("b"), manifest("c"), manifest("d")])
    wrong = manifest("b", partitons=3)
    results = request(world, apply=[manifest("a"), wrong], keep=["c"], isComplete=True)
    assert results["b"]["reason"] == "InvalidSpec"
    assert results["b"]["message"].startswith("spec.partitons: unknown field")
    held = {topic.name: topic.header.resource for topic in world.state.image.topics()}
    assert held == {"a": "a", "b": "b", "c": "c", "d": ""}


@pytest.mark.parametrize("wrong", [{"apply": 1}, {"apply": [{}]}, {"forget": [{}]}])
def test_a_request_without_form_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TopicRequestError):
        read_topic_request(wrong)


def test_a_thousand_topics_cost_the_controller_little(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.process_time()
    for batch in range(20):
        names = [f"t-{batch}-{number}" for number in range(50)]
        manifests = [manifest(name, partitions=3, replicationFactor=3) for name in names]
        results = request(world, apply=manifests)
        assert {result["state"] for result in results.values()} == {"ok"}
    elapsed = time.process_time() - started
    with capsys.disabled():
        print(f"\n1,000 topics of 3 partitions decided in {elapsed:.2f} s of CPU")
    assert len(world.state.declared) == 1_000
    assert elapsed < 2


def test_a_resource_of_another_namespace_adopts_nothing(world: World) -> None:
    """It would take over what others made over Kafka, and delete it with itself."""
    stranger = {**manifest("orders"), "reference": "shop/orders", "mayAdopt": False}
    apply(world, ORDERS)
    forget(world, ForgetTopic("orders"))
    result = request(world, apply=[stranger])["shop/orders"]
    assert (result["state"], result["reason"]) == ("refused", "Conflict")
    assert world.topic("orders").header.resource == ""
    result = request(world, apply=[{**stranger, "mayAdopt": True}])["shop/orders"]
    assert (result["state"], result["reason"]) == ("ok", "Applied")
    assert world.topic("orders").header.resource == "shop/orders"
    kept = request(world, apply=[stranger])["shop/orders"]
    assert (kept["state"], kept["reason"]) == ("ok", "Applied")
