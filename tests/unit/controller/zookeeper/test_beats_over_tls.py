"""Candidates hear each other over TLS, and nobody else hears them."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from beats_holder import SECRET, holder, listening
from peer_certificates import PeerCertificates
from waiting import until

from fairlead_controller.zookeeper.beats import BEATS_PATH, HolderWatch
from fairlead_tls.session_client import tls_options


@pytest.fixture
def peers(tmp_path: Path) -> PeerCertificates:
    return PeerCertificates(tmp_path / "peers", "Peers")


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
