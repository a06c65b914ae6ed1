"""What people order for brokers with very many partitions is carried out in parts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from decision_world import World, creatable, create_topics, registration
from run_controller import play
from waiting import until

from fairlead_controller.controller import Controller
from fairlead_controller.decisions import (
    full_disks,
    leadership,
    ordered_fencing,
    requested_elections,
)
from fairlead_controller.decisions import registration as registrations
from fairlead_controller.decisions.events import (
    AdvanceReassignments,
    AllocateProducerIds,
    AlterConfigs,
    AlterReassignments,
    CallMovesBack,
    DeleteTopics,
    DrainBrokers,
    DrainLeaders,
    ElectLeaders,
    ElectOnRequest,
    Event,
    FenceByOrder,
    RegisterBroker,
    RelieveReplicas,
    ReportOffline,
    ScaleDownPool,
    UnfenceBroker,
)
from fairlead_controller.decisions.ordered_fencing import fence_by_order
from fairlead_controller.decisions.reassignment import evacuation, progress
from fairlead_controller.decisions.state import ControllerState, initial_state
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_model.cluster import PartitionChanged
from fairlead_model.configs.broker_configs import BROKER_DRAIN
from fairlead_model.session.calls import (
    AlterableResource,
    AlterConfigsCall,
    AlterOperation,
    AlterReassignmentsCall,
    ConfigAlteration,
    DeletableTopic,
    DeleteTopicsCall,
    ElectablePartition,
    ElectionType,
    ElectLeadersCall,
    ReportOfflineCall,
    ResourceType,
)
from fairlead_model.session.refusals import RefusalCode

BROKER = 1
PART = 2
COUNT = 9
ASSIGNMENTS = {index: [BROKER, 0, 2] for index in range(COUNT)}
FENCING = fence_by_order(BROKER, "its disk is odd")
TAKEN_BACK = fence_by_order(BROKER, None)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (leadership, requested_elections, evacuation, full_disks):
        monkeypatch.setattr(module, "ELECTED_PER_DECISION_MAX", PART)
    for other in (registrations, ordered_fencing):
        monkeypatch.setattr(other, "LEFT_PER_DECISION_MAX", PART)


@pytest.fixture
def held_world(world: World) -> World:
    """Three brokers, of which each has all partitions, and one leads most of them."""
    world.create("t", partitions=-1, replication_factor=-1, assignments=ASSIGNMENTS)
    assert world.leaders("t") == [BROKER] * COUNT
    return world


def members(state: ControllerState) -> int:
    """Count the in-sync sets with the broker."""
    return sum(
        BROKER in record.isr for topic in state.image.topics() for record in topic.partitions
    )


def take_step(world: World, event: Event) -> list[Event]:
    """Carry out one decision, which is a small one; return what it leaves."""
    decision = world.decide(event)
    assert sum(isinstance(each, PartitionChanged) for each in decision.changes) <= PART
    world.state = world.state.apply(decision.changes)
    return list(decision.rest)


def do_all(world: World, *events: Event) -> list[Event]:
    """Carry out events and all that is left of them; return these parts."""
    waiting, parts = list(events), []
    while waiting:
        rest = take_step(world, waiting.pop(0))
        waiting += rest
        parts += rest
    return parts


def drain(broker_id: int, operation: AlterOperation = AlterOperation.SET) -> AlterConfigs:
    alteration = ConfigAlteration(name=BROKER_DRAIN, operation=operation, value="true")
    resource = AlterableResource(
        resource_type=ResourceType.BROKER, name=str(broker_id), alterations=[alteration]
    )
    call = AlterConfigsCall(resources=[resource], validate_only=False, incremental=True)
    return AlterConfigs(call)


def test_a_broker_is_fenced_by_order_after_some_decisions(
    held_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, whole = held_world, World(3)
    whole.state = world.state
    parts = do_all(world, FENCING)
    assert len(parts) == COUNT // PART
    assert all(isinstance(each, FenceByOrder) for each in parts)
    for module in (registrations, ordered_fencing):
        monkeypatch.setattr(module, "LEFT_PER_DECISION_MAX", COUNT)
    assert not whole.decide(FENCING).rest
    whole.do(FENCING)
    assert world.state.image == whole.state.image, "the same as all at once"
    assert world.state.leaving == frozenset()


def test_it_leads_nothing_new_between_two_parts(held_world: World) -> None:
    world = held_world
    (rest,) = take_step(world, FENCING)
    assert not world.state.is_electable(BROKER)
    assert members(world.state) == COUNT - PART
    do_all(world, rest)
    assert world.state.image.brokers[BROKER].fenced
    assert members(world.state) == 0


def test_what_comes_in_sync_anew_between_two_parts_does_not_make_it_endless(
    held_world: World,
) -> None:
    world = held_world
    decisions, rest = 1, take_step(world, FENCING)
    while rest:
        world.state = world.state.apply(
            PartitionChanged(world.topic("t").topic_id, index, each.changed(isr=(0, BROKER, 2)))
            for index, each in enumerate(world.partitions("t"))
            if each.leader != BROKER
        )
        decision = world.decide(rest[0])
        world.state = world.state.apply(decision.changes)
        rest, decisions = list(decision.rest), decisions + 1
    assert decisions <= COUNT // PART + 1
    assert world.state.image.brokers[BROKER].fenced
    assert members(world.state) == 0


def test_an_order_that_is_taken_back_between_two_parts_is_not_carried_on(
    held_world: World,
) -> None:
    world = held_world
    (rest,) = take_step(world, FENCING)
    assert do_all(world, TAKEN_BACK, rest) == []
    assert not world.state.image.brokers[BROKER].fenced
    assert world.state.is_electable(BROKER)
    assert members(world.state) == COUNT - PART


def test_another_start_between_two_parts_is_out_of_service_as_a_whole(held_world: World) -> None:
    world = held_world
    (rest,) = take_step(world, FENCING)
    world.register(BROKER, start_id="anew")
    assert world.decide(rest).changes == ()
    assert world.state.image.brokers[BROKER].fenced


def test_the_next_controller_carries_on_with_the_order(held_world: World) -> None:
    world = held_world
    take_step(world, FENCING)
    before = world.state
    world.state = initial_state(before.image, controller_epoch=2, counters=before.counters)
    do_all(world, ElectLeaders())
    assert world.state.image.brokers[BROKER].fenced
    assert members(world.state) == 0


async def start_brokers(controller: Controller) -> None:
    """Start three brokers, of which each has all partitions, and one leads them."""
    for broker_id in (0, BROKER, 2):
        reply = await controller.submit(RegisterBroker(registration(broker_id), ""))
        await controller.submit(UnfenceBroker(broker_id, reply["broker_epoch"]))
    topic = creatable("t", partitions=-1, replication_factor=-1, assignments=ASSIGNMENTS)
    await controller.submit(create_topics(topic))


def test_the_next_process_carries_on_with_the_order(tmp_path: Path) -> None:
    async def first(controller: Controller) -> None:
        await start_brokers(controller)
        controller.subscribe(lambda changes, state: controller.end(StoreError("killed")))
        await controller.submit(FENCING)

    async def second(controller: Controller) -> None:
        assert controller.committed.ordered_out == {BROKER}
        await until(lambda: controller.committed.image.brokers[BROKER].fenced)
        assert members(controller.committed) == 0

    play(tmp_path, first)
    play(tmp_path, second)


def test_the_leaders_of_a_broker_that_is_drained_move_in_parts(held_world: World) -> None:
    world = held_world
    world.start_broker(3)
    parts = do_all(world, drain(BROKER))
    assert parts == [DrainLeaders((BROKER,))] * (COUNT // PART)
    assert BROKER not in world.leaders("t")


def test_what_begins_moves_meanwhile_does_not_elect_all_the_others(
    held_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is woken by the same change that the parts follow, and each election is one step of it."""
    monkeypatch.setattr(progress, "ELECTIONS_PER_DECISION_MAX", PART)
    monkeypatch.setattr(progress, "MOVES_PER_BROKER_MAX", 1)
    world = held_world
    world.start_broker(3)
    (rest,) = take_step(world, drain(BROKER))
    decision = world.decide(AdvanceReassignments())
    assert sum(move.changes_leader for move in decision.moves) == PART
    for turn in range(COUNT):
        world.do(AdvanceReassignments(turn=turn))
    assert BROKER not in world.leaders("t"), "also where the parts have ended with a controller"
    assert world.decide(rest).changes == ()


def test_a_drain_that_was_taken_back_between_two_parts_moves_nothing_more(
    held_world: World,
) -> None:
    world = held_world
    world.start_broker(3)
    (rest,) = take_step(world, drain(BROKER))
    world.do(drain(BROKER, AlterOperation.DELETE))
    assert world.decide(rest).changes == ()
    assert world.leaders("t").count(BROKER) == COUNT - PART


@pytest.fixture
def moving_world(held_world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A broker is drained, and all that it holds moves to another one."""
    monkeypatch.setattr(progress, "MOVES_PER_BROKER_MAX", COUNT)
    held_world.start_broker(3)
    do_all(held_world, drain(BROKER))
    held_world.do(AdvanceReassignments())
    assert moves_off(held_world) == COUNT
    return held_world


def moves_off(world: World) -> int:
    return sum(BROKER in record.removing_replicas for record in world.partitions("t"))


def test_what_moves_off_a_broker_is_called_back_in_parts(
    moving_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, whole = moving_world, World(3)
    whole.state = world.state
    event = drain(BROKER, AlterOperation.DELETE)
    parts = do_all(world, event)
    assert [len(each.moves) for each in parts if isinstance(each, CallMovesBack)] == [
        *range(COUNT - PART, 0, -PART)
    ]
    assert moves_off(world) == 0
    monkeypatch.setattr(evacuation, "ELECTED_PER_DECISION_MAX", COUNT)
    assert not whole.decide(event).rest
    whole.do(event)
    assert world.state.image == whole.state.image, "the same as all at once"


def test_a_broker_that_is_drained_again_between_two_parts_keeps_its_moves(
    moving_world: World,
) -> None:
    world = moving_world
    (rest,) = take_step(world, drain(BROKER, AlterOperation.DELETE))
    world.do(drain(BROKER))
    assert world.decide(rest).changes == ()
    assert moves_off(world) == COUNT - PART


def test_only_the_moves_of_a_drain_are_called_back_and_of_topics_that_are_there(
    moving_world: World,
) -> None:
    world = moving_world
    (rest,) = take_step(world, drain(BROKER, AlterOperation.DELETE))
    world.start_broker(4)
    target: Any = {"topic": "t", "index": COUNT - 1, "replicas": [4, 0, 2]}
    call = AlterReassignmentsCall(partitions=[target], allow_replication_factor_change=False)
    world.do(AlterReassignments(call))
    event, deleted = rest, World(3)
    deleted.state = world.state
    do_all(world, event)
    assert [
        index for index, each in enumerate(world.partitions("t")) if each.removing_replicas
    ] == [COUNT - 1]
    topic = DeletableTopic(name="t", topic_id=bytes(16))
    deleted.do(DeleteTopics(DeleteTopicsCall(topics=[topic])))
    assert isinstance(event, CallMovesBack)
    assert do_all(deleted, event)[-1] == CallMovesBack(event.moves[-1:])


def test_brokers_that_leave_a_pool_together_share_the_parts(held_world: World) -> None:
    world = held_world
    for broker_id in (3, 4, 5):
        world.start_broker(broker_id)
    world.create("u", partitions=-1, replication_factor=-1, assignments={0: [2, 0], 1: [2, 0]})
    event = ScaleDownPool("pool", leaving=frozenset({BROKER, 2}), staying=frozenset(), at_ms=0)
    parts = do_all(world, event)
    assert parts[0] == DrainLeaders((BROKER, 2))
    assert {BROKER, 2}.isdisjoint([*world.leaders("t"), *world.leaders("u")])


def report_full(world: World) -> ReportOffline:
    """Return the report of the broker that its disk has no room for any of its replicas."""
    partitions: Any = [
        {"topic_id": world.topic("t").topic_id, "index": index} for index in range(COUNT)
    ]
    call = ReportOfflineCall(
        broker_epoch=world.epoch(BROKER),
        partitions=partitions,
        is_unclean=False,
        lacks_room=True,
    )
    return ReportOffline(BROKER, call)


def test_a_broker_with_a_full_disk_is_relieved_in_parts(
    held_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full for all replicas at once."""
    world, whole = held_world, World(3)
    whole.state = world.state
    event = report_full(world)
    parts = do_all(world, event)
    assert [len(each.partitions) for each in parts if isinstance(each, RelieveReplicas)] == [
        *range(COUNT - PART, 0, -PART)
    ]
    monkeypatch.setattr(full_disks, "ELECTED_PER_DECISION_MAX", COUNT)
    assert not whole.decide(event).rest
    whole.do(event)
    assert world.state.image == whole.state.image, "the same as all at once"
    assert members(world.state) == 0


def test_who_has_room_again_between_two_parts_keeps_the_others(held_world: World) -> None:
    world = held_world
    (rest,) = take_step(world, report_full(world))
    world.do(
        ReportOffline(
            BROKER,
            ReportOfflineCall(
                broker_epoch=world.epoch(BROKER), partitions=[], is_unclean=False, lacks_room=True
            ),
        )
    )
    assert world.decide(rest).changes == ()
    assert members(world.state) == COUNT - PART


def misplace(world: World) -> None:
    """Let no preferred replica lead, though all are in sync."""
    topic_id = world.topic("t").topic_id
    world.state = world.state.apply(
        PartitionChanged(topic_id, index, each.changed(leader=2))
        for index, each in enumerate(world.partitions("t"))
    )


def elections(partitions: Sequence[ElectablePartition] | None) -> ElectOnRequest:
    wanted: Any = None if partitions is None else list(partitions)
    call = ElectLeadersCall(partitions=wanted, election_type=ElectionType.PREFERRED)
    return ElectOnRequest(call)


def test_elections_of_all_partitions_are_asked_for_in_parts(held_world: World) -> None:
    world, whole = held_world, World(3)
    misplace(world)
    whole.state = world.state
    parts = requested_elections.election_parts(world.state, elections(None))
    results: list[Any] = []
    for part in parts:
        assert len(world.decide(part).moves) <= PART
        results += world.do(part)["partitions"]
    assert results == whole.do(elections(None))["partitions"]
    assert len(results) == COUNT
    assert world.state.image == whole.state.image, "the same as all at once"


def test_where_no_election_is_needed_one_part_says_so(held_world: World) -> None:
    (part,) = requested_elections.election_parts(held_world.state, elections(None))
    assert held_world.do(part) == {"partitions": []}
    named = elections([ElectablePartition(topic="t", index=0)])
    assert requested_elections.election_parts(held_world.state, named) == [named]


def test_others_are_answered_between_two_parts_of_elections(tmp_path: Path) -> None:
    async def story(controller: Controller) -> None:
        await start_brokers(controller)
        for reasons in ({BROKER: "its pod is deleted"}, {}):
            await controller.submit(DrainBrokers(reasons))
        electing = asyncio.create_task(controller.submit(elections(None)))
        answered = 0
        while not electing.done():
            await controller.submit(AllocateProducerIds(BROKER))
            answered += 1
        reply = await electing
        assert [each["error_code"] for each in reply["partitions"]] == [RefusalCode.NONE] * COUNT
        assert answered >= COUNT // PART

    play(tmp_path, story)


def test_what_is_led_as_preferred_meanwhile_is_not_told(tmp_path: Path) -> None:
    """A request for all partitions is answered with those that an election concerns."""

    async def story(controller: Controller) -> None:
        await start_brokers(controller)
        for reasons in ({BROKER: "its pod is deleted"}, {}):
            await controller.submit(DrainBrokers(reasons))
        asked = [controller.submit(elections(None)) for _ in range(2)]
        replies = await asyncio.gather(*asked)
        told = [each for reply in replies for each in reply["partitions"]]
        assert sorted(each["index"] for each in told) == list(range(COUNT))
        assert {each["error_code"] for each in told} == {RefusalCode.NONE}

    play(tmp_path, story)
