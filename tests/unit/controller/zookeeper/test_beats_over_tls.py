"""Candidates hear each other over TLS, and nobody else hears them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from peer_certificates import PeerCertificates
from waiting import until

from fairlead_controller.sessions.door import SessionDoor
from fairlead_controller.sessions.session_tls import OwnSessionTls
from fairlead_controller.zookeeper.beats import BEATS_PATH, Beats, HolderWatch
from fairlead_tls.session_client import tls_options
from fairlead_zookeeper.znodes import CandidateRecord

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def peers(tmp_path: Path) -> PeerCertificates:
    return PeerCertificates(tmp_path / "peers", "Peers")


@asynccontextmanager
async def holder(certificate: Any) -> AsyncIterator[CandidateRecord]:
    """The port of the candidate that holds the epoch."""
    application = web.Application()
    application.router.add_get(BEATS_PATH, Beats(SECRET, is_holder=lambda: True).serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    door = SessionDoor(OwnSessionTls(certificate))
    host, port = await door.listen(runner, "127.0.0.1", 0)
    try:
        yield CandidateRecord("controller-10000", 10_000, host, port, 1)
    finally:
        await door.close()
        await runner.cleanup()


@asynccontextmanager
async def listening(watch: HolderWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_candidate_hears_the_holder(peers: PeerCertificates) -> None:
    async def story() -> None:
        own = peers.follow("CONTROLLER", None, peers.of(None))
        async with holder(own) as record:
            watch = HolderWatch(record, SECRET, own)
            async with listening(watch):
                await until(lambda: watch.sight.heard_ms is not None)

    asyncio.run(story())


def test_a_candidate_does_not_believe_a_broker(
    peers: PeerCertificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def story() -> None:
        async with holder(peers.follow("CONTROLLER", 1, peers.of(1))) as record:
            watch = HolderWatch(record, SECRET, peers.follow("CONTROLLER", None, peers.of(None)))
            async with listening(watch):
                await until(lambda: "not of fairlead://test/controller" in caplog.text)
                assert watch.sight.heard_ms is None

    asyncio.run(story())


def test_a_broker_hears_no_beats(peers: PeerCertificates) -> None:
    async def story() -> None:
        broker = peers.follow("CONTROLLER", 1, peers.of(1))
        async with (
            holder(peers.follow("CONTROLLER", None, peers.of(None))) as record,
            aiohttp.ClientSession() as http,
        ):
            url = f"{record.session_url.replace('ws:', 'wss:')}{BEATS_PATH}"
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await http.ws_connect(url, **tls_options(broker.current))

    asyncio.run(story())
