"""A broker of very many partitions is fenced in parts, between which the controller lives on."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from decision_world import World, creatable, create_topics, registration
from run_controller import play
from waiting import until

from fairlead_controller.controller import Controller
from fairlead_controller.decisions import registration as decisions
from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    FenceBroker,
    FenceReason,
    LeavePartitions,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.registration import fencing_to_divide, parts_max
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_model.cluster import Change, PartitionChanged
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.refusals import RefusedError

DEAD = 1
PART = 2
EXPIRED = FenceReason.SESSION_EXPIRED


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "LEFT_PER_DECISION_MAX", PART)


def records(state: ControllerState) -> Iterator[PartitionRegistration]:
    for topic in sorted(state.image.topics(), key=lambda each: each.name):
        yield from topic.partitions


def in_sync(state: ControllerState) -> int:
    return sum(DEAD in partition.isr for partition in records(state))


def led(state: ControllerState) -> int:
    return sum(partition.leader == DEAD for partition in records(state))


@pytest.fixture
def full_world(world: World) -> World:
    world.create("t", partitions=9, replication_factor=3)
    world.create("alone", partitions=6)
    return world


def test_partitions_that_others_wait_for_go_first(full_world: World) -> None:
    world, epoch = full_world, full_world.epoch(DEAD)
    whole = World(3)
    whole.state = world.state
    whole.fence(DEAD)
    alone = [record.leader for record in world.partitions("alone")]
    shared = sum(record.leader == DEAD for record in world.partitions("t"))
    assert shared == 3 and alone.count(DEAD) == 2
    first = world.decide(LeavePartitions(DEAD, epoch, EXPIRED))
    assert [move.before.leader for move in first.moves] == [DEAD] * PART
    assert all(move.after.has_leader for move in first.moves)
    assert first.reply == {"rest_fits": False}
    assert "2 partitions change leader, 9 come later" in first.explanations[0]
    parts = 0
    while not world.do(LeavePartitions(DEAD, epoch, EXPIRED))["rest_fits"]:
        parts += 1
        assert world.leaders("alone") == alone, "nobody else can lead these, so they can wait"
        assert not world.state.image.brokers[DEAD].fenced
    assert parts + 1 <= parts_max(world.state, DEAD)
    assert len(world.decide(FenceBroker(DEAD, epoch, EXPIRED)).moves) <= PART
    world.fence(DEAD)
    assert list(records(world.state)) == list(records(whole.state)), "the same as all at once"
    assert world.state.image == whole.state.image


def test_only_a_start_that_is_in_service_leaves_in_parts(full_world: World) -> None:
    world, epoch = full_world, full_world.epoch(DEAD)
    fencing = FenceBroker(DEAD, epoch, EXPIRED)
    assert fencing_to_divide(world.state, fencing) is fencing
    assert fencing_to_divide(world.state, FenceBroker(DEAD, epoch + 9, EXPIRED)) is None
    assert fencing_to_divide(world.state, FenceBroker(9, epoch, EXPIRED)) is None
    assert fencing_to_divide(world.state, AllocateProducerIds(DEAD)) is None
    assert fencing_to_divide(world.state, RegisterBroker(registration(DEAD), "")) is None
    anew = RegisterBroker(registration(DEAD, start_id="anew"), "")
    expected = FenceBroker(DEAD, epoch, FenceReason.STARTED_ANEW)
    assert fencing_to_divide(world.state, anew) == expected
    elsewhere = RegisterBroker(registration(DEAD, start_id="anew"), "another cluster")
    assert fencing_to_divide(world.state, elsewhere) is None, "who is refused fences nobody"
    world.fence(DEAD)
    assert fencing_to_divide(world.state, fencing) is None
    assert fencing_to_divide(world.state, anew) is None
    assert world.decide(LeavePartitions(DEAD, epoch, EXPIRED)).changes == ()


def test_who_is_about_to_be_fenced_inherits_nothing(full_world: World) -> None:
    """A rack dies: each of its brokers is in sync where the others lead."""
    world, epoch = full_world, full_world.epoch(DEAD)
    world.do(LeavePartitions(DEAD, epoch, EXPIRED))
    assert not world.state.is_electable(DEAD)
    kept = led(world.state)
    assert kept > 0
    both = [record for record in world.partitions("t") if {0, DEAD} <= set(record.isr)]
    assert any(record.leader == 0 for record in both)
    world.do(LeavePartitions(0, world.epoch(0), EXPIRED))
    world.fence(0)
    assert led(world.state) <= kept, "nothing of it goes to one that is dead, too"
    world.create("new", partitions=3)
    assert DEAD not in world.leaders("new")
    world.fence(DEAD)
    assert world.state.leaving == frozenset()
    world.do(UnfenceBroker(DEAD, epoch))
    assert world.state.is_electable(DEAD)


def test_a_broker_of_few_partitions_leaves_them_at_once(
    full_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = sum(DEAD in partition.replicas for partition in records(full_world.state))
    monkeypatch.setattr(decisions, "LEFT_PER_DECISION_MAX", held)
    fencing = FenceBroker(DEAD, full_world.epoch(DEAD), EXPIRED)
    assert fencing_to_divide(full_world.state, fencing) is None


async def fill(controller: Controller) -> int:
    """Start three brokers and make topics; return the epoch of the one that is to die."""
    epochs = []
    for broker_id in range(3):
        reply = await controller.submit(RegisterBroker(registration(broker_id), ""))
        epochs.append(int(reply["broker_epoch"]))
        await controller.submit(UnfenceBroker(broker_id, epochs[-1]))
    wide = creatable("t", partitions=9, replication_factor=3)
    await controller.submit(create_topics(wide, creatable("alone", partitions=6)))
    return epochs[DEAD]


class Commits:
    """What a controller has published since: how many records each time, and the state then."""

    def __init__(self, controller: Controller) -> None:
        self.sizes: list[int] = []
        self.states: list[ControllerState] = []
        self.calls: dict[int, Callable[[], Any]] = {}
        """What is called at once, by the number of the commit."""
        controller.subscribe(self._on_changes)

    def _on_changes(self, changes: tuple[Change, ...], state: ControllerState) -> None:
        self.sizes.append(sum(isinstance(change, PartitionChanged) for change in changes))
        self.states.append(state)
        self.calls.get(len(self.sizes), lambda: None)()


def test_others_are_answered_between_two_parts(tmp_path: Path) -> None:
    async def story(controller: Controller) -> None:
        epoch = await fill(controller)
        commits = Commits(controller)
        fencing = asyncio.create_task(controller.submit(FenceBroker(DEAD, epoch, EXPIRED)))
        answered = 0
        while not fencing.done():
            await controller.submit(AllocateProducerIds(0))
            answered += not fencing.done()
        assert answered >= 3
        assert await fencing == {}
        assert commits.sizes and max(commits.sizes) <= PART
        assert [state.image.brokers[DEAD].fenced for state in commits.states] == [
            *[False] * (len(commits.states) - 1),
            True,
        ], "the last decision fences, and no other"
        assert led(controller.committed) == 0
        assert in_sync(controller.committed) == 2, "the last ones in sync stay recorded"

    play(tmp_path, story)


def test_a_new_start_is_admitted_once_all_parts_of_the_one_before_are_durable(
    tmp_path: Path,
) -> None:
    async def story(controller: Controller) -> None:
        epoch = await fill(controller)
        commits = Commits(controller)
        anew = registration(DEAD, start_id="anew", is_clean=True, previous_broker_epoch=epoch)
        await controller.make_way(RegisterBroker(anew, ""))
        reply = await controller.submit(RegisterBroker(anew, ""))
        assert max(commits.sizes) <= PART
        known = controller.committed.image.brokers[DEAD]
        assert known.fenced and known.broker_epoch == reply["broker_epoch"] > epoch
        for state in commits.states:
            if state.image.brokers[DEAD].broker_epoch != epoch:
                assert led(state) == 0, "the start before leads nothing by then"
        await controller.submit(UnfenceBroker(DEAD, known.broker_epoch))
        assert led(controller.committed) == 2, "what waited for it"

    play(tmp_path, story)


def test_what_has_begun_ends_though_who_registers_gives_up(tmp_path: Path) -> None:
    """Else a broker that lives would be in service without what only it can lead."""

    async def story(controller: Controller) -> None:
        await fill(controller)
        commits = Commits(controller)
        anew = RegisterBroker(registration(DEAD, start_id="anew"), "")
        registering = asyncio.create_task(controller.make_way(anew))
        commits.calls[1] = registering.cancel
        with pytest.raises(asyncio.CancelledError):
            await registering
        await until(lambda: controller.committed.image.brokers[DEAD].fenced)
        known = controller.committed.image.brokers[DEAD]
        assert known.start_id == registration(DEAD).start_id
        await controller.submit(UnfenceBroker(DEAD, known.broker_epoch))
        assert led(controller.committed) == 2

    play(tmp_path, story)


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("parts", range(1, 6))
def test_the_next_controller_need_not_know_of_parts(
    tmp_path: Path, parts: int, returns: bool
) -> None:
    async def first(controller: Controller) -> None:
        epoch = await fill(controller)
        commits = Commits(controller)
        commits.calls[parts] = lambda: controller.end(StoreError("killed"))
        with pytest.raises(RefusedError, match="the controller is stopping"):
            await controller.submit(FenceBroker(DEAD, epoch, EXPIRED))
        assert len(commits.sizes) == parts, "what it has begun ends with the reign"

    async def second(controller: Controller) -> None:
        state = controller.committed
        known = state.image.brokers[DEAD]
        assert not known.fenced
        assert in_sync(state) == 11 - PART * parts + max(0, parts - 4)
        assert not any(record.problems() for record in records(state))
        if returns:
            reply = await controller.submit(RegisterBroker(registration(DEAD), ""))
            assert reply["broker_epoch"] == known.broker_epoch
            assert led(controller.committed) == max(3 - PART * parts, 0) + 2
        else:
            await controller.submit(FenceBroker(DEAD, known.broker_epoch, EXPIRED))
            assert controller.committed.image.brokers[DEAD].fenced
            assert led(controller.committed) == 0

    play(tmp_path, first)
    play(tmp_path, second)
