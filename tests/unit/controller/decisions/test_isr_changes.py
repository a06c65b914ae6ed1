from typing import Any

import pytest
from decision_world import World, there

from fairlead_controller.decisions.events import AlterPartition, ShutDownBroker
from fairlead_model.session.refusals import RefusalCode, RefusedError

CREATE = {"assignments": {0: [0, 1, 2]}, "partitions": -1, "replication_factor": -1}


@pytest.fixture
def replicated(world: World) -> World:
    """Three replicas, two of them needed; broker 0 leads."""
    world.create("t", **CREATE, configs={"min.insync.replicas": "2"})
    return world


def proposal(world: Any, isr: list[Any], **fields: Any) -> dict[Any, Any]:
    partition = world.partition()
    topic = world.topic("t")
    return {
        "topic_id": topic.topic_id,
        "index": 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "isr": [[member, world.epoch(member)] for member in isr],
    } | fields


def propose(
    world: World,
    isr: list[Any],
    *,
    broker: int = 0,
    broker_epoch: int | None = None,
    **fields: Any,
) -> Any:
    epoch = world.epoch(broker) if broker_epoch is None else broker_epoch
    call: Any = {"broker_epoch": epoch, "partitions": [proposal(world, isr, **fields)]}
    return world.do(AlterPartition(broker, call))["partitions"][0]


def test_a_leader_shrinks_and_grows_the_isr(replicated: World) -> None:
    answer = propose(replicated, [1, 0])
    assert (answer["error_code"], answer["isr"], answer["partition_epoch"]) == (0, [0, 1], 1)
    assert replicated.sets() == (0, "01", "", "")
    assert propose(replicated, [0])["isr"] == [0]
    assert replicated.sets() == (0, "0", "1", "")
    answer = propose(replicated, [0, 2])
    assert (answer["leader"], answer["leader_epoch"], answer["isr"]) == (0, 0, [0, 2])
    assert replicated.sets() == (0, "02", "", "")


def test_the_present_isr_is_no_change(replicated: World) -> None:
    before = replicated.state
    assert propose(replicated, [2, 1, 0])["error_code"] == 0
    assert replicated.partition() is there(before.image.topic("t")).partitions[0]


REFUSED = [
    ([0, 1], {"topic_id": b"x" * 16}, RefusalCode.UNKNOWN_TOPIC_ID),
    ([0, 1], {"index": 1}, RefusalCode.UNKNOWN_TOPIC_OR_PARTITION),
    ([0, 1], {"leader_epoch": 0}, RefusalCode.FENCED_LEADER_EPOCH),
    ([0, 1], {"leader_epoch": 9}, RefusalCode.NOT_CONTROLLER),
    ([0, 1], {"partition_epoch": 1}, RefusalCode.INVALID_UPDATE_VERSION),
    ([0, 1], {"partition_epoch": 9}, RefusalCode.NOT_CONTROLLER),
    ([1], {}, RefusalCode.INVALID_REQUEST),
    ([0, 0], {}, RefusalCode.INVALID_REQUEST),
    ([], {}, RefusalCode.INVALID_REQUEST),
    ([0, 1], {"broker": 1}, RefusalCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("isr", "fields", "code"), REFUSED)
def test_refusals(world: World, isr: list[int], fields: dict[str, Any], code: RefusalCode) -> None:
    world.create("t", **CREATE)
    world.fence(1)
    world.restart(1, "again")
    world.fence(0)
    world.restart(0, "again")
    # Leader 2 under its second epoch: an older one exists.
    proposed = [2 if member == 0 else member for member in isr]
    answer = propose(world, proposed, **({"broker": 2} | fields))
    assert answer["error_code"] == code
    assert answer["error_message"]
    known = code not in {RefusalCode.UNKNOWN_TOPIC_ID, RefusalCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer["leader"] == (2 if known else -1)
    assert answer["isr"] == ([2] if known else [])


def test_a_member_outside_the_replicas_is_refused(world: World) -> None:
    world.create("t", assignments={0: [0, 1]}, partitions=-1, replication_factor=-1)
    assert propose(world, [0, 2])["error_code"] == RefusalCode.INVALID_REQUEST


@pytest.mark.parametrize("change", ["fenced", "stopping", "another epoch"])
def test_members_have_to_be_in_service_and_of_the_incarnation_that_fetched(
    replicated: World, change: str
) -> None:
    old = replicated.epoch(2)
    if change == "fenced":
        replicated.fence(2)
    elif change == "stopping":
        replicated.do(ShutDownBroker(2, old))
    else:
        replicated.restart(2, "again")
    asked = proposal(replicated, [0, 1])
    asked["isr"].append([2, old])
    call: Any = {"broker_epoch": replicated.epoch(0), "partitions": [asked]}
    answer = replicated.do(AlterPartition(0, call))["partitions"][0]
    assert answer["error_code"] == RefusalCode.INELIGIBLE_REPLICA
    assert replicated.sets() == (0, "01", "", "")


def test_epochs_are_checked_before_members(replicated: World) -> None:
    """R9."""
    old = replicated.partition().partition_epoch
    replicated.fence(2)
    answer = propose(replicated, [0, 1, 2], partition_epoch=old)
    assert answer["error_code"] == RefusalCode.INVALID_UPDATE_VERSION


def test_another_incarnation_of_the_leader_is_refused_as_a_whole(replicated: World) -> None:
    with pytest.raises(RefusedError) as refused:
        propose(replicated, [0, 1], broker_epoch=77)
    assert refused.value.code is RefusalCode.STALE_BROKER_EPOCH


def test_a_partition_named_twice_is_changed_once(replicated: World) -> None:
    call: Any = {
        "broker_epoch": replicated.epoch(0),
        "partitions": [proposal(replicated, [0, 1]), proposal(replicated, [0])],
    }
    first, second = replicated.do(AlterPartition(0, call))["partitions"]
    assert (first["error_code"], second["error_code"]) == (0, RefusalCode.INVALID_REQUEST)
    assert replicated.sets() == (0, "01", "", "")


def test_a_stopping_leader_waits_for_a_replica_in_sync_and_hands_over(replicated: World) -> None:
    propose(replicated, [0])
    replicated.fence(1, 2)
    replicated.restart(1, "again", clean=False)
    assert replicated.sets() == (0, "0", "2", "1")
    stop = ShutDownBroker(0, replicated.epoch(0))
    assert replicated.do(stop) == {"remaining_leaders": 1}
    assert replicated.sets()[0] == 0
    assert replicated.decide(stop).changes == ()
    answer = propose(replicated, [0, 1])
    assert (answer["error_code"], answer["leader"], answer["isr"]) == (0, 1, [1])
    assert answer["leader_epoch"] == 1
    assert replicated.do(stop) == {"remaining_leaders": 0}


def test_a_stopping_leader_goes_at_once_when_nobody_else_can_lead(replicated: World) -> None:
    propose(replicated, [0])
    replicated.fence(1, 2)
    assert replicated.do(ShutDownBroker(0, replicated.epoch(0))) == {"remaining_leaders": 0}
    assert replicated.sets() == (-1, "0", "12", "")
