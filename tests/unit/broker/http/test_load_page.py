"""`/load`: what replicas take up, and how busy those are that lead here."""

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

import aiohttp

from fairlead_broker.http.readiness import Phase, Readiness
from fairlead_broker.http.server import HttpServer
from fairlead_broker.settings import HttpAddress
from fairlead_broker.tasks.housekeeping import Housekeeping

if TYPE_CHECKING:
    from concurrent.futures import Executor


async def ask(server: HttpServer) -> tuple[int, Any]:
    port = await server.start(HttpAddress("127.0.0.1", 0))
    try:
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://127.0.0.1:{port}/load") as reply,
        ):
            return reply.status, await reply.json()
    finally:
        await server.stop()


def server_of(stage: Any) -> HttpServer:
    server = HttpServer(Readiness(phase=Phase.SERVING))
    server.metrics.broker = stage.broker
    return server


def sample(stage: Any, seconds: int) -> None:
    stage.clock.advance(seconds * 1000)
    stage.run(Housekeeping(stage.broker, cast("Executor", None)).sample_flows())


def test_nothing_is_told_before_the_logs_are_open() -> None:
    status, body = asyncio.run(ask(HttpServer(Readiness(progress={"logs": 3}))))
    assert (status, body["logs"]) == (503, 3)


def test_replicas_are_told_with_their_bytes_and_what_flows_through_leaders(stage: Any) -> None:
    stage.neighbour(2)
    stage.topic("led", partitions=2)
    stage.topic("followed", replicas=(2, 1), leader=2)
    stage.append("led", b"a" * 1000)
    sizes = [stage.broker.partitions["led", index].log.size for index in (0, 1)]
    sample(stage, 0)
    status, body = stage.run(ask(server_of(stage)))
    assert status == 200
    assert body["topics"] == {
        "followed": [[0, 0]],
        "led": [[0, sizes[0], None, None], [1, sizes[1], None, None]],
    }
    assert body["brokerId"] == 1
    assert 0 < body["freeBytes"] <= body["totalBytes"]
    assert body["copyBytesPerSecond"] == 32 << 20
    flow = stage.broker.partitions["led", 0].flow
    for _ in range(6):
        flow.bytes_in += 70_000
        flow.bytes_out += 140_000
        sample(stage, 10)
    _, body = stage.run(ask(server_of(stage)))
    assert body["topics"]["led"] == [[0, sizes[0], 7000, 14_000], [1, sizes[1], 0, 0]]
    assert json.dumps(body["topics"]["followed"]) == "[[0, 0]]"
