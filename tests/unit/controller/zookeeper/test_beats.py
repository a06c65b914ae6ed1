"""Who takes a place among the listeners to a holder's beats."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from waiting import until

from fairlead_controller.sessions import door as sessions_door
from fairlead_controller.sessions.door import SessionDoor
from fairlead_controller.zookeeper import beats
from fairlead_controller.zookeeper.beats import BEATS_PATH, LISTENERS_MAX, Beats, HolderWatch
from fairlead_zookeeper.znodes import CandidateRecord

SECRET = b"0123456789abcdef0123456789abcdef"
FOR_EVER_S = 600.0


@asynccontextmanager
async def holder() -> AsyncIterator[CandidateRecord]:
    application = web.Application()
    application.router.add_get(BEATS_PATH, Beats(SECRET, is_holder=lambda: True).serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    door = SessionDoor()
    host, port = await door.listen(runner, "127.0.0.1", 0)
    try:
        yield CandidateRecord("controller-10000", 10_000, host, port, 1)
    finally:
        await door.close()
        await runner.cleanup()


async def watch_in(stack: AsyncExitStack, record: CandidateRecord) -> HolderWatch:
    """Begin to listen to the holder until the stack ends."""
    watch = HolderWatch(record, SECRET, None)
    task = asyncio.create_task(watch.run())

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
    return watch


def test_strangers_take_no_place_of_a_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "HANDSHAKE_TIMEOUT_S", FOR_EVER_S)
    monkeypatch.setattr(sessions_door, "UNPROVED_S", FOR_EVER_S)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            record = await stack.enter_async_context(holder())
            http = await stack.enter_async_context(aiohttp.ClientSession())
            for _ in range(LISTENERS_MAX):
                socket = await http.ws_connect(f"{record.session_url}{BEATS_PATH}")
                stack.push_async_callback(socket.close)
                await socket.receive()  # The challenge, which nobody answers.
            watch = await watch_in(stack, record)
            await until(lambda: watch.sight.heard_ms is not None)

    asyncio.run(story())


def test_no_more_standbys_listen_than_have_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beats, "LISTENERS_MAX", 2)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            record = await stack.enter_async_context(holder())
            watches = [await watch_in(stack, record) for _ in range(3)]
            await until(lambda: sum(each.sight.heard_ms is not None for each in watches) == 2)
            before = {id(each): each.sight.heard_ms for each in watches}
            heard = [each for each in watches if before[id(each)] is not None]
            await until(lambda: all(each.sight.heard_ms != before[id(each)] for each in heard))
            assert sum(each.sight.heard_ms is not None for each in watches) == 2

    asyncio.run(story())
