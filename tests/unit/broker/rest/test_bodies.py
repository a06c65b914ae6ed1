"""Bodies over a real connection: bounded in size, time and memory; and others have their turns."""

import asyncio
import gc
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Any

import pytest
from aiohttp import web

from fairlead_broker.rest import bodies
from fairlead_broker.rest.bodies import BodyMemory, BodyReader
from fairlead_broker.rest.problems import ProblemError
from fairlead_broker.rest.slices import Slices
from fairlead_broker.rest.v2.produce import _read

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
Sent = Callable[[asyncio.StreamWriter, asyncio.Event], Awaitable[None]]


def receive(take: Callable[[web.BaseRequest], Awaitable[Any]], send: Sent) -> Any:
    """What `take` makes of a request that `send` writes; it is told when that has begun."""

    async def run() -> Any:
        begun = asyncio.Event()
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            begun.set()
            try:
                outcome.set_result(await take(request))
            except Exception as error:
                outcome.set_exception(error)
            response = web.Response()
            response.force_close()
            return response

        server = web.Server(handle, auto_decompress=False, lingering_time=0)
        listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        sending = asyncio.ensure_future(send(writer, begun))
        try:
            return await asyncio.wait_for(outcome, 30)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            writer.close()
            listening.close()
            await server.shutdown(0)

    return asyncio.run(run())


def whole(data: bytes, head: bytes = b"") -> Sent:
    async def send(writer: asyncio.StreamWriter, _: asyncio.Event) -> None:
        writer.write(HEAD + head + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        await writer.drain()

    return send


def reading(memory: BodyMemory, bytes_max: int) -> Callable[[web.BaseRequest], Awaitable[bytes]]:
    async def take(request: web.BaseRequest) -> bytes:
        reader = BodyReader(request, memory, bytes_max=bytes_max)
        try:
            return await reader.read()
        finally:
            reader.release()

    return take


def refusal(take: Callable[[web.BaseRequest], Awaitable[Any]], send: Sent) -> int:
    with pytest.raises(ProblemError) as caught:
        receive(take, send)
    return caught.value.status


def test_a_body_is_read_and_its_memory_given_back() -> None:
    memory = BodyMemory()
    assert receive(reading(memory, 100_000), whole(b"x" * 50_000)) == b"x" * 50_000
    packed = gzip.compress(b"y" * 90_000)
    unpacked = receive(reading(memory, 100_000), whole(packed, b"Content-Encoding: gzip\r\n"))
    assert unpacked == b"y" * 90_000
    assert memory.used_bytes == 0


def test_gzip_may_have_several_members() -> None:
    members = [b"a" * 50_000, b"", b"b", *([b""] * 5_000), b"c" * 50_000]
    packed = b"".join(map(gzip.compress, members))
    head = b"Content-Encoding: gzip\r\n"
    take = reading(BodyMemory(), 200_000)
    assert receive(take, whole(packed, head)) == b"".join(members)
    assert refusal(reading(BodyMemory(), 100_000), whole(packed, head)) == 413
    assert refusal(take, whole(packed[:-9], head)) == 400
    assert refusal(take, whole(packed + b"\x1f", head)) == 400


@pytest.mark.parametrize("cut", [1, 20, 21, 22, 40, 41])
def test_a_member_may_come_in_two_parts(cut: int) -> None:
    packed = gzip.compress(b"a") + gzip.compress(b"b")

    async def send(writer: asyncio.StreamWriter, begun: asyncio.Event) -> None:
        head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        writer.write(HEAD + head + packed[:cut])
        await begun.wait()
        writer.write(packed[cut:])

    assert receive(reading(BodyMemory(), 100), send) == b"ab"


def test_nothing_follows_what_deflate_has_packed() -> None:
    packed = zlib.compress(b"a")
    head = b"Content-Encoding: deflate\r\n"
    assert receive(reading(BodyMemory(), 100), whole(packed, head)) == b"a"
    for behind in (b"x", packed):
        assert refusal(reading(BodyMemory(), 100), whole(packed + behind, head)) == 400


def test_a_body_is_bounded_packed_and_unpacked() -> None:
    memory = BodyMemory()
    assert refusal(reading(memory, 1000), whole(b"x" * 1001)) == 413
    packed = gzip.compress(b"x" * 1001)
    assert refusal(reading(memory, 1000), whole(packed, b"Content-Encoding: gzip\r\n")) == 413
    assert refusal(reading(memory, 1000), whole(b"x", b"Content-Encoding: br\r\n")) == 415
    for damaged in (packed[:-1], packed + b"x", b"nonsense"):
        take = reading(memory, 100_000)
        assert refusal(take, whole(damaged, b"Content-Encoding: gzip\r\n")) == 400
    assert memory.used_bytes == 0


def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "REST_MEMORY_BYTES", 1000)
    assert refusal(reading(BodyMemory(), 10_000), whole(b"x" * 2000)) == 429


@pytest.mark.parametrize(
    "records",
    [
        b",".join([b"{}"] * 20_000),
        b",".join([b'{"headers":[%b]}' % b",".join([b'{"key":""}'] * 1_000)] * 30),
    ],
    ids=["small records", "headers"],
)
def test_records_count_as_what_they_take_and_not_as_they_came(records: bytes) -> None:
    memory = BodyMemory()
    counted = taken = 0

    async def take(http: web.BaseRequest) -> None:
        nonlocal counted, taken

        class Request:
            slices = Slices()
            body = BodyReader(http, memory, bytes_max=1_000_000)

        before = tracemalloc.get_traced_memory()[0]
        kept = await _read(Request, "JSON", None)  # type: ignore[arg-type]
        gc.collect()
        taken, counted = tracemalloc.get_traced_memory()[0] - before, memory.used_bytes
        assert kept
        Request.body.release()

    tracemalloc.start()
    try:
        receive(take, whole(b'{"records":[%b]}' % records))
    finally:
        tracemalloc.stop()
    assert taken < counted * 1.1
    assert memory.used_bytes == 0


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "FRAME_DEADLINE_S", 0.2)

    async def trickle(writer: asyncio.StreamWriter, _: asyncio.Event) -> None:
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.02)

    assert refusal(reading(BodyMemory(), 10_000), trickle) == 408


def test_chunks_that_are_none_end_no_later_than_a_body_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # aiohttp tells the handler nothing, and answers 400 behind it.
    monkeypatch.setattr(bodies, "FRAME_DEADLINE_S", 0.2)

    async def send(writer: asyncio.StreamWriter, begun: asyncio.Event) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        await begun.wait()
        writer.write(b"5\r\nabcdefgh\r\n")

    assert refusal(reading(BodyMemory(), 10_000), send) == 408


def read_beside_others(body: bytes) -> tuple[int, float]:
    """Read a body of v2; return its records, or the status, and the longest turn of the loop.

    The turn is CPU time between two turns of another task. The body comes packed, so all of it is
    there at once.
    """
    longest = 0.0

    class Request:
        slices = Slices()
        body: Any = None

    async def take(request: web.BaseRequest) -> int:
        nonlocal longest
        Request.body = BodyReader(request, BodyMemory(), bytes_max=20_000_000)
        is_over = False

        async def others() -> None:
            nonlocal longest
            before = thread_time()
            while not is_over:
                await asyncio.sleep(0)
                now = thread_time()
                longest = max(longest, now - before)
                before = now

        other = asyncio.ensure_future(others())
        await asyncio.sleep(0)  # It looks at the clock before there is anything to do.
        try:
            return len(await _read(Request, "JSON", None))  # type: ignore[arg-type]
        except ProblemError as error:
            return error.status
        finally:
            is_over = True
            await other

    # As a broker does at its start: what is there already is not looked at again and again.
    gc.collect()
    gc.freeze()
    try:
        sent = whole(gzip.compress(body), b"Content-Encoding: gzip\r\n")
        return receive(take, sent), longest
    finally:
        gc.unfreeze()


def test_ten_megabytes_leave_others_their_turns() -> None:
    record = json.dumps({"key": "k", "value": {"text": "x" * 60, "numbers": [1, 2, 3]}})
    count = 10_000_000 // len(record)
    body = b'{"records":[' + b",".join([record.encode()] * count) + b"]}"
    records, longest = read_beside_others(body)
    assert records == count
    assert longest < 0.05, f"{longest * 1000:.0f} ms"


def test_numbers_around_the_records_leave_others_their_turns() -> None:
    """To read those of a MiB takes a fifth of a second."""
    numbers = b"1," * 500_000
    status, longest = read_beside_others(b'{"value_schema":[%b1],"records":[{}]}' % numbers)
    assert status == 422
    assert longest < 0.05, f"{longest * 1000:.0f} ms"
