"""What a process that was killed has asked for, read late, does not harm the start after it."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_controller.controller import Controller
from fairlead_controller.decisions import registration
from fairlead_controller.decisions.events import RegisterBroker
from fairlead_controller.decisions.tables.regressions import BrokerTestimony
from fairlead_controller.sessions import hearing, server
from fairlead_model.broker import BrokerRegistration


class HeldRegistration:
    """The registration of the start `killed` of broker 0, which waits until it is let on."""

    def __init__(self) -> None:
        self.is_let_on = asyncio.Event()
        self._has_come = asyncio.Event()

    async def reached_by(self, start_id: str) -> None:
        if start_id == "killed":
            self._has_come.set()
            await self.is_let_on.wait()

    async def start_two(self, stage: Any) -> Any:
        """Have the process of `killed` end while its registration waits; return the next start."""
        killed = stage.node(0, start_id="killed")
        await killed.session.start()
        await self._has_come.wait()
        for task in killed.session._tasks():
            task.cancel()
        await asyncio.gather(*killed.session._tasks(), return_exceptions=True)
        return await stage.start_node(0, start_id="second")


def held_after_the_hearing(patch: pytest.MonkeyPatch) -> HeldRegistration:
    """Hold the registration when the controller has heard the brokers, and decides next."""
    held = HeldRegistration()
    hear = hearing.Hearing.hear

    async def hear_late(
        self: hearing.Hearing, asking: BrokerRegistration, testimony: BrokerTestimony
    ) -> None:
        await hear(self, asking, testimony)
        await held.reached_by(asking.start_id)

    patch.setattr(hearing.Hearing, "hear", hear_late)
    return held


def test_a_process_that_was_killed_while_its_controller_heard_others_has_not_started(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the next one, on the same disk, would not be known to hold what was acknowledged."""
    asked: list[str] = []
    hear = hearing.Hearing.hear

    async def note_and_hear(
        self: hearing.Hearing, asking: BrokerRegistration, testimony: BrokerTestimony
    ) -> None:
        asked.append(asking.start_id)
        await hear(self, asking, testimony)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(number) for number in range(2)]
        await stage.stop_controller()
        for node in nodes:
            await node.session.stop()
        monkeypatch.setattr(hearing, "HEARING_S", 30.0)
        monkeypatch.setattr(hearing, "NEWCOMERS_S", 30.0)
        monkeypatch.setattr(hearing.Hearing, "hear", note_and_hear)
        await stage.start_controller()
        killed = stage.node(0, start_id="killed", is_clean=True, previous_broker_epoch=1)
        await killed.session.start()
        await wait_until(lambda: "killed" in asked)
        for task in killed.session._tasks():
            task.cancel()
        second = stage.node(0, start_id="second", is_clean=True, previous_broker_epoch=1)
        await second.session.start()
        await wait_until(lambda: "second" in asked)
        await stage.node(1).session.start()
        await wait_until(lambda: second.is_live(0))
        assert second.image.brokers[0].is_clean

    play(story)


def test_a_registration_that_comes_late_does_not_end_the_start_after_it(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process has been killed, and another one is in service, on the same disk."""
    held = held_after_the_hearing(monkeypatch)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        watcher = await stage.start_node(1)
        second = await held.start_two(stage)
        epoch = second.session.broker_epoch
        held.is_let_on.set()
        await watcher.create("t")
        assert watcher.image.brokers[0].broker_epoch == epoch
        assert watcher.is_live(0)

    play(story)


@pytest.mark.parametrize("left_max", [5_000, 1], ids=["fenced at once", "fenced in parts"])
def test_nor_does_one_whose_connection_seems_to_be_open(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, left_max: int
) -> None:
    """The end of a connection gets lost, where a machine dies or the network drops it."""
    monkeypatch.setattr(registration, "LEFT_PER_DECISION_MAX", left_max)
    held = held_after_the_hearing(monkeypatch)
    monkeypatch.setattr(server, "_is_closed", lambda *_: False)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        watcher = await stage.start_node(1)
        second = await held.start_two(stage)
        epoch = second.session.broker_epoch
        await watcher.create("held", partitions=4)
        held.is_let_on.set()
        for number in range(10):
            await watcher.create(f"t{number}")
        assert watcher.image.brokers[0].broker_epoch == epoch
        assert watcher.is_live(0)
        # The next start is not refused.
        await second.session.stop()
        third = await stage.start_node(0, start_id="third")
        assert third.session.broker_epoch > epoch

    play(story)


@pytest.mark.parametrize("is_known", [True, False], ids=["closed", "not closed yet"])
def test_a_process_that_was_killed_while_the_start_before_it_was_fenced_has_not_started(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """That takes several decisions if it has very many partitions."""
    held = HeldRegistration()
    make_way = Controller.make_way

    async def make_way_late(self: Controller, event: RegisterBroker) -> None:
        await make_way(self, event)
        await held.reached_by(event.registration.start_id)

    monkeypatch.setattr(Controller, "make_way", make_way_late)
    if not is_known:
        monkeypatch.setattr(server, "_is_closed", lambda *_: False)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        watcher, first = await stage.start_node(1), await stage.start_node(0)
        await first.session.stop()
        second = await held.start_two(stage)
        epoch = second.session.broker_epoch
        held.is_let_on.set()
        await watcher.create("t")
        assert watcher.image.brokers[0].broker_epoch == epoch
        assert watcher.is_live(0)

    play(story)


def test_a_start_whose_epoch_was_ended_by_one_that_is_gone_registers_again(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    """That one was killed while its registration was written."""

    async def story(stage: Any) -> None:
        await stage.start_controller()
        watcher, node = await stage.start_node(1), await stage.start_node(0)
        gone = dataclasses.replace(watcher.image.brokers[0], start_id="gone")
        answer = await stage.controller.submit(RegisterBroker(gone, ""))
        epoch = answer["broker_epoch"]
        await wait_until(lambda: node.session.broker_epoch > epoch and watcher.is_live(0))
        assert watcher.image.brokers[0].start_id == "start-0"

    play(story)
