"""How requests end: with one answer, whatever goes wrong, and never with two."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web

from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.rest import bodies
from fairlead_broker.rest import request as request_module
from fairlead_broker.rest import server as server_module
from fairlead_broker.rest.documents.schema_validation import first_problem
from fairlead_broker.rest.operations import JSON, Answer, Body, Operation
from fairlead_broker.rest.problems import ProblemError
from fairlead_broker.rest.request import RestRequest
from fairlead_broker.rest.server import RestServer
from fairlead_broker.settings import RestAddress
from fairlead_wire.errors import ErrorCode, KafkaError

ERRORS = [
    RuntimeError("a mistake"),
    ProblemError(422, "it makes no sense"),
    KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone"),
]
STATUSES = [500, 422, 404]


@pytest.fixture
def ask(stage: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Serve one operation, and return what a connection to it brings."""

    def act(
        handle: Callable[[RestRequest], Awaitable[web.StreamResponse]], body: bytes = b""
    ) -> bytes:
        answers = {200: Answer("A text.", {"type": "string"}, (JSON,))}
        wanted = Body({JSON: {"type": "object"}}) if body else None
        method = "POST" if body else "GET"
        operation = Operation("try", method, "/try", "Try.", handle, answers, body=wanted)
        monkeypatch.setattr(server_module, "OPERATIONS", (operation,))
        return bytes(stage.run(exchange(stage.broker, method, body)))

    return act


async def exchange(broker: Any, method: str, body: bytes) -> bytes:
    """Send a request on a connection that may be kept, and take all that comes."""
    address = RestAddress("127.0.0.1", 0, "127.0.0.1", 0, (), (), 1_000)
    server = RestServer(broker, address, b"secret", PeerLog())
    host, port = server.bind()
    await server.start()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = f"{method} /try HTTP/1.1\r\nHost: {host}:{port}\r\n"
        if body:
            request += f"Content-Type: {JSON}\r\nContent-Length: {len(body)}\r\n"
        writer.write(request.encode() + b"\r\n" + body)
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            if b"Content-Length" in head:
                length = int(head.lower().partition(b"content-length: ")[2].split()[0])
                found = head + await reader.readexactly(length)
            else:
                found = head + await reader.read()
        return found
    finally:
        writer.close()
        await server.stop(grace_s=1)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_in_the_midst_of_an_answer_cuts_it_off(
    ask: Callable[..., bytes], error: Exception
) -> None:
    async def handle(request: RestRequest) -> web.StreamResponse:
        response = await request.open_stream(JSON)
        await request.write(response, b'"a beg')
        raise error

    found = ask(handle)
    assert found.startswith(b"HTTP/1.1 200 ")
    assert found.endswith(b'"a beg\r\n')
    assert found.count(b"HTTP/1.1") == 1
    assert b"0\r\n\r\n" not in found, "the client takes it for a whole answer"


@pytest.mark.parametrize(("error", "status"), list(zip(ERRORS, STATUSES, strict=True)))
def test_an_error_before_the_answer_is_the_answer(
    ask: Callable[..., bytes], error: Exception, status: int
) -> None:
    async def handle(request: RestRequest) -> web.StreamResponse:
        raise error

    found = ask(handle)
    assert found.startswith(b"HTTP/1.1 %d " % status)
    assert b'"error_code":%d' % status in found


def test_long_lists_that_are_not_taken_have_bounds_together(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "REST_MEMORY_BYTES", 300_000)
    statuses = []

    async def handle(request: RestRequest) -> web.StreamResponse:
        for others, count in ((0, 100), (100_000, 10), (250_000, 1), (250_000, 10)):
            with ExitStack() as held:
                request.hold(others, held)
                before = request._memory.used_bytes
                try:
                    await request.answer_items({}, "data", ["x" * 10_000] * count)
                except ProblemError as error:
                    statuses.append(error.status)
                else:
                    statuses.append(200)
                    counted = request._memory.used_bytes - before
                    assert counted > count * 9_000 - 65_536
                    request._held.close()
        return request.answer({})

    ask(handle)
    assert statuses == [200, 200, 200, 429]


@pytest.mark.parametrize(("numbers", "holds_up"), [(10, True), (20_000, False)])
def test_a_large_document_is_held_against_its_schema_beside_the_loop(
    ask: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, numbers: int, holds_up: bool
) -> None:
    threads = []

    def look(document: Any, schema: Any) -> Any:
        threads.append(threading.get_ident())
        return first_problem(document, schema)

    async def handle(request: RestRequest) -> web.StreamResponse:
        threads.append(threading.get_ident())
        return request.answer(len((await request.document())["numbers"]))

    monkeypatch.setattr(request_module, "first_problem", look)
    body = b'{"numbers":[%b]}' % b",".join([b"1"] * numbers)
    assert ask(handle, body).endswith(b"\r\n\r\n%d" % numbers)
    loop, other = threads
    assert (loop == other) is holds_up
