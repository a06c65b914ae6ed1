"""Connections to the HTTP API: whoever comes gets through, and none takes more than its share."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web
from waiting import until

from fairlead_broker.limits import (
    REST_HEAD_FIELD_BYTES_MAX,
    REST_HEAD_FIELDS_MAX,
    REST_HEAD_LINE_BYTES_MAX,
    TOKEN_BYTES_MAX,
)
from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.rest import connections as connections_module
from fairlead_broker.rest import server as server_module
from fairlead_broker.rest.operations import JSON, Answer, Operation
from fairlead_broker.rest.request import RestRequest
from fairlead_broker.rest.server import RestServer
from fairlead_broker.settings import RestAddress

CONNECTIONS_MAX = 6
REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Port:
    """A server with two operations, one of which waits until it is told to answer."""

    def __init__(self, server: RestServer, port: int) -> None:
        self.server = server
        self.port = port
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self) -> Pair:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    @property
    def held(self) -> list[Any]:
        return self.server._http.connections


@pytest.fixture
def serve(stage: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(connections_module, "REST_CONNECTIONS_MAX", CONNECTIONS_MAX)
    monkeypatch.setattr(connections_module, "STRANGERS_MAX", 4)
    monkeypatch.setattr(connections_module, "STRANGERS_PER_IP_MAX", 4)
    answers = {200: Answer("A text.", {"type": "string"}, (JSON,))}

    def act(check: Callable[[Port], Awaitable[None]]) -> None:
        async def story() -> None:
            release = asyncio.Event()

            async def answer(request: RestRequest) -> web.StreamResponse:
                return request.answer("here")

            async def wait(request: RestRequest) -> web.StreamResponse:
                await release.wait()
                return request.answer("here")

            operations = (
                Operation("try", "GET", "/try", "Try.", answer, answers),
                Operation("wait", "GET", "/wait", "Wait.", wait, answers),
            )
            monkeypatch.setattr(server_module, "OPERATIONS", operations)
            address = RestAddress("127.0.0.1", 0, "127.0.0.1", 0, (), (), 1_000)
            server = RestServer(stage.broker, address, b"secret", PeerLog())
            _, port = server.bind()
            await server.start()
            opened = Port(server, port)
            try:
                async with asyncio.timeout(60):
                    await check(opened)
            finally:
                for writer in opened.writers:
                    writer.close()
                release.set()
                await server.stop(grace_s=1)

        stage.run(story())

    return act


async def ask(pair: Pair, path: bytes = b"try", fields: bytes = b"") -> int:
    reader, writer = pair
    writer.write(REQUEST % (path, fields))
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
    return int(head.split()[1])


async def is_closed(pair: Pair) -> bool:
    with suppress(ConnectionError):
        return await pair[0].read() == b""
    return True


def test_silent_connections_lock_nobody_out(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        silent = [await port.open() for _ in range(20)]
        assert await ask(await port.open()) == 200
        for pair in silent[:16]:
            assert await is_closed(pair)
        assert len(port.held) <= CONNECTIONS_MAX

    serve(check)


@pytest.mark.parametrize("sent", [b"", b"GET /try HTTP/1.1\r\nHost: loc"])
def test_who_asks_for_nothing_has_to_go(
    serve: Callable[..., None], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections_module, "REST_KEEPALIVE_S", 1.0)
    monkeypatch.setattr(connections_module, "_SWEEP_S", 0.1)

    async def check(port: Port) -> None:
        known, silent = await port.open(), await port.open()
        assert await ask(known) == 200
        silent[1].write(sent)
        async with asyncio.timeout(10):
            assert await is_closed(silent)
        assert await ask(known) == 200

    serve(check)


def test_the_longest_idle_one_makes_room(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        kept = [await port.open() for _ in range(4)]
        for pair in kept:
            assert await ask(pair) == 200
        kept += [await port.open(), await port.open()]
        for pair in (kept[4], kept[5], kept[0]):
            assert await ask(pair) == 200
        assert await ask(await port.open()) == 200
        assert await is_closed(kept[1])
        assert await ask(kept[0]) == 200

    serve(check)


def test_whoever_is_being_answered_stays(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        for _ in range(CONNECTIONS_MAX):
            _, writer = await port.open()
            writer.write(REQUEST % (b"wait", b""))
            before = port.server._broker.metrics.rest.in_flight
            await until(lambda: port.server._broker.metrics.rest.in_flight > before)  # noqa: B023
        reader, _ = await port.open()
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        assert len(port.held) == CONNECTIONS_MAX

    serve(check)


def test_a_head_without_an_end_is_refused(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        reader, writer = await port.open()
        writer.write(b"GET /try HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(6):
            writer.write(b"X-%d: " % number + b"x" * 8_000 + b"\r\n")
            await asyncio.sleep(0.01)
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")

    serve(check)


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        (b"t" * REST_HEAD_LINE_BYTES_MAX, b"", 414),
        (b"try", b"X: " + b"x" * (REST_HEAD_FIELD_BYTES_MAX + 1) + b"\r\n", 431),
        (b"try", b"x" * REST_HEAD_FIELD_BYTES_MAX + b"x: y\r\n", 431),
        (b"try", b"X: y\r\n" * REST_HEAD_FIELDS_MAX, 431),
        (b"try", b"X: \0\r\n", 400),
    ],
    ids=("line", "header", "name", "headers", "damaged"),
)
def test_a_head_that_is_too_large_is_told_apart_from_a_damaged_one(
    serve: Callable[..., None], path: bytes, fields: bytes, status: int
) -> None:
    async def check(port: Port) -> None:
        assert await ask(await port.open(), path, fields) == status

    serve(check)


def test_a_head_behind_a_request_that_waits_is_bounded(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        pair = await port.open()
        pair[1].write(REQUEST % (b"wait", b"") + b"GET /try HTTP/1.1\r\n")
        for number in range(20):
            pair[1].write(b"X-%d: " % number + b"x" * 8_000 + b"\r\n")
            await asyncio.sleep(0.01)
        assert await is_closed(pair)

    serve(check)


def test_few_requests_wait_behind_another_one(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        _, writer = await port.open()
        writer.write(REQUEST % (b"wait", b"") + 50 * (REQUEST % (b"try", b"X: y\r\n")))
        await until(lambda: len(port.held) == 1 and port.held[0]._messages)
        await asyncio.sleep(0.05)
        assert len(port.held[0]._messages) <= 2

    serve(check)


def test_all_of_many_pipelined_requests_are_answered(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        reader, writer = await port.open()
        writer.write(50 * (REQUEST % (b"try", b"X: y\r\n")))
        for _ in range(50):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(6)

    serve(check)


def test_the_largest_token_and_a_long_query_fit(serve: Callable[..., None]) -> None:
    async def check(port: Port) -> None:
        token = b"Authorization: Bearer " + b"t" * TOKEN_BYTES_MAX + b"\r\n"
        assert await ask(await port.open(), fields=token) == 200
        assert await ask(await port.open(), b"try/" + b"t" * 15_000) == 404

    serve(check)
