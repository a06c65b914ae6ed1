from collections.abc import Callable
from typing import Any

import pytest
from decision_world import World, reply_of

from fairlead_controller.decisions.events import CreateTopics, DeleteTopics
from fairlead_controller.decisions.topics.creation import (
    PARTITIONS_PER_CALL_MAX,
    TOPICS_PER_CALL_MAX,
)
from fairlead_model.ids import ZERO_TOPIC_ID
from fairlead_model.session.calls import CreatableTopic, DeletableTopic, DeleteTopicsCall
from fairlead_model.session.refusals import RefusalCode, RefusedError


def test_a_topic_is_placed_and_led(world: World) -> None:
    created = world.create("t", partitions=6, configs={"retention.ms": "5"})
    assert (created["error_code"], created["partitions"], created["replication_factor"]) == (
        0,
        6,
        1,
    )
    assert created["configs"] == {"retention.ms": "5"}
    topic = world.topic("t")
    assert topic.topic_id == created["topic_id"]
    assert sorted(world.leaders("t")) == [0, 0, 1, 1, 2, 2]
    for partition in topic.partitions:
        assert partition.isr == partition.replicas == (partition.leader,)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == (f"disk-{partition.leader}",)


def test_minus_one_means_the_default(world: World) -> None:
    created = world.create("t", partitions=-1, replication_factor=-1)
    assert (created["partitions"], created["replication_factor"]) == (2, 1)


def test_assignments_by_hand(world: World) -> None:
    created = world.create(
        "t", partitions=-1, replication_factor=-1, assignments={0: [2], 1: [2], 2: [0]}
    )
    assert created["error_code"] == 0
    assert world.leaders("t") == [2, 2, 0]


REFUSED = [
    ({"name": "a/b"}, RefusalCode.INVALID_TOPIC_EXCEPTION, "ASCII"),
    ({"name": ""}, RefusalCode.INVALID_TOPIC_EXCEPTION, "empty"),
    ({"name": "there"}, RefusalCode.TOPIC_ALREADY_EXISTS, "exists"),
    ({"name": "with_line"}, RefusalCode.INVALID_TOPIC_EXCEPTION, "with.line"),
    ({"name": "__consumer_offsets"}, RefusalCode.INVALID_TOPIC_EXCEPTION, "cluster"),
    ({"partitions": 0}, RefusalCode.INVALID_PARTITIONS, "at least one"),
    ({"partitions": -2}, RefusalCode.INVALID_PARTITIONS, "at least one"),
    ({"partitions": 10_001}, RefusalCode.INVALID_PARTITIONS, "10000"),
    (
        {"partitions": 0, "replication_factor": 0},
        RefusalCode.INVALID_REPLICATION_FACTOR,
        "at least one",
    ),
    ({"replication_factor": 0}, RefusalCode.INVALID_REPLICATION_FACTOR, "at least one"),
    (
        {"replication_factor": 4},
        RefusalCode.INVALID_REPLICATION_FACTOR,
        "above the 3 brokers",
    ),
    ({"configs": {"x": "y"}}, RefusalCode.INVALID_CONFIG, "unknown topic config"),
    (
        {"configs": {"segment.ms": None, "cleanup.policy": "delete", "retention.ms": None}},
        RefusalCode.INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms,segment.ms",
    ),
    ({"configs": {"cleanup.policy": "shred"}}, RefusalCode.INVALID_CONFIG, "shred"),
    ({"assignments": {0: [0]}}, RefusalCode.INVALID_REQUEST, "-1"),
    (
        {"assignments": {0: [9]}, "partitions": -1, "replication_factor": -1},
        RefusalCode.INVALID_REPLICA_ASSIGNMENT,
        "unknown broker 9",
    ),
    (
        {"assignments": {0: [0, 1], 1: [2]}, "partitions": -1, "replication_factor": -1},
        RefusalCode.INVALID_REPLICA_ASSIGNMENT,
        "1 replicas where the others have 2",
    ),
]


@pytest.mark.parametrize(("fields", "code", "message"), REFUSED)
def test_refusals(
    world: World,
    fields: dict[str, Any],
    code: RefusalCode,
    message: str,
) -> None:
    world.create("there")
    world.create("with.line")
    before = world.state
    outcome = world.create(str(fields.pop("name", "new")), **fields)
    assert outcome["error_code"] == code
    assert message in outcome["error_message"]
    assert (outcome["topic_id"], outcome["partitions"]) == (ZERO_TOPIC_ID, -1)
    assert list(world.state.image.changes_since(before.image)) == []


def test_valid_and_invalid_topics_of_one_request_go_their_own_ways(
    world: World,
    make_topic: Callable[..., CreatableTopic],
    make_create: Callable[..., CreateTopics],
) -> None:
    reply = world.do(
        make_create(
            make_topic("good"),
            make_topic("bad!"),
            make_topic("twice"),
            make_topic("twice"),
            make_topic("x.y"),
            make_topic("x_y"),
        )
    )
    codes = {topic["name"]: topic["error_code"] for topic in reply["topics"]}
    assert codes == {
        "good": 0,
        "bad!": RefusalCode.INVALID_TOPIC_EXCEPTION,
        "twice": RefusalCode.INVALID_REQUEST,
        "x.y": 0,
        "x_y": RefusalCode.INVALID_TOPIC_EXCEPTION,
    }
    assert {topic.name for topic in world.state.image.topics()} == {"good", "x.y"}


def test_validate_only_says_what_would_happen_and_does_nothing(
    world: World,
    make_topic: Callable[..., CreatableTopic],
    make_create: Callable[..., CreateTopics],
) -> None:
    decision = world.decide(
        make_create(make_topic("a", partitions=4), make_topic("b!"), validate_only=True)
    )
    assert decision.changes == ()
    first, second = reply_of(decision)["topics"]
    assert (first["error_code"], first["partitions"], first["topic_id"]) == (0, 4, ZERO_TOPIC_ID)
    assert second["error_code"] == RefusalCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_is_made_while_one_of_its_brokers_is_away(world: World) -> None:
    world.fence(1)
    assert world.create("t", partitions=3, replication_factor=3)["error_code"] == 0
    registrations = world.partitions("t")
    # Each is to lead its share once all are back.
    assert {each.replicas[0] for each in registrations} == {0, 1, 2}
    assert all(set(each.isr) == {0, 2} for each in registrations)
    assert 1 not in world.leaders("t")


def test_brokers_that_are_all_down_are_given_no_partition(world: World) -> None:
    world.fence(1, 2)
    outcome = world.create(
        "t", assignments={0: [0, 1], 1: [1, 2]}, partitions=-1, replication_factor=-1
    )
    assert outcome["error_code"] == RefusalCode.INVALID_REPLICA_ASSIGNMENT
    assert "partition 1 is assigned to brokers that are all down" in outcome["error_message"]


def test_without_brokers_there_is_nowhere_to_put_a_topic(make_world: Callable[..., World]) -> None:
    outcome = make_world().create("t")
    assert outcome["error_code"] == RefusalCode.INVALID_REPLICATION_FACTOR


def test_a_request_is_bounded(
    world: World,
    make_topic: Callable[..., CreatableTopic],
    make_create: Callable[..., CreateTopics],
) -> None:
    too_many = [make_topic("t")] * (TOPICS_PER_CALL_MAX + 1)
    with pytest.raises(RefusedError) as refused:
        world.do(make_create(*too_many))
    assert refused.value.code is RefusalCode.INVALID_REQUEST
    reply = world.do(
        make_create(make_topic("a", partitions=PARTITIONS_PER_CALL_MAX), make_topic("b"))
    )
    assert [topic["error_code"] for topic in reply["topics"]] == [0, RefusalCode.POLICY_VIOLATION]


def test_a_deleted_topic_frees_its_name_and_what_collides_with_it(world: World) -> None:
    world.create("a.b")
    world.do(
        DeleteTopics(DeleteTopicsCall(topics=[DeletableTopic(name="a.b", topic_id=ZERO_TOPIC_ID)]))
    )
    assert world.create("a_b")["error_code"] == 0
    assert world.create("a.b")["error_code"] == RefusalCode.INVALID_TOPIC_EXCEPTION
