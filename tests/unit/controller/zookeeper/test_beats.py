"""Who takes a place among the listeners to a holder's beats."""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest
from beats_holder import SECRET, holder, listening
from waiting import until

from fairlead_controller.sessions import door as sessions_door
from fairlead_controller.zookeeper import beats
from fairlead_controller.zookeeper.beats import BEATS_PATH, LISTENERS_MAX, HolderWatch
from fairlead_zookeeper.znodes import CandidateRecord

FOR_EVER_S = 600.0


async def watch_in(stack: AsyncExitStack, record: CandidateRecord) -> HolderWatch:
    """Begin to listen to the holder until the stack ends."""
    watch = HolderWatch(record, SECRET, None)
    await stack.enter_async_context(listening(watch))
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
