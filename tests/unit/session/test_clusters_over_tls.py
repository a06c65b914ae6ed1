"""Many LogClusters on one port: each with a certificate and authorities of its own, or none."""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from peer_certificates import PeerCertificates
from waiting import until

from fairlead_controller.controller import open_controller
from fairlead_controller.decisions.events import ElectLeaders
from fairlead_controller.kubernetes.cluster_tls import ALLOW_PLAINTEXT, ClusterTls
from fairlead_controller.kubernetes.session_gate import ClusterKey, build_gate
from fairlead_controller.sessions.door import SessionDoor
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.stores.file import open_file_store

SECRET = b"0123456789abcdef0123456789abcdef"
Play = Callable[[Callable[[Any], Any]], None]


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def named(cluster: str, broker_id: int | None) -> list[str]:
    return [
        f"fairlead://{cluster}/" + ("controller" if broker_id is None else f"broker/{broker_id}")
    ]


class Cluster:
    """The authority of one LogCluster, and its Secret."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.peers = PeerCertificates(directory / name.replace("/", "-"), name)
        self.trust = self.peers.ca.read_bytes()

    def secret(self, *, allows_plaintext: bool = False) -> dict[str, Any]:
        pem = self.peers.of(None, uris=named(self.name, None)).read_bytes()
        at = pem.index(b"-----BEGIN PRIVATE KEY")
        data = {"tls.crt": pem[:at], "tls.key": pem[at:], "ca.crt": self.trust}
        annotations = {ALLOW_PLAINTEXT: "true"} if allows_plaintext else {}
        return {
            "metadata": {"annotations": annotations},
            "data": {name: encode(text) for name, text in data.items()},
        }

    def broker(self, broker_id: int) -> Any:
        path = self.peers.of(broker_id, uris=named(self.name, broker_id))
        return self.peers.follow("CONTROLLER", broker_id, path)


class Port:
    """A candidate's port, which reigns over some clusters."""

    def __init__(self, number: int, secrets: dict[ClusterKey, dict[str, Any]]) -> None:
        self.number = number
        self.secrets = secrets
        self.servers: dict[ClusterKey, SessionServer] = {}

    def url(self, cluster: str, scheme: str = "wss") -> str:
        return f"{scheme}://127.0.0.1:{self.number}/{cluster}"


@asynccontextmanager
async def listening(stage: Any, *clusters: str) -> AsyncIterator[Port]:
    secrets: dict[ClusterKey, dict[str, Any]] = {}
    tls = ClusterTls(secrets.get, lambda key: key == ("ns", "lost"))
    gate = build_gate(lambda key: SECRET, tls.problem_of)
    door = SessionDoor(tls)
    runner = web.AppRunner(gate.build_application(), shutdown_timeout=0.1)
    await runner.setup()
    _, number = await door.listen(runner, "127.0.0.1", 0)
    port = Port(number, secrets)
    for cluster in clusters:
        namespace, name = cluster.split("/")
        store = await open_file_store(stage.directory / f"store-{name}")
        stage._stack.push_async_callback(store.close)
        controller = await open_controller(store, now_ms=lambda: 0)
        await stage._stack.enter_async_context(stage_running(controller.run()))
        await controller.submit(ElectLeaders())
        server = port.servers[namespace, name] = SessionServer(controller, SECRET)
        stage._stack.push_async_callback(server.close)
        gate.open((namespace, name), server)
    try:
        yield port
    finally:
        await door.close()
        await runner.cleanup()


@asynccontextmanager
async def stage_running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def register(stage: Any, port: Port, cluster: str, **options: Any) -> Any:
    node = stage.node(
        options.pop("broker_id", 1), urls=[options.pop("url", port.url(cluster))], **options
    )
    await node.session.start()
    return node


def test_each_cluster_has_its_own_certificate_and_authorities(
    play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = Cluster(tmp_path, "ns/a"), Cluster(tmp_path, "ns/b")

    async def story(stage: Any) -> None:
        async with listening(stage, "ns/a", "ns/b", "ns/plain") as port:
            port.secrets.update({("ns", "a"): a.secret(), ("ns", "b"): b.secret()})
            for each in (a, b):
                node = await register(stage, port, each.name, certificate=each.broker(1))
                await node.session.wait_registered(30)
            plain = await register(stage, port, "ns/plain", url=port.url("ns/plain", "ws"))
            await plain.session.wait_registered(30)
            # Of cluster a by SNI and by its certificate, and then another path.
            await register(stage, port, "ns/b", broker_id=2, certificate=a.broker(2))
            await until(lambda: "fairlead://ns/a/broker/2 is none of ns/b" in caplog.text)
            # The names of cluster a, but from the authority of b.
            false = b.peers.follow("CONTROLLER", 3, b.peers.of(3, uris=named("ns/a", 3)))
            await register(stage, port, "ns/a", broker_id=3, certificate=trusting(false, a))
            await until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text)
            # In clear.
            await register(stage, port, "ns/a", broker_id=4, url=port.url("ns/a", "ws"))
            await until(lambda: "brokers of ns/a have to come over TLS" in caplog.text)
            # A cluster that has no certificate.
            nobody = Cluster(tmp_path, "ns/nobody")
            await register(stage, port, "ns/nobody", broker_id=5, certificate=nobody.broker(5))
            await until(lambda: "no certificate for the cluster 'nobody.ns'" in caplog.text)
            assert {key: set(each._sessions) for key, each in port.servers.items()} == {
                ("ns", "a"): {1},
                ("ns", "b"): {1},
                ("ns", "plain"): {1},
            }

    play(story)


def trusting(followed: Any, other: Cluster) -> Any:
    followed.current.client_context.load_verify_locations(cadata=other.trust.decode())
    return followed


def test_a_secret_that_changes_serves_the_next_connection_and_a_bad_one_nobody(
    play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(tmp_path, "ns/a")

    async def story(stage: Any) -> None:
        async with listening(stage, "ns/a") as port:
            port.secrets["ns", "a"] = cluster.secret()
            certificate = cluster.broker(1)
            node = await register(stage, port, "ns/a", certificate=certificate)
            await node.session.wait_registered(30)
            bad = cluster.secret()
            bad["data"]["tls.key"] = encode(b"no key")
            port.secrets["ns", "a"] = bad
            await reconnect(port, node)
            assert "ns/a keeps the certificate it had: Secret ns/a-controller-tls" in caplog.text
            new = Cluster(tmp_path, "ns/new")
            new.name = "ns/a"
            # Trust first, then what it issues, then the old one goes.
            cluster.peers.ca.write_bytes(cluster.trust + new.trust)
            cluster.trust = new.trust = cluster.trust + new.trust
            port.secrets["ns", "a"] = cluster.secret()
            await certificate.look()
            await reconnect(port, node)
            port.secrets["ns", "a"] = new.secret()
            await reconnect(port, node)
            shutil.copy(
                new.peers.of(1, uris=named("ns/a", 1)), cluster.peers.directory / "broker-1.pem"
            )
            await certificate.look()
            await reconnect(port, node)
            new.trust = new.peers.ca.read_bytes()
            port.secrets["ns", "a"] = new.secret()
            await reconnect(port, node)

    play(story)


def test_it_tells_when_the_certificate_ends_that_a_handshake_would_show(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "ns/a")
    secrets: dict[ClusterKey, dict[str, Any]] = {}
    tls = ClusterTls(secrets.get)
    assert tls.find_end(("ns", "a")) is None
    good = cluster.secret()
    shown = x509.load_pem_x509_certificate(base64.b64decode(good["data"]["tls.crt"]))
    spoilt = {"tls.key": encode(b"no key")}, {"ca.crt": encode(cluster.trust.replace(b"A", b"!"))}
    for changed in ({}, *spoilt):
        secrets["ns", "a"] = {**good, "data": {**good["data"], **changed}}
        assert tls.find_end(("ns", "a")) == shown.not_valid_after_utc.timestamp()
    del secrets["ns", "a"]
    assert tls.find_end(("ns", "a")) is None


def test_a_cluster_with_tls_takes_nobody_in_clear_while_its_secret_is_not_seen(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody took the label away by which the candidate finds the Secret."""

    async def story(stage: Any) -> None:
        async with listening(stage, "ns/lost") as port:
            await register(stage, port, "ns/lost", url=port.url("ns/lost", "ws"))
            await until(lambda: "brokers of ns/lost have to come over TLS" in caplog.text)
            assert port.servers["ns", "lost"]._sessions == {}

    play(story)


async def reconnect(port: Port, node: Any) -> None:
    (session,) = port.servers["ns", "a"]._sessions.values()
    session.abort()
    await until(lambda: not node.session.is_connected)
    await until(lambda: node.session.is_connected)


def test_brokers_change_over_while_plaintext_is_allowed(play: Play, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "ns/a")

    async def story(stage: Any) -> None:
        async with listening(stage, "ns/a") as port:
            port.secrets["ns", "a"] = cluster.secret(allows_plaintext=True)
            plain = await register(stage, port, "ns/a", url=port.url("ns/a", "ws"))
            await plain.session.wait_registered(30)
            secure = await register(stage, port, "ns/a", broker_id=2, certificate=cluster.broker(2))
            await secure.session.wait_registered(30)

    play(story)
