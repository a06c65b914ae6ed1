"""A broker that stops in good order while controllers come and go."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_broker.session.controller_session import ControllerSession
from fairlead_broker.session.leaving import hand_over
from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import FenceBroker, FenceReason, ShutDownBroker
from fairlead_model.broker import Endpoint
from fairlead_wire.errors import ErrorCode, KafkaError


def leaders_of(node: Any, topic: str) -> set[int]:
    return {partition.leader for partition in node.image.topic(topic).partitions}


async def start_pair(stage: Any) -> tuple[Any, Any]:
    """Start two brokers; the first one leads one of the two partitions that both hold."""
    await stage.start_controller()
    # Whose port refuses is dead for a controller: here somebody listens as long as one is there.
    listening = (Endpoint("INTERNAL", "127.0.0.1", stage.port, is_internal=True),)
    stopping, other = [await stage.start_node(each, endpoints=listening) for each in (0, 1)]
    await stopping.create("t", partitions=2, replication_factor=2)
    assert leaders_of(stopping, "t") == {0, 1}
    return stopping, other


def begin(node: Any, **options: Any) -> "asyncio.Task[None]":
    def leads() -> bool:
        return 0 in leaders_of(node, "t")

    return asyncio.create_task(hand_over(node.session, leads=leads, **options))


def test_the_next_controller_goes_on_where_one_ended_in_the_middle(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Any) -> None:
        stopping, other = await start_pair(stage)
        asked, submit = asyncio.Event(), Controller.submit

        async def hold(controller: Controller, event: Any) -> Any:
            if isinstance(event, ShutDownBroker):
                asked.set()
                await asyncio.Event().wait()
            return await submit(controller, event)

        with monkeypatch.context() as held:
            held.setattr(Controller, "submit", hold)
            leaving = begin(stopping, within_s=50)
            await asked.wait()
            await stage.stop_controller()
            await wait_until(lambda: not stopping.session.is_connected)
        assert not leaving.done()
        await stage.start_controller()
        await leaving
        await wait_until(lambda: leaders_of(other, "t") == {1})
        assert not other.image.brokers[
            0
        ].fenced  # It has not said goodbye yet, and still serves clients.

    play(story)


def test_a_stop_that_begins_between_two_controllers_waits_for_the_next(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        stopping, other = await start_pair(stage)
        await stage.stop_controller()
        await wait_until(lambda: not stopping.session.is_connected)
        leaving = begin(stopping, within_s=50)
        await asyncio.sleep(0)
        assert not leaving.done()
        await stage.start_controller()
        await leaving
        await wait_until(lambda: leaders_of(other, "t") == {1})
        assert not other.image.brokers[0].fenced

    play(story)


def test_without_a_controller_a_stop_ends_when_its_time_is_up(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Any) -> None:
        stopping, _ = await start_pair(stage)
        await stage.stop_controller()
        await wait_until(lambda: not stopping.session.is_connected)
        await begin(stopping, within_s=0.2)
        assert (
            "stopping without a controlled shutdown: REQUEST_TIMED_OUT: no controller"
            in caplog.text
        )

    play(story)


def test_who_leads_nothing_waits_for_no_controller(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        stopping, _ = await start_pair(stage)
        await stage.stop_controller()
        await wait_until(lambda: not stopping.session.is_connected)
        await hand_over(stopping.session, leads=lambda: False, within_s=3600)

    play(story)


def test_a_controller_that_will_not_have_it_is_not_asked_again(
    play: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Any) -> None:
        stopping, _ = await start_pair(stage)

        async def refuse(session: ControllerSession, *_: Any, **__: Any) -> Any:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, "another start is registered")

        with monkeypatch.context() as refusing:
            refusing.setattr(ControllerSession, "call", refuse)
            await begin(stopping, within_s=3600)
        assert "without a controlled shutdown: STALE_BROKER_EPOCH" in caplog.text

    play(story)


def test_a_start_that_is_tried_again_after_its_stop_comes_into_service(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    """A process that has no image yet leaves its start id on the disk, for the next one."""

    async def story(stage: Any) -> None:
        await stage.start_controller()
        stopped = await stage.start_node(0, is_ready=False)
        await hand_over(stopped.session, leads=lambda: False, within_s=50)
        await stopped.session.stop()
        again = stage.node(0)
        await again.session.start()
        await wait_until(lambda: again.is_live(0))
        assert again.session.broker_epoch == stopped.session.broker_epoch

    play(story)


def test_a_broker_that_stops_does_not_ask_for_service_again(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        stopping, other = await start_pair(stage)
        await hand_over(stopping.session, leads=lambda: False, within_s=50)
        epoch = stopping.session.broker_epoch
        await stage.controller.submit(FenceBroker(0, epoch, FenceReason.SESSION_EXPIRED))
        await wait_until(lambda: stopping.image.brokers[0].fenced)
        beats = stopping.session._heartbeat_number
        await wait_until(lambda: stopping.session._heartbeat_number > beats + 3)
        assert other.image.brokers[0].fenced

    play(story)
