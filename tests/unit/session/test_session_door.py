"""Peers of the session port that have not proved themselves: what they cost, and whom they hurt."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from connection_flood import flood

from fairlead_controller.sessions import door as session_door
from fairlead_controller.sessions.door import UNPROVED_PER_ADDRESS_MAX
from fairlead_model.session.session_protocol import UNPROVED_BYTES_MAX

UPGRADE = (
    b"GET /session HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@pytest.mark.parametrize(
    ("greeting", "count"),
    [(b"", 0), (b"GET /session HTTP/1.1\r\nHost: ", 0), (UPGRADE, UNPROVED_PER_ADDRESS_MAX + 100)],
    ids=["silent, again and again", "half a request, again and again", "half a handshake"],
)
def test_a_broker_registers_while_strangers_flood_the_port(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    greeting: bytes,
    count: int,
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        first = await stage.start_node(0)
        with flood(f"127.0.0.1:{stage.port}", count, greeting):
            door = stage.server._door
            # Many at least: the first of them may have been there for too long already.
            await wait_until(lambda: door.strangers >= 100)
            second = stage.node(1)
            await second.session.start()
            await second.session.wait_registered(30)
            assert door.strangers <= UNPROVED_PER_ADDRESS_MAX
            await first.create("t", partitions=4)
            assert first.session.is_connected
        assert stage.server.sessions.fencings == {}

    play(story)


def test_a_stranger_sends_little(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        writer.write(b"x" * (UNPROVED_BYTES_MAX + 1))
        assert await ended(reader)
        writer.close()
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(f"{stage.url}/session", max_msg_size=0) as socket,
        ):
            await socket.receive()
            # One message, which the server would keep until it is whole.
            with suppress(ConnectionError):
                await socket.send_bytes(os.urandom(4 << 20))
            assert (await socket.receive()).type in {
                aiohttp.WSMsgType.CLOSED,
                aiohttp.WSMsgType.ERROR,
            }

    play(story)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_a_stranger_stays_for_a_short_time(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_door, "UNPROVED_S", 0.3)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        silent, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        assert await ended(silent)
        writer.close()
        assert stage.server._door.strangers == 0
        assert node.session.is_connected

    play(story)


def test_a_broker_that_has_proved_itself_is_not_bounded(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        topics = [
            {
                "name": f"{'t' * 200}{number}",
                "partitions": 1,
                "replication_factor": -1,
                "assignments": {},
                "configs": {},
            }
            for number in range(300)
        ]
        body = {
            "topics": topics,
            "validate_only": True,
            "default_partitions": 1,
            "default_replication_factor": 1,
        }
        reply = await node.session.call("create_topics", body, timeout_ms=10_000)
        assert {topic["error_code"] for topic in reply["topics"]} == {0}
        assert node.session.is_connected

    play(story)
