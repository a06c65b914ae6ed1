"""How requests end: with one answer, whatever goes wrong, and never with two."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.rest import server as server_module
from fairlead_broker.rest.operations import JSON, Answer, Operation
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

    def act(handle: Callable[[RestRequest], Awaitable[web.StreamResponse]]) -> bytes:
        answers = {200: Answer("A text.", {"type": "string"}, (JSON,))}
        operation = Operation("try", "GET", "/try", "Try.", handle, answers)
        monkeypatch.setattr(server_module, "OPERATIONS", (operation,))
        return bytes(stage.run(exchange(stage.broker)))

    return act


async def exchange(broker: Any) -> bytes:
    """Send a request on a connection that may be kept, and take all that comes."""
    address = RestAddress("127.0.0.1", 0, "127.0.0.1", 0, (), (), 1_000)
    server = RestServer(broker, address, b"secret", PeerLog())
    host, port = server.bind()
    await server.start()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        request = f"GET /try HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
        writer.write(request.encode())
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
