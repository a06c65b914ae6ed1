"""Probes and metrics: what they say while a broker starts, serves and stops."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead_broker.http.readiness import Phase, Readiness
from fairlead_broker.http.server import HttpServer
from fairlead_broker.measures.exposition import Exposition, label_set
from fairlead_broker.settings import HttpAddress
from fairlead_sockets import http_site


async def get(server: HttpServer, *paths: str) -> list[tuple[int, str]]:
    port = await server.start(HttpAddress("127.0.0.1", 0))
    try:
        async with aiohttp.ClientSession() as client:
            replies = []
            for path in paths:
                async with client.get(f"http://127.0.0.1:{port}{path}") as reply:
                    replies.append((reply.status, await reply.text()))
            return replies
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("phase", "healthz", "readyz"),
    [
        (Phase.LOADING, 503, 503),
        (Phase.REGISTERING, 200, 503),
        (Phase.SERVING, 200, 200),
        (Phase.STOPPING, 200, 503),
    ],
)
def test_probes_follow_the_phase(phase: Phase, healthz: int, readyz: int) -> None:
    server = HttpServer(Readiness(phase=phase))
    replies = asyncio.run(get(server, "/healthz", "/readyz"))
    assert [status for status, _ in replies] == [healthz, readyz]
    assert {json.loads(body)["state"] for _, body in replies} == {phase.value}


def test_the_address_itself_lists_what_is_there() -> None:
    """`fairlead up` shows it, and terminals make a link of it."""
    ((status, body),) = asyncio.run(get(HttpServer(Readiness()), "/"))
    assert status == 200
    paths = [line.split()[0] for line in body.splitlines() if line.startswith("/")]
    replies = asyncio.run(get(HttpServer(Readiness(phase=Phase.SERVING)), *paths))
    assert {path: status for path, (status, _) in zip(paths, replies, strict=True)} == {
        path: 503 if path == "/load" else 200 for path in paths
    }


def test_silent_connections_make_room_for_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_site, "HTTP_CONNECTIONS_MAX", 5)

    async def act() -> None:
        server = HttpServer(Readiness(phase=Phase.SERVING))
        port = await server.start(HttpAddress("127.0.0.1", 0))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        try:
            url = f"http://127.0.0.1:{port}/readyz"
            async with aiohttp.ClientSession() as client, client.get(url) as reply:
                assert reply.status == 200
            async with asyncio.timeout(30):
                for reader, _ in silent[:3]:
                    with suppress(ConnectionError):
                        assert await reader.read() == b"", "closed by the server"
        finally:
            for _, writer in silent:
                writer.close()
            await server.stop()

    asyncio.run(act())


def test_recovery_shows_its_progress() -> None:
    readiness = Readiness(progress={"logs": 10, "logs_done": 4})
    ((_, body),) = asyncio.run(get(HttpServer(readiness), "/readyz"))
    assert json.loads(body) == {"state": "loading", "logs": 10, "logs_done": 4}


def test_metrics_are_there_before_the_broker_is() -> None:
    ((status, body),) = asyncio.run(get(HttpServer(Readiness()), "/metrics"))
    assert status == 200
    assert "fairlead_ready 0" in body.splitlines()


def test_metrics_of_a_broker(stage: Any) -> None:
    stage.topic("t", partitions=2)
    stage.append("t", b"a", b"b")
    stage.broker.metrics.requests[3] = 7
    stage.broker.metrics.errors["NOT_LEADER_OR_FOLLOWER"] = 2
    server = HttpServer(Readiness(phase=Phase.SERVING))
    server.metrics.broker = stage.broker
    ((_, body),) = stage.run(get(server, "/metrics"))
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert samples[("fairlead_requests_total", "metadata")] == 7
    assert samples[("fairlead_errors_total", "NOT_LEADER_OR_FOLLOWER")] == 2
    assert samples[("fairlead_partitions_led",)] == 2
    assert samples[("fairlead_topic_offsets", "t")] == 2


def test_topics_beyond_the_limit_have_no_metrics_of_their_own(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.http.replica_families.METRIC_TOPICS_MAX", 1)
    stage.topic("a")
    stage.topic("b")
    server = HttpServer(Readiness())
    server.metrics.broker = stage.broker
    ((_, body),) = stage.run(get(server, "/metrics"))
    assert 'fairlead_topic_log_bytes{topic="a"}' in body
    assert 'fairlead_topic_log_bytes{topic="b"}' not in body
    assert 'kafka_server_brokertopicmetrics_bytesin_total{topic="b"}' not in body
    assert "fairlead_partitions 2" in body


def test_labels_cannot_break_out_of_their_quotes() -> None:
    out = Exposition()
    out.family("m", "gauge", "A test.", [(label_set(label='a"b\\c\nd'), 1)])
    ((_, *values),) = [
        (sample.name, *sample.labels.values())
        for family in text_string_to_metric_families(out.text())
        for sample in family.samples
    ]
    assert values == ['a"b\\c\nd']
