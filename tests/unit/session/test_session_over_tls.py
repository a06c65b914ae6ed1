"""A session over TLS: each side shows who it is, and nobody is hurt by who does not."""

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from connection_flood import flood
from peer_certificates import CLUSTER, PeerCertificates
from waiting import until

from fairlead_broker.session.link import SessionRefusedError
from fairlead_controller.sessions import door as session_door
from fairlead_tls.engine import TlsEngine
from fairlead_tls.peer_names import PeerName
from fairlead_tls.tls_layer import TlsLayer

Play = Callable[[Callable[[Any], Any]], None]


@pytest.fixture
def peers(tmp_path: Path) -> PeerCertificates:
    return PeerCertificates(tmp_path / "peers", "Peers")


def controller(peers: PeerCertificates, **options: Any) -> Any:
    return peers.follow("CONTROLLER", None, peers.of(None, **options))


def broker(peers: PeerCertificates, broker_id: int, **options: Any) -> Any:
    return peers.follow("CONTROLLER", broker_id, peers.of(broker_id, **options))


def test_a_broker_registers_and_calls_over_tls(play: Play, peers: PeerCertificates) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=controller(peers))
        node = await stage.start_node(2, certificate=broker(peers, 2))
        assert node.session.candidates == (f"wss://127.0.0.1:{stage.port}",)
        # Many records of TLS in one message, both ways.
        answer = await node.create("t", partitions=2000)
        assert answer["topics"][0]["error_code"] == 0
        topic = node.image.topic("t")
        assert topic is not None and len(topic.partitions) == 2000
        await stage.stop_controller()
        await until(lambda: not node.session.is_connected)
        await stage.start_controller(certificate=controller(peers))
        await until(lambda: node.session.is_connected)

    play(story)


def test_a_broker_registers_under_its_own_id_only(play: Play, peers: PeerCertificates) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=controller(peers))
        false = stage.node(3, certificate=broker(peers, 2))
        await false.session.start()
        with pytest.raises(SessionRefusedError, match="not register as broker 3"):
            await false.session.wait_registered(30)
        assert 3 not in stage.controller.committed.image.brokers

    play(story)


def test_a_controller_is_no_broker(play: Play, peers: PeerCertificates) -> None:
    async def story(stage: Any) -> None:
        own = controller(peers)
        await stage.start_controller(certificate=own)
        false = stage.node(3, certificate=own)
        await false.session.start()
        with pytest.raises(SessionRefusedError, match="fairlead://test/controller"):
            await false.session.wait_registered(30)

    play(story)


def expired() -> dict[str, Any]:
    return {"now": datetime.now(UTC) - timedelta(days=2), "life": timedelta(days=1)}


class Shown:
    """A certificate in the hands of somebody who does not check it."""

    def __init__(self, peers: PeerCertificates, path: Path) -> None:
        self.client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client_context.check_hostname = False
        self.client_context.load_verify_locations(peers.ca)
        self.client_context.load_cert_chain(path)
        self.name = PeerName(CLUSTER, 1)
        self.current = self


@pytest.mark.parametrize(
    ("issue", "reason"),
    [
        (lambda peers: peers.issue("alice", is_client=True), "has 0: issue one for this broker"),
        (lambda peers: peers.of(1, uris=["fairlead://other/broker/1"]), "has 0: issue one"),
        (
            lambda peers: peers.of(
                1, uris=["fairlead://test/broker/1", "fairlead://test/broker/2"]
            ),
            "has 2: issue one",
        ),
        (lambda peers: peers.of(1, **expired()), "certificate has expired"),
        (lambda peers: PeerCertificates(peers.directory / "x", "X").of(1), "CERTIFICATE_VERIFY"),
    ],
    ids=["of a user", "of another cluster", "of two brokers", "over", "of another authority"],
)
def test_who_has_another_certificate_does_not_get_in(
    play: Play,
    peers: PeerCertificates,
    issue: Callable[[PeerCertificates], Path],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=controller(peers))
        good = await stage.start_node(0, certificate=broker(peers, 0))
        false = stage.node(1, certificate=Shown(peers, issue(peers)))
        await false.session.start()
        await until(lambda: reason in caplog.text)
        assert "fairlead.controller.sessions=wss://" in caplog.text
        assert 1 not in stage.controller.committed.image.brokers
        assert good.session.is_connected

    play(story)


def test_who_is_no_controller_is_told_nothing(
    play: Play, peers: PeerCertificates, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker does not prove the secret to another broker that sits at the controller's port."""
    caplog.set_level("INFO")

    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=broker(peers, 2))
        node = stage.node(1, certificate=broker(peers, 1))
        await node.session.start()
        await until(lambda: "not of fairlead://test/controller" in caplog.text)
        assert stage.server.sessions.session_count == 0

    play(story)


def test_tls_and_plaintext_do_not_meet(
    play: Play, peers: PeerCertificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=controller(peers))
        plain = stage.node(1)
        await plain.session.start()
        await until(lambda: "it speaks HTTP; brokers come with a certificate" in caplog.text)
        await stage.stop_controller()
        await stage.start_controller()
        secure = stage.node(2, certificate=broker(peers, 2))
        await secure.session.start()
        await until(lambda: "it speaks TLS, and this controller does not" in caplog.text)
        # The plain one is at home here.
        await until(lambda: plain.is_live(1))
        assert not secure.session.is_connected

    play(story)


@pytest.mark.parametrize(
    "greeting",
    [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)],
    ids=["silent", "a header", "half a ClientHello"],
)
def test_half_handshakes_hurt_nobody(play: Play, peers: PeerCertificates, greeting: bytes) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=controller(peers))
        first = await stage.start_node(0, certificate=broker(peers, 0))
        with flood(f"127.0.0.1:{stage.port}", 0, greeting):
            await until(lambda: stage.server._door.strangers >= 100)
            second = stage.node(1, certificate=broker(peers, 1))
            await second.session.start()
            await second.session.wait_registered(20)
            assert stage.server._door.strangers <= session_door.UNPROVED_PER_ADDRESS_MAX
            assert first.session.is_connected
        assert stage.server.sessions.fencings == {}

    play(story)


def whole_hello() -> bytes:
    client = TlsEngine()
    client.begin_client(ssl.create_default_context(), "localhost")
    client.step_handshake()
    return client.outgoing.read()


def test_handshakes_that_compute_slowly_hurt_nobody(
    play: Play, peers: PeerCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those whose connections had been ended already waited before all that came later."""
    step = TlsLayer._do_step

    def step_slowly(layer: Any) -> Any:
        time.sleep(0.005)
        return step(layer)

    monkeypatch.setattr(TlsLayer, "_do_step", step_slowly)

    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=controller(peers))
        door = stage.server._door
        first = await stage.start_node(0, certificate=broker(peers, 0))
        with flood(f"127.0.0.1:{stage.port}", 0, whole_hello()):
            await until(lambda: door.strangers >= 100)
            await until(lambda: not door._handshakes.has_room)
            second = stage.node(1, certificate=broker(peers, 1))
            await second.session.start()
            await second.session.wait_registered(30)
            assert door._handshakes._unfinished <= session_door.UNPROVED_PER_ADDRESS_MAX
            assert first.session.is_connected
        assert stage.server.sessions.fencings == {}

    play(story)


def test_a_handshake_ends_in_time(
    play: Play, peers: PeerCertificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_door, "UNPROVED_S", 0.3)

    async def story(stage: Any) -> None:
        await stage.start_controller(certificate=controller(peers))
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        assert await reader.read() == b""
        writer.close()
        assert stage.server._door.strangers == 0

    play(story)


def test_certificates_and_authorities_change_while_sessions_last(
    play: Play, peers: PeerCertificates
) -> None:
    """The order: trust the new authority everywhere, issue from it, drop the old one."""

    async def story(stage: Any) -> None:
        theirs, own = controller(peers), broker(peers, 0)
        await stage.start_controller(certificate=theirs)
        node = await stage.start_node(0, certificate=own)
        new = PeerCertificates(peers.directory / "new", "New")
        old_ca = peers.ca.read_bytes()

        async def look() -> None:
            await theirs.look()
            await own.look()
            assert node.session.is_connected
            await reconnect(stage, node)

        peers.ca.write_bytes(old_ca + new.ca.read_bytes())
        await look()
        for name, broker_id in (("controller", None), ("broker-0", 0)):
            (peers.directory / f"{name}.pem").write_bytes(new.of(broker_id).read_bytes())
            await look()
        peers.ca.write_bytes(new.ca.read_bytes())
        await look()
        assert {each.current.certificate.issuer for each in (theirs, own)} == {
            own.current.certificate.issuer
        }
        assert "New" in own.current.certificate.issuer.rfc4514_string()

    play(story)


async def reconnect(stage: Any, node: Any) -> None:
    """End the broker's connection, and wait until it has another one."""
    (session,) = stage.server.sessions._sessions.values()
    session.abort()
    await until(lambda: not node.session.is_connected)
    await until(lambda: node.session.is_connected)
