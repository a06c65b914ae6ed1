from collections.abc import Callable
from typing import Any

import pytest
from decision_world import World, reply_of

from fairlead_controller.decisions.events import (
    AlterReassignments,
    ConfirmDeletions,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
)
from fairlead_controller.decisions.state import initial_state
from fairlead_model.ids import CONSUMER_OFFSETS, ZERO_TOPIC_ID
from fairlead_model.session.calls import (
    CreatableTopic,
    CreatePartitionsCall,
    CreateTopicsCall,
    DeletableTopic,
    DeleteTopicsCall,
    GrowableTopic,
)
from fairlead_model.session.refusals import RefusalCode


def deletion(*wanted: str | bytes) -> DeleteTopics:
    return DeleteTopics(
        DeleteTopicsCall(
            topics=[
                DeletableTopic(name=one, topic_id=ZERO_TOPIC_ID)
                if isinstance(one, str)
                else DeletableTopic(name=None, topic_id=one)
                for one in wanted
            ]
        )
    )


def growth(
    name: str, count: int, assignments: list[Any] | None = None, *, validate_only: bool = False
) -> CreatePartitions:
    topic = GrowableTopic(name=name, count=count, assignments=assignments)
    return CreatePartitions(CreatePartitionsCall(topics=[topic], validate_only=validate_only))


def test_topics_are_deleted_by_name_and_by_id(world: World) -> None:
    world.create("a")
    topic_id = world.create("b")["topic_id"]
    reply = world.do(deletion("a", topic_id, "c", b"c" * 16))
    assert [(topic["name"], topic["error_code"]) for topic in reply["topics"]] == [
        ("a", 0),
        ("b", 0),
        ("c", RefusalCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, RefusalCode.UNKNOWN_TOPIC_ID),
    ]
    assert list(world.state.image.topics()) == []
    assert all(load.replicas == 0 for load in world.state.loads.values())


def test_a_deletion_waits_for_every_broker_that_holds_data(world: World) -> None:
    topic_id = world.create("t", partitions=3)["topic_id"]
    world.do(deletion("t"))
    world.do(ConfirmDeletions(0, [topic_id]))
    world.do(ConfirmDeletions(1, [topic_id, b"x" * 16]))
    assert world.state.image.deleting[topic_id].unconfirmed_deletions == {2}
    assert world.decide(ConfirmDeletions(1, [topic_id])).changes == ()
    # Broker 2 was away all the time, and even a topic of the same name has been made since.
    again = world.create("t", partitions=3)
    assert again["topic_id"] != topic_id
    world.start_broker(2, start_id="again")
    world.do(ConfirmDeletions(2, [topic_id]))
    assert world.state.image.deleting == {}
    assert topic_id not in world.state.image.topics_by_id
    assert world.state.image.topic_name(again["topic_id"]) == "t"
    assert {load.replicas for load in world.state.loads.values()} == {1}


def take_over(world: World) -> None:
    """Go on as the next controller, which has only what is durable."""
    state = world.state
    world.state = initial_state(state.image, controller_epoch=2, counters=state.counters)


def test_what_is_being_deleted_does_not_move_and_misses_no_leader_for_the_next_controller(
    make_world: Callable[..., World],
) -> None:
    world = make_world(4)
    by_hand = {"partitions": -1, "replication_factor": -1}
    world.create("t", **by_hand, assignments={0: [0, 1], 1: [1, 2]})
    world.fence(1)
    wanted: Any = [{"topic": "t", "index": 0, "replicas": [0, 3]}]
    call: Any = {"partitions": wanted, "allow_replication_factor_change": False}
    world.do(AlterReassignments(call))
    assert world.state.moves
    assert world.state.observations.misplaced
    world.do(deletion("t"))
    take_over(world)
    assert not world.state.moves
    assert not world.state.observations.misplaced


def test_names_that_collide_are_refused_by_the_next_controller_too(world: World) -> None:
    """Also where a topic of the same name is still being deleted."""
    names = [f"a.{number}" for number in range(8)]
    for name in names:
        world.create(name)
        world.do(deletion(name))
        world.create(name)
    take_over(world)
    codes = {world.create(name.replace(".", "_"))["error_code"] for name in names}
    assert codes == {RefusalCode.INVALID_TOPIC_EXCEPTION}


def test_a_topic_grows_where_it_has_least(world: World) -> None:
    world.create("t", partitions=-1, replication_factor=-1, assignments={0: [0], 1: [0]})
    assert world.do(growth("t", 4))["topics"][0]["error_code"] == 0
    assert sorted(world.leaders("t")) == [0, 0, 1, 2]
    assert world.topic("t").header.partition_count == 4


def test_growth_by_hand(world: World) -> None:
    world.create("t")
    assert world.do(growth("t", 3, [[2], [2]]))["topics"][0]["error_code"] == 0
    assert world.leaders("t")[1:] == [2, 2]


@pytest.mark.parametrize(
    ("event", "code", "message"),
    [
        (growth("u", 4), RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
        (growth("t", 2), RefusalCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            growth("t", 1),
            RefusalCode.INVALID_PARTITIONS,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (growth("t", 10_001), RefusalCode.INVALID_PARTITIONS, "10000"),
        (growth("t", 4, [[0]]), RefusalCode.INVALID_REPLICA_ASSIGNMENT, "1 assignments for 2"),
        (growth("t", 3, [[9]]), RefusalCode.INVALID_REPLICA_ASSIGNMENT, "unknown broker 9"),
        (growth("t", 3, [[0, 1]]), RefusalCode.INVALID_REPLICA_ASSIGNMENT, "2 replicas"),
    ],
)
def test_growth_that_is_refused(
    world: World, event: CreatePartitions, code: RefusalCode, message: str
) -> None:
    world.create("t", partitions=2)
    (topic,) = world.do(event)["topics"]
    assert topic["error_code"] == code
    assert message in topic["error_message"]
    assert len(world.partitions("t")) == 2


def test_internal_topics_do_not_grow(world: World) -> None:
    """Every group would be looked for in another partition than the one that it is in."""
    topic = CreatableTopic(
        name=CONSUMER_OFFSETS, partitions=2, replication_factor=1, assignments={}, configs={}
    )
    world.do(
        CreateTopics(
            CreateTopicsCall(
                topics=[topic],
                validate_only=False,
                default_partitions=2,
                default_replication_factor=1,
                internal=True,
            )
        )
    )
    (topic,) = world.do(growth(CONSUMER_OFFSETS, 4))["topics"]
    assert topic["error_code"] == RefusalCode.INVALID_TOPIC_EXCEPTION
    assert len(world.partitions(CONSUMER_OFFSETS)) == 2


def test_growth_can_be_validated_only(world: World) -> None:
    world.create("t")
    decision = world.decide(growth("t", 5, validate_only=True))
    assert reply_of(decision)["topics"][0]["error_code"] == 0
    assert decision.changes == ()
