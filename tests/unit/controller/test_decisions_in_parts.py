"""What concerns very many partitions is decided in parts, between which the controller lives on."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from decision_world import World, creatable, create_topics, registration
from run_controller import play
from waiting import until

from fairlead_controller import controller as shell
from fairlead_controller.controller import Controller
from fairlead_controller.decisions import leadership, requested_elections
from fairlead_controller.decisions import registration as registrations
from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    BalanceLeaders,
    DeleteTopics,
    ElectLeaderless,
    Event,
    FenceBroker,
    FenceReason,
    NoteDirectory,
    RegisterBroker,
    ReturnUnclean,
    UnfenceBroker,
)
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_model.cluster import Change, PartitionChanged
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import DeletableTopic, DeleteTopicsCall

BROKER = 1
PART = 2
ALONE = 9
"""Partitions that only the broker has."""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "ELECTED_PER_DECISION_MAX", PART)
    monkeypatch.setattr(requested_elections, "ELECTED_PER_DECISION_MAX", PART)
    monkeypatch.setattr(registrations, "LEFT_PER_DECISION_MAX", PART)


@pytest.fixture
def lonely_world(world: World) -> World:
    """Three brokers, and topics that wait for one of them, which is dead."""
    for name in ("t", "u", "v"):
        assignments = {index: [BROKER] for index in range(ALONE // 3)}
        fields = {"partitions": -1, "replication_factor": -1, "assignments": assignments}
        world.create(name, **fields)
    world.fence(BROKER)
    assert led(world.state) == 0
    return world


def records(state: ControllerState) -> Iterator[PartitionRegistration]:
    for topic in state.image.topics():
        yield from topic.partitions


def led(state: ControllerState) -> int:
    return sum(record.leader == BROKER for record in records(state))


def do_all(world: World, event: Event) -> list[Event]:
    """Carry out an event and all that is left of it; return these parts."""
    parts: list[Event] = []
    waiting = [event]
    while waiting:
        decision = world.decide(waiting.pop(0))
        assert len(decision.moves) <= PART
        assert sum(isinstance(change, PartitionChanged) for change in decision.changes) <= PART
        world.state = world.state.apply(decision.changes)
        waiting += decision.rest
        parts += decision.rest
    return parts


def test_a_broker_in_service_leads_all_that_waits_for_it_after_some_decisions(
    lonely_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, whole = lonely_world, World(3)
    whole.state = world.state
    event = UnfenceBroker(BROKER, world.epoch(BROKER))
    parts = do_all(world, event)
    assert [len(each.partitions) for each in parts if isinstance(each, ElectLeaderless)] == [
        *range(ALONE - PART, 0, -PART)
    ]
    monkeypatch.setattr(leadership, "ELECTED_PER_DECISION_MAX", ALONE)
    decision = whole.decide(event)
    assert not decision.rest
    whole.do(event)
    assert world.state.image == whole.state.image, "the same as all at once"


def test_a_topic_may_be_deleted_between_two_parts(lonely_world: World) -> None:
    world = lonely_world
    decision = world.decide(UnfenceBroker(BROKER, world.epoch(BROKER)))
    world.state = world.state.apply(decision.changes)
    (rest,) = decision.rest
    for name in ("t", "u"):
        topic = DeletableTopic(name=name, topic_id=bytes(16))
        world.do(DeleteTopics(DeleteTopicsCall(topics=[topic])))
    do_all(world, rest)
    assert led(world.state) == ALONE // 3


def test_who_dies_between_two_parts_leads_nothing(lonely_world: World) -> None:
    world = lonely_world
    decision = world.decide(UnfenceBroker(BROKER, world.epoch(BROKER)))
    world.state = world.state.apply(decision.changes)
    world.fence(BROKER)
    assert led(world.state) == 0
    for rest in decision.rest:
        do_all(world, rest)
    assert led(world.state) == 0


def test_another_disk_is_noted_in_parts(lonely_world: World) -> None:
    world = lonely_world
    anew = registration(
        BROKER, start_id="anew", directory_ids=(f"disk-{BROKER}", "new"), directory_id="two"
    )
    world.do(RegisterBroker(anew, "", held=()))
    rest = world.decide(NoteDirectory(BROKER)).rest
    assert rest == (NoteDirectory(BROKER),)
    do_all(world, NoteDirectory(BROKER))
    assert {record.directories for record in records(world.state)} == {("two",)}
    assert world.decide(NoteDirectory(BROKER)).changes == ()
    assert world.decide(NoteDirectory(77)).changes == ()


@pytest.fixture
def dark_world(world: World) -> World:
    """All machines have lost power; every broker is eligible in most partitions, or the last."""
    configs = {"min.insync.replicas": "2"}
    world.create("t", partitions=9, replication_factor=3, configs=configs)
    world.fence(0, BROKER, 2)
    return world


def anew(world: World, **fields: Any) -> RegisterBroker:
    """Return the registration of another start of the broker, on the same disk."""
    epoch = world.epoch(BROKER)
    asking = registration(BROKER, start_id="anew", previous_broker_epoch=epoch, **fields)
    return RegisterBroker(asking, "")


def counted_on(state: ControllerState) -> int:
    return sum(BROKER in (*record.isr, *record.elr) for record in records(state))


def test_replicas_that_may_lack_records_leave_before_the_broker_registers(
    dark_world: World,
) -> None:
    world, whole = dark_world, World(3)
    whole.state = world.state
    event, count = anew(world), counted_on(world.state)
    assert count == 9
    part = ReturnUnclean(event, world.epoch(BROKER))
    for left in (7, 5, 3, 1):
        decision = world.decide(part)
        assert len(decision.moves) == PART
        assert decision.reply == {"rest_fits": left <= PART}
        world.state = world.state.apply(decision.changes)
        assert counted_on(world.state) == left
    assert world.decide(part).changes == ()
    assert len(world.decide(event).moves) == 1
    world.do(event)
    whole.do(event)
    assert world.state.image == whole.state.image, "the same as all at once"


def test_only_what_may_lack_records_leaves(dark_world: World) -> None:
    world, epoch = dark_world, dark_world.epoch(BROKER)
    clean = anew(world, is_clean=True)
    assert world.decide(ReturnUnclean(clean, epoch)).changes == ()
    some = replace(clean, unclean=tuple(("t", index) for index in range(PART + 1)))
    decision = world.decide(ReturnUnclean(some, epoch))
    assert [move.index for move in decision.moves] == [0, 1]
    assert decision.reply == {"rest_fits": True}


def test_no_other_start_than_the_one_before_loses_its_replicas(dark_world: World) -> None:
    """Another process of the broker may be registered between two parts, or be in service."""
    world, epoch = dark_world, dark_world.epoch(BROKER)
    event = anew(world)
    elsewhere = replace(event, cluster_id="another")
    assert world.decide(ReturnUnclean(elsewhere, epoch)).changes == ()
    same = RegisterBroker(world.state.image.brokers[BROKER], "")
    assert world.decide(ReturnUnclean(same, epoch)).changes == ()
    world.register(BROKER, start_id="other", is_clean=True, previous_broker_epoch=epoch)
    assert world.decide(ReturnUnclean(event, epoch)).changes == ()
    world.do(UnfenceBroker(BROKER, world.epoch(BROKER)))
    assert world.decide(ReturnUnclean(event, world.epoch(BROKER))).changes == ()
    assert counted_on(world.state) == 9


def test_preferred_leaders_go_back_though_the_last_of_them_are_few(world: World) -> None:
    """A part makes the imbalance smaller than what is borne, and the others follow yet."""
    world.create("t", partitions=12, replication_factor=3)
    preferred = [partition.preferred_leader for partition in world.partitions("t")]
    world.fence(BROKER)
    world.start_broker(BROKER)
    world.do(UnfenceBroker(BROKER, world.epoch(BROKER)))
    for index, partition in enumerate(world.partitions("t")):
        if BROKER not in partition.isr:
            world.state = world.state.apply([_in_sync(world, index)])
    assert world.leaders("t").count(BROKER) == 0
    parts = do_all(world, BalanceLeaders(imbalance_percentage_max=60))
    assert world.leaders("t") == preferred
    assert parts and all(isinstance(each, BalanceLeaders) for each in parts)


def _in_sync(world: World, index: int) -> PartitionChanged:
    record = world.partition("t", index).changed(isr=world.partition("t", index).replicas)
    return PartitionChanged(world.topic("t").topic_id, index, record)


async def wait_for_death(controller: Controller) -> UnfenceBroker:
    """Start a broker, make topics on it and fence it; return what puts it into service again."""
    reply = await controller.submit(RegisterBroker(registration(BROKER), ""))
    unfencing = UnfenceBroker(BROKER, reply["broker_epoch"])
    await controller.submit(unfencing)
    await controller.submit(create_topics(creatable("t", partitions=ALONE)))
    death = FenceBroker(BROKER, reply["broker_epoch"], FenceReason.SESSION_EXPIRED)
    await controller.submit(death)
    assert led(controller.committed) == 0
    return unfencing


def test_others_are_answered_between_two_parts(tmp_path: Path) -> None:
    async def story(controller: Controller) -> None:
        unfencing = await wait_for_death(controller)
        sizes: list[int] = []

        def note(changes: tuple[Change, ...], state: ControllerState) -> None:
            sizes.append(sum(isinstance(change, PartitionChanged) for change in changes))

        controller.subscribe(note)
        await controller.submit(unfencing)
        assert controller.committed.image.is_live(BROKER)
        answered = 0
        while led(controller.committed) < ALONE:
            await controller.submit(AllocateProducerIds(BROKER))
            answered += 1
        assert answered >= ALONE // PART - 1
        assert max(sizes) <= PART

    play(tmp_path, story)


def test_what_is_left_is_decided_also_where_requests_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would ask for it again."""

    async def story(controller: Controller) -> None:
        unfencing = await wait_for_death(controller)
        submitting = asyncio.create_task(controller.submit(unfencing))
        await asyncio.sleep(0)
        monkeypatch.setattr(shell, "EVENTS_WAITING_MAX", 0)
        await submitting
        await until(lambda: led(controller.committed) == ALONE)

    play(tmp_path, story)


def test_a_broker_that_lost_power_registers_after_some_decisions(tmp_path: Path) -> None:
    async def story(controller: Controller) -> None:
        await wait_for_death(controller)
        epoch = controller.committed.image.brokers[BROKER].broker_epoch
        sizes: list[int] = []

        def note(changes: tuple[Change, ...], state: ControllerState) -> None:
            sizes.append(sum(isinstance(change, PartitionChanged) for change in changes))

        controller.subscribe(note)
        event = RegisterBroker(
            registration(BROKER, start_id="anew", previous_broker_epoch=epoch), ""
        )
        await controller.make_way(event)
        assert controller.committed.image.brokers[BROKER].broker_epoch == epoch
        await controller.submit(event)
        assert max(sizes) <= PART
        assert counted_on(controller.committed) == 0
        doubtful = [record.last_known_elr for record in records(controller.committed)]
        assert doubtful == [(BROKER,)] * ALONE

    play(tmp_path, story)


def test_the_next_controller_elects_what_this_one_has_left(tmp_path: Path) -> None:
    async def first(controller: Controller) -> None:
        unfencing = await wait_for_death(controller)
        controller.subscribe(lambda changes, state: controller.end(StoreError("killed")))
        await controller.submit(unfencing)

    async def second(controller: Controller) -> None:
        assert led(controller.committed) == PART
        assert controller.committed.image.is_live(BROKER)
        await controller.submit(RegisterBroker(registration(BROKER), ""))
        await until(lambda: led(controller.committed) == ALONE)

    play(tmp_path, first)
    play(tmp_path, second)
