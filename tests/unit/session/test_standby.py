"""Brokers and candidates over real sockets: who waits, who is let in, and who is followed."""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from fairlead_broker.session import link
from fairlead_broker.session.controller_session import ControllerSession
from fairlead_broker.session.link import SessionRefusedError
from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import ElectLeaders
from fairlead_controller.kubernetes.session_gate import build_gate
from fairlead_controller.sessions import session_gate
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.stores.file import open_file_store
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.session.refusals import RefusalCode
from fairlead_model.session.session_messages import pack_message

SECRET = b"0123456789abcdef0123456789abcdef"
KEY = ("ns", "c")


class Candidate:
    """A gate on a port, which may take over a store."""

    def __init__(self, port: int = 0) -> None:
        self.secrets: dict[tuple[str, str], bytes] = {KEY: SECRET}
        self.gate = build_gate(self.secrets.get)
        self.port = port
        self.controller: Controller
        self.server: SessionServer
        self._reign = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ns/c"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Candidate"]:
        runner = web.AppRunner(self.gate.build_application(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await self.depose()
            await runner.cleanup()

    async def take_over(self, directory: Path) -> None:
        store = await open_file_store(directory)
        self._reign.push_async_callback(store.close)
        self.controller = await open_controller(store, now_ms=lambda: 0)
        deciding = asyncio.create_task(self.controller.run())
        await self.controller.submit(ElectLeaders())
        self.server = SessionServer(self.controller, SECRET)
        watching = asyncio.create_task(self.server.watch())
        self._reign.push_async_callback(self.server.close)
        self._reign.callback(lambda: (deciding.cancel(), watching.cancel()))
        self._reign.callback(lambda: self.gate.close(KEY))
        self.gate.open(KEY, self.server)

    async def depose(self) -> None:
        await self._reign.aclose()


@asynccontextmanager
async def broker(*candidates: Candidate, secret: bytes = SECRET) -> AsyncIterator[Any]:
    registration = BrokerRegistration(
        0,
        endpoints=(Endpoint("INTERNAL", "127.0.0.1", 1, is_internal=True),),
        host_name="here",
        directory_id="disk",
        start_id="start",
    )
    session = ControllerSession(
        [each.url for each in candidates], secret, registration, lambda delta, image: None
    )
    await session.start()
    try:
        yield session
    finally:
        await session.stop()


def play(story: Any) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(whole())


def test_a_waiting_broker_registers_over_the_socket_that_it_has(
    tmp_path: Path, wait_until: Any
) -> None:
    async def story() -> None:
        async with Candidate().listening() as candidate, broker(candidate) as session:
            await wait_until(lambda: candidate.gate.waiting == 1)
            assert not session.is_connected
            connections: list[Any] = []
            serve = candidate.gate.serve

            async def note_and_serve(request: Any) -> Any:
                connections.append(request)
                return await serve(request)

            candidate.gate.serve = note_and_serve  # type: ignore[method-assign]
            await candidate.take_over(tmp_path)
            await session.wait_registered(30)
            assert session.controller_epoch == 1
            assert candidate.gate.waiting == 0
            assert connections == [], "no other connection was needed"

    play(story)


def test_the_new_controller_is_followed_when_the_old_one_goes(
    tmp_path: Path, wait_until: Any
) -> None:
    async def story() -> None:
        async with (
            Candidate().listening() as first,
            Candidate().listening() as second,
        ):
            await first.take_over(tmp_path)
            async with broker(first, second) as session:
                await session.wait_registered(30)
                await wait_until(lambda: second.gate.waiting == 1)
                await first.depose()
                await second.take_over(tmp_path)
                await wait_until(lambda: session.controller_epoch == 2)
                assert session.broker_epoch == 1, "it is the same incarnation"
                await wait_until(lambda: first.gate.waiting == 1)
                answer = await session.call("allocate_producer_ids", {}, timeout_ms=30_000)
                assert answer["count"] == 1000

    play(story)


def test_an_older_controller_is_not_followed_again(tmp_path: Path, wait_until: Any) -> None:
    async def story() -> None:
        async with Candidate().listening() as old, Candidate().listening() as new:
            (tmp_path / "old").mkdir()
            await old.take_over(tmp_path / "old")
            # Of the same cluster, one reign later.
            shutil.copytree(tmp_path / "old", tmp_path / "new")
            await new.take_over(tmp_path / "new")
            async with broker(new) as session:
                await session.wait_registered(30)
                assert session.controller_epoch == 2
                session.follow_candidates([new.url, old.url])
                await wait_until(lambda: "does not know what this" in str(session._failures))
                assert session.controller_epoch == 2
                assert session.is_connected

    play(story)


def test_candidates_come_and_go_while_the_broker_runs(tmp_path: Path, wait_until: Any) -> None:
    async def story() -> None:
        async with Candidate().listening() as first, Candidate().listening() as second:
            await first.take_over(tmp_path)
            async with broker(first) as session:
                await session.wait_registered(30)
                session.follow_candidates([second.url])
                await wait_until(lambda: second.gate.waiting == 1)
                answer = await session.call("allocate_producer_ids", {}, timeout_ms=30_000)
                assert answer["count"] == 1000, "the link in use stays, listed or not"
                session.follow_candidates([second.url, first.url, first.url])
                session.follow_candidates([second.url])
                await first.depose()
                await second.take_over(tmp_path)
                await wait_until(lambda: session.controller_epoch == 2)
                await wait_until(lambda: list(session._linking) == [second.url])
                assert first.gate.waiting == 0, "nobody connects to a candidate that has left"
            assert not session._linking

    play(story)


def test_a_candidate_that_is_back_while_its_link_is_let_go_gets_another(
    tmp_path: Path, wait_until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Candidate().listening() as first, Candidate().listening() as second:
            await first.take_over(tmp_path)
            async with broker(first, second) as session:
                await session.wait_registered(30)
                await wait_until(lambda: second.gate.waiting == 1)
                closing, is_back = aiohttp.ClientSession.close, asyncio.Event()

                async def close_slowly(http: aiohttp.ClientSession) -> None:
                    session.follow_candidates([first.url, second.url])
                    await closing(http)
                    is_back.set()

                session.follow_candidates([second.url])
                monkeypatch.setattr(aiohttp.ClientSession, "close", close_slowly)
                await first.depose()
                await is_back.wait()
                monkeypatch.setattr(aiohttp.ClientSession, "close", closing)
                await wait_until(lambda: first.gate.waiting == 1)

    play(story)


def test_a_cluster_that_is_not_known_yet_is_tried_again(tmp_path: Path, wait_until: Any) -> None:
    async def story() -> None:
        async with Candidate().listening() as candidate:
            candidate.secrets.clear()
            async with broker(candidate) as session:
                await wait_until(lambda: "503" in str(session._failures))
                assert not session._registered.done(), "that is no reason to give up"
                candidate.secrets[KEY] = SECRET
                await wait_until(lambda: candidate.gate.waiting == 1)
                await candidate.take_over(tmp_path)
                await session.wait_registered(30)

    play(story)


def test_a_standby_refuses_a_wrong_secret() -> None:
    async def story() -> None:
        async with (
            Candidate().listening() as candidate,
            broker(candidate, secret=b"not the secret of it") as session,
        ):
            with pytest.raises(SessionRefusedError, match="secret") as refused:
                await session.wait_registered(30)
            assert refused.value.code == RefusalCode.CLUSTER_AUTHORIZATION_FAILED
            assert candidate.gate.waiting == 0

    play(story)


def test_a_broker_that_goes_leaves_no_trace(wait_until: Any) -> None:
    async def story() -> None:
        async with Candidate().listening() as candidate:
            async with broker(candidate):
                await wait_until(lambda: candidate.gate.waiting == 1)
            await wait_until(lambda: candidate.gate.waiting == 0)

    play(story)


def test_a_broker_that_speaks_out_of_turn_is_dropped(wait_until: Any) -> None:
    async def story() -> None:
        async with Candidate().listening() as candidate, aiohttp.ClientSession() as http:

            class Owner:
                secret = SECRET

            address = f"http://127.0.0.1:{candidate.port}/ns/c/session"
            async with http.ws_connect(address) as socket:
                welcome = await link.Link(Owner(), "")._authenticate(socket)  # type: ignore[arg-type]
                assert not welcome.is_active
                await wait_until(lambda: candidate.gate.waiting == 1)
                await socket.send_bytes(b"\x81\xa4type\xa8register")
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE

    play(story)


def test_a_standby_says_that_it_is_there_and_one_that_does_not_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wait_until: Any
) -> None:
    monkeypatch.setattr(link, "STANDBY_TIMEOUT_MS", 300)
    monkeypatch.setattr(session_gate, "STANDBY_INTERVAL_MS", 20)
    said: list[str] = []

    def note_and_pack(kind: Any) -> Any:
        said.append(kind)
        return pack_message(kind)

    monkeypatch.setattr(session_gate, "pack_message", note_and_pack)

    async def story() -> None:
        async with Candidate().listening() as candidate, broker(candidate) as session:

            async def is_kept() -> bool:
                """For longer than the limit, unless a stall of this process ends the link."""
                session._failures.clear()
                before = len(said)
                await wait_until(lambda: len(said) > before + 30)
                return not session._failures

            await wait_until(is_kept)
            monkeypatch.setattr(session_gate, "STANDBY_INTERVAL_MS", 60_000)
            await wait_until(lambda: "TimeoutError" in str(session._failures))
            await candidate.take_over(tmp_path)
            await session.wait_registered(30)

    play(story)


def test_the_secret_of_a_secret_object() -> None:
    encoded = base64.b64encode(SECRET).decode()

    async def story() -> None:
        from fairlead_controller.kubernetes.watches import Watches
        from fairlead_kube.client import KubeClient
        from fairlead_kube.credentials import Credentials

        client = KubeClient(Credentials("http://127.0.0.1:1", None))
        watches = Watches(client, (), on_clusters=lambda: None, on_machines=lambda: None)
        watches.secrets._objects[("ns", "c-session")] = {"data": {"secret": encoded}}
        watches.secrets._objects[("ns", "short-session")] = {"data": {"secret": "YQ=="}}
        assert watches.find_secret(KEY) == SECRET
        assert watches.find_secret(("ns", "short")) is None
        assert watches.find_secret(("ns", "none")) is None
        await client.close()

    play(story)
