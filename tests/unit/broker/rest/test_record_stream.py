"""A stream of records: what is kept of one that is not whole yet is counted, and not for long."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Any

import pytest
from waiting import until

from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.rest import bodies
from fairlead_broker.rest.server import RestServer
from fairlead_broker.rest.v3 import records as records_module
from fairlead_broker.settings import RestAddress

BEGIN = b'{"value":{"type":"STRING","data":"'
END = b'"}}'


class Stream:
    """The connection of a stream, and the server that it goes to."""

    def __init__(
        self, server: RestServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server = server
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))

    @property
    def used_bytes(self) -> int:
        return self.server._memory.used_bytes


@pytest.fixture
def stream(stage: Any) -> Callable[..., Any]:
    stage.topic("t")

    def act(check: Callable[[Stream], Awaitable[Any]]) -> Any:
        async def story() -> Any:
            address = RestAddress("127.0.0.1", 0, "127.0.0.1", 0, (), (), 1_000)
            server = RestServer(stage.broker, address, b"secret", PeerLog())
            host, port = server.bind()
            await server.start()
            reader, writer = await asyncio.open_connection(host, port)
            path = f"/v3/clusters/{stage.broker.cluster_id}/topics/t/records"
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\n\r\n".encode()
            )
            try:
                async with asyncio.timeout(30):
                    return await check(Stream(server, reader, writer))
            finally:
                writer.close()
                await server.stop(grace_s=1)

        return stage.run(story())

    return act


def test_what_is_half_read_counts_until_it_is_written(stream: Callable[..., Any]) -> None:
    async def check(stream: Stream) -> None:
        stream.send(BEGIN + b"x" * 100_000)
        await until(lambda: stream.used_bytes == len(BEGIN) + 100_000)
        stream.send(END)
        await until(lambda: stream.used_bytes == 0)
        assert b'"offset":0' in await stream.reader.readuntil(b"}\n")

    stream(check)


def test_what_is_half_read_has_to_have_room(
    stream: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "REST_MEMORY_BYTES", 50_000)

    async def check(stream: Stream) -> bytes:
        stream.send(BEGIN + b"x" * 100_000)
        return await stream.reader.readuntil(b"\r\n")

    assert stream(check).startswith(b"HTTP/1.1 429 ")


def test_a_large_record_is_not_waited_for_as_long_as_a_stream(
    stream: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "FRAME_DEADLINE_S", 0.3)

    async def small(stream: Stream) -> int:
        stream.send(BEGIN)
        await asyncio.sleep(0.6)
        stream.send(END)
        head = await stream.reader.readuntil(b"}\n")
        report = json.loads(head.rpartition(b"\r\n")[2])
        return int(report["error_code"])

    async def large(stream: Stream) -> bytes:
        stream.send(BEGIN + b"x" * 100_000)
        return await stream.reader.readuntil(b"\r\n")

    assert stream(small) == 200
    assert stream(large).startswith(b"HTTP/1.1 408 ")


def test_a_record_of_numbers_does_not_hold_up_the_loop(stream: Callable[..., Any]) -> None:
    """To read and to write those of a MiB takes a tenth of a second."""
    numbers = b",".join(
        b"1.%020de-%d" % (number * 314_159_265_358_979, 200 + number % 100)
        for number in range(37_000)
    )
    begin = b'{"value":{"type":"JSON","data":['

    async def check(stream: Stream) -> tuple[bytes, float]:
        answer = asyncio.ensure_future(stream.reader.readuntil(b"}\n"))
        stream.send(begin + numbers + b"]}}")
        longest, before = 0.0, thread_time()
        while not answer.done():
            await asyncio.sleep(0)
            now = thread_time()
            longest, before = max(longest, now - before), now
        return answer.result(), longest

    answer, longest = stream(check)
    assert b'"offset":0' in answer
    assert longest < 0.04, f"{longest * 1000:.0f} ms"
