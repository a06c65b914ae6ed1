"""Ports for probes and pages: silent connections take no more than their share."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from waiting import until

from fairlead_sockets import http_site
from fairlead_sockets.http_site import BoundedSite
from fairlead_sockets.listening import bound_port, open_listening_socket

CONNECTIONS_MAX = 5


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_site, "HTTP_CONNECTIONS_MAX", CONNECTIONS_MAX)


async def with_site(act: Callable[[web.AppRunner, int], Awaitable[None]]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="here")

    application = web.Application()
    application.add_routes([web.get("/", answer)])
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    listening = open_listening_socket("127.0.0.1", 0)
    await BoundedSite(runner, listening).start()
    try:
        await act(runner, bound_port(listening))
    finally:
        await runner.cleanup()


async def ask(writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> bytes:
    writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(4)
    return head[:12]


def test_however_many_come_at_once_no_more_than_the_limit_are_held() -> None:
    async def act(runner: web.AppRunner, port: int) -> None:
        silent = await asyncio.gather(
            *(asyncio.open_connection("127.0.0.1", port) for _ in range(100))
        )
        server = runner.server
        assert server is not None
        await until(lambda: len(server.connections) == CONNECTIONS_MAX)
        url = f"http://127.0.0.1:{port}/"
        async with aiohttp.ClientSession() as client, client.get(url) as reply:
            assert reply.status == 200
        for _, writer in silent:
            writer.close()

    asyncio.run(with_site(act))


def test_the_longest_silent_one_goes() -> None:
    async def act(_: web.AppRunner, port: int) -> None:
        async with asyncio.timeout(30):
            both = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
            (old_reader, old_writer), (silent, _writer) = both[:2]
            assert await ask(old_writer, old_reader) == b"HTTP/1.1 200"
            newcomer = await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await silent.readexactly(1)
            assert await ask(old_writer, old_reader) == b"HTTP/1.1 200"
            for _reader, writer in [*both, newcomer]:
                writer.close()

    asyncio.run(with_site(act))
