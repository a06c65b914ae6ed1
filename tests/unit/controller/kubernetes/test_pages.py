"""Who is shown what: ports for everybody tell little and cheaply, the rest is for the entitled."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from needed_tools import need_ipv6

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import (
    DeclareTopics,
    ElectLeaders,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.kubernetes import ask
from fairlead_controller.kubernetes.admin_api import AdminApi
from fairlead_controller.kubernetes.pages import Pages
from fairlead_controller.local.server import ControllerServer
from fairlead_controller.metrics.local_page import LocalMetrics
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.metrics.recent_page import RecentPage
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.startup_topics import Declarations
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.views.cluster_summary import ClusterSummaries, ClusterSummary
from fairlead_model.session.session_protocol import SESSION_PATH
from fairlead_sockets import http_site

SECRET = b"0123456789abcdef"
KEY = ("ns", "c")


@asynccontextmanager
async def governed(
    directory: Path,
    make_registration: Callable[..., Any],
    make_create: Callable[..., Any],
    make_topic: Callable[..., Any],
) -> AsyncIterator[Controller]:
    """A controller of one broker, with the topic `t` of two partitions."""
    store = await open_file_store(directory)
    controller = await open_controller(store, now_ms=lambda: 7)
    running = asyncio.create_task(controller.run())
    try:
        await controller.submit(ElectLeaders())
        reply = await controller.submit(RegisterBroker(make_registration(0), ""))
        await controller.submit(UnfenceBroker(0, reply["broker_epoch"]))
        await controller.submit(make_create(make_topic("t", partitions=2)))
        yield controller
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


@asynccontextmanager
async def served(pages: Pages) -> AsyncIterator[str]:
    runner = web.AppRunner(pages.build_application())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return answer.status, await answer.text()


def test_the_port_that_everybody_reaches_says_nothing_of_clusters() -> None:
    async def metrics() -> bytes:
        return b"fairlead_lease_held 1.0\n"

    async def story() -> None:
        pages = Pages(role=lambda: "active", problems=list, is_ready=lambda: True, metrics=metrics)
        async with served(pages) as base:
            assert await get(f"{base}/healthz") == (200, '{"status": "ok", "problems": []}')
            assert await get(f"{base}/readyz") == (200, '{"role": "active", "ready": true}')
            assert await get(f"{base}/metrics") == (200, "fairlead_lease_held 1.0\n")
            for path in ("status", "status/ns/c", "status/ns/c/topics/t"):
                assert (await get(f"{base}/{path}"))[0] == 404, path
            for path in ("explain/ns/c", "explain/ns/c/t/0"):
                assert (await get(f"{base}/{path}"))[0] == 404, path

    asyncio.run(story())


def test_who_is_in_the_pod_can_ask_for_all_of_it(
    tmp_path: Path,
    make_registration: Callable[..., Any],
    make_create: Callable[..., Any],
    make_topic: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "run" / "controller.sock"

    def asked(*words: str) -> tuple[int, Any]:
        code = ask.main(["--socket", str(path), *words])
        said = capsys.readouterr()
        return code, json.loads(said.out) if code == 0 else said.err

    async def story() -> None:
        async with governed(
            tmp_path / "data", make_registration, make_create, make_topic
        ) as controller:
            parts = SimpleNamespace(
                controller=controller,
                sessions=SimpleNamespace(refused={}),
                store=SimpleNamespace(is_available=True),
            )
            candidate = SimpleNamespace(
                describe=lambda: {"role": "active"},
                is_active=True,
                find_reign={KEY: SimpleNamespace(parts=parts)}.get,
            )
            api = AdminApi(candidate)
            await api.start(path)
            try:
                await asyncio.to_thread(questions)
            finally:
                await api.stop()

    def questions() -> None:
        assert asked("state") == (0, {"role": "active"})
        _, status = asked("status", "ns/c")
        assert status["partitions"]["partitions"] == 2
        _, topic = asked("topic", "ns/c", "t")
        assert [part["leader"] for part in topic["partitionList"]] == [0, 0]
        _, why = asked("explain", "ns/c", "t", "1")
        assert (why["leader"], why["waitsFor"]) == (0, None)
        _, journal = asked("decisions", "ns/c")
        assert any("broker 0" in each["what"] for each in journal["decisions"])
        assert asked("topic", "ns/c", "none") == (
            1,
            "the controller refused: there is no topic 'none'\n",
        )
        assert asked("status", "ns/other") == (
            1,
            "the controller refused: there is no LogCluster ns/other\n",
        )

    asyncio.run(story())
    code, error = asked("state")
    assert code == 1
    assert f"nobody answers at {path}" in error
    with pytest.raises(SystemExit):
        ask.main(["status", "no-namespace"])


def test_only_this_machine_is_shown_partitions_of_a_controller_without_kubernetes(
    tmp_path: Path,
    make_registration: Callable[..., Any],
    make_create: Callable[..., Any],
    make_topic: Callable[..., Any],
) -> None:
    address = own_address()

    async def story() -> None:
        async with governed(tmp_path, make_registration, make_create, make_topic) as controller:
            declarations = Declarations(controller, DeclareTopics((), 1, 1), expected_brokers=None)
            server = ControllerServer(controller, declarations, secret=SECRET)
            await server.start(host="0.0.0.0", session_port=0, http_port=0)
            try:
                here = f"http://127.0.0.1:{server.http_port}"
                there = f"http://{address}:{server.http_port}"
                for path in ("/status", "/status/topics/t", "/explain", "/explain/t/0"):
                    assert (await get(here + path))[0] == 200, path
                    code, text = await get(there + path)
                    assert code == 403, path
                    assert f"curl {here}{path}" in text
                for path in ("/healthz", "/readyz", "/metrics"):
                    assert (await get(there + path))[0] == 200, path
                # More digits than Python takes for a number.
                assert (await get(f"{here}/explain/t/{'9' * 5000}"))[0] == 404
            finally:
                await server.stop()

    asyncio.run(story())


def test_silent_connections_leave_a_controller_its_descriptors(
    tmp_path: Path,
    make_registration: Callable[..., Any],
    make_create: Callable[..., Any],
    make_topic: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_site, "HTTP_CONNECTIONS_MAX", 5)

    async def story() -> None:
        async with governed(tmp_path, make_registration, make_create, make_topic) as controller:
            declarations = Declarations(controller, DeclareTopics((), 1, 1), expected_brokers=None)
            server = ControllerServer(controller, declarations, secret=SECRET)
            await server.start(host="127.0.0.1", session_port=0, http_port=0)
            try:
                port = server.http_port
                silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
                async with asyncio.timeout(30):
                    for reader, _ in silent[:15]:
                        with suppress(ConnectionError):
                            assert await reader.read() == b"", "closed by the controller"
                assert (await get(f"http://127.0.0.1:{port}/healthz"))[0] == 200
                for _, writer in silent:
                    writer.close()
            finally:
                await server.stop()

    asyncio.run(story())


def test_every_address_of_a_controller_is_one_of_both_families(
    tmp_path: Path,
    make_registration: Callable[..., Any],
    make_create: Callable[..., Any],
    make_topic: Callable[..., Any],
) -> None:
    """A port that the kernel chooses is the same for both."""
    need_ipv6()

    async def story() -> None:
        async with governed(tmp_path, make_registration, make_create, make_topic) as controller:
            declarations = Declarations(controller, DeclareTopics((), 1, 1), expected_brokers=None)
            server = ControllerServer(controller, declarations, secret=SECRET)
            await server.start(host="", session_port=0, http_port=0)
            try:
                for host in ("127.0.0.1", "[::1]"):
                    assert (await get(f"http://{host}:{server.http_port}/status"))[0] == 200, host
                    code, _ = await get(f"http://{host}:{server.session_port}{SESSION_PATH}")
                    assert code == 400, "a session is a WebSocket"
            finally:
                await server.stop()

    asyncio.run(story())


def own_address() -> str:
    """An address of this machine that others could reach; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its own")
        return str(probe.getsockname()[0])


def test_many_scrapes_are_one_look(
    tmp_path: Path,
    make_registration: Callable[..., Any],
    make_create: Callable[..., Any],
    make_topic: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may scrape as often as they like; the controller counts partitions seldom."""
    looks: list[ControllerState] = []
    look = ClusterSummaries.look

    def counted(summaries: ClusterSummaries, state: ControllerState) -> ClusterSummary:
        looks.append(state)
        return look(summaries, state)

    monkeypatch.setattr(ClusterSummaries, "look", counted)

    async def story() -> None:
        async with governed(tmp_path, make_registration, make_create, make_topic) as controller:
            page = LocalMetrics(controller, SessionServer(controller, SECRET), LoopLag())
            texts = await asyncio.gather(*(page.text() for _ in range(100)))
            assert b"kafka_controller_kafkacontroller_globalpartitioncount 2.0" in texts[99]
            assert len(looks) == 1

    asyncio.run(story())


def test_a_page_is_made_anew_once_it_is_old() -> None:
    now_s = 0.0
    made: list[float] = []

    async def make() -> bytes:
        made.append(now_s)
        if now_s == 7.0:
            raise OSError("this time it cannot be made")
        return str(now_s).encode()

    async def story() -> None:
        nonlocal now_s
        page = RecentPage(make, age_s_max=1.0, clock=lambda: now_s)
        assert await page.get() == b"0.0"
        now_s = 1.0
        assert await page.get() == b"0.0"
        now_s = 1.5
        assert await page.get() == b"1.5"
        now_s = 7.0
        with pytest.raises(OSError, match="this time"):
            await page.get()
        now_s = 7.5
        assert await page.get() == b"7.5", "a failure is not kept"

    asyncio.run(story())
    assert made == [0.0, 1.5, 7.0, 7.5]
