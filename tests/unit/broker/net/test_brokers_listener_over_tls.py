"""The brokers' own listener over TLS: who gets in, and as whom."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from live_broker import SECRET, FrameClient, LiveBroker
from peer_certificates import PeerCertificates
from replica_cluster import ReplicaCluster
from waiting import wait_until

from fairlead_broker.net.server import ServerLimits
from fairlead_broker.peer_check import PeerProofError
from fairlead_broker.tasks.tls_leader_connection import open_tls
from fairlead_model.configs.config_values import BrokerValues
from fairlead_tls.peer_settings import INTERNAL_LISTENER, read_peer_tls
from fairlead_tls.protocol_map import PROTOCOL_MAP
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchRequest, ReplicaState

ME = 0


@pytest.fixture
def peers(tmp_path: Path) -> PeerCertificates:
    return PeerCertificates(tmp_path / "peers", "Peers")


@pytest.fixture
def live(tmp_path: Path, peers: PeerCertificates) -> Iterator[LiveBroker]:
    settings: dict[str, Any] = {
        PROTOCOL_MAP: "INTERNAL:SSL",
        **peers.settings("INTERNAL", peers.of(ME)),
    }
    tls = read_peer_tls(BrokerValues(static=settings), INTERNAL_LISTENER, broker_id=ME)
    with LiveBroker(tmp_path, ServerLimits(), peer_tls=tls) as broker:
        yield broker


def connect(live: LiveBroker, peers: PeerCertificates, path: Path | None) -> FrameClient:
    context = ssl.create_default_context(cafile=str(peers.ca))
    if path is not None:
        context.load_cert_chain(path)
    client = FrameClient(live.internal_port)
    client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
    return client


def test_a_broker_asks_for_its_own_replicas_only(live: LiveBroker, peers: PeerCertificates) -> None:
    live.add_partition("t")
    with connect(live, peers, peers.of(2)) as client:
        client.prove(SECRET)
        for replica_id, code in ((2, 0), (3, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (2, 0)):
            fetch = FetchRequest(replica_state=ReplicaState(replica_id, 1), max_wait_ms=0)
            assert client.call(fetch, 17).error_code == code


def test_the_secret_is_needed_too(live: LiveBroker, peers: PeerCertificates) -> None:
    with connect(live, peers, peers.of(2)) as client, pytest.raises((ConnectionError, EOFError)):
        client.call(FetchRequest(replica_state=ReplicaState(2, 1)), 17)


@pytest.mark.parametrize(
    ("issue", "reason"),
    [
        (lambda peers: None, "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (lambda peers: peers.issue("alice", is_client=True), "fairlead://test/, and has 0"),
        (lambda peers: peers.of(None), "fairlead://test/controller, and only brokers come here"),
        (lambda peers: peers.of(2, uris=["fairlead://x/broker/2"]), "fairlead://test/, and has 0"),
        (lambda peers: peers.expired("broker-2"), "certificate has expired"),
        (lambda peers: PeerCertificates(peers.directory / "x").of(2), "CERTIFICATE_VERIFY_FAILED"),
        (lambda peers: peers.of_version_2(peers.of(2)), "its certificate cannot be read"),
    ],
    ids=[
        "none",
        "of a user",
        "of a controller",
        "of another cluster",
        "over",
        "of another CA",
        "of version 2",
    ],
)
def test_who_is_no_broker_does_not_get_in(
    live: LiveBroker,
    peers: PeerCertificates,
    issue: Callable[[PeerCertificates], Path | None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        connect(live, peers, issue(peers)) as client,
        pytest.raises((ConnectionError, EOFError, ssl.SSLError)),
    ):
        client.prove(SECRET)
    wait_until(lambda: reason in caplog.text)
    with connect(live, peers, peers.of(2)) as client:
        client.prove(SECRET)


def test_plaintext_does_not_get_in(live: LiveBroker, caplog: pytest.LogCaptureFixture) -> None:
    with (
        FrameClient(live.internal_port) as client,
        pytest.raises((ConnectionError, EOFError)),
    ):
        client.prove(SECRET)
    wait_until(lambda: "it speaks Kafka's protocol without TLS" in caplog.text)


@pytest.mark.parametrize(
    ("leader_id", "own", "reason"),
    [
        (ME, 2, None),
        (1, 2, "that of fairlead://test/broker/0, not of fairlead://test/broker/1"),
    ],
    ids=["who was meant", "another broker at that address"],
)
def test_a_broker_knows_whom_it_has_called(
    live: LiveBroker, peers: PeerCertificates, leader_id: int, own: int, reason: str | None
) -> None:
    followed = peers.follow("INTERNAL", own, peers.of(own))

    async def call() -> None:
        connection = await open_tls(
            "127.0.0.1",
            live.internal_port,
            leader_id,
            followed.current,
            client_id="test",
            timeout_s=10,
        )
        await connection.prove(SECRET)
        assert not connection.has_hung_up()
        connection.close()

    if reason is None:
        asyncio.run(call())
        return
    with pytest.raises(PeerProofError, match=reason):
        asyncio.run(call())


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_damaged_reply_ends_a_call_and_keeps_nobody_from_the_next_one(
    live: LiveBroker, peers: PeerCertificates, is_noticed: bool
) -> None:
    """Who sends to many brokers would have sent nothing to those behind this one."""
    followed = peers.follow("INTERNAL", 2, peers.of(2))
    damaged = b"\x17\x03\x03\x00\x20" + bytes(32)

    async def call() -> None:
        connection = await open_tls(
            "127.0.0.1", live.internal_port, ME, followed.current, client_id="test", timeout_s=10
        )
        stream = connection._stream
        stream.incoming.write(damaged)
        if is_noticed:
            connection._on_readable()
        else:
            with pytest.raises(ssl.SSLError):
                stream.tls.read(1)
        connection.send(ApiVersionsRequest("test", "1"), 3)
        assert connection.closed.done()

    asyncio.run(call())


def test_who_calls_by_tls_where_none_is_spoken_is_told(
    tmp_path: Path, peers: PeerCertificates
) -> None:
    followed = peers.follow("INTERNAL", 2, peers.of(2))

    async def call(port: int) -> None:
        await open_tls("127.0.0.1", port, 0, followed.current, client_id="test", timeout_s=10)

    with LiveBroker(tmp_path) as plain, pytest.raises(PeerProofError, match="INTERNAL:SSL"):
        asyncio.run(call(plain.internal_port))


async def fill(cluster: ReplicaCluster, count: int) -> None:
    """Append large and small batches at broker 1, and wait until all have them."""
    for number in range(count):
        end = cluster.append(1, "t", bytes(300_000 if number % 5 == 0 else 10))
        await cluster.until(
            partial(
                lambda end: all(
                    cluster.partition(each, "t").log_end_offset == end for each in cluster.members
                ),
                end,
            )
        )


def test_records_are_replicated_over_tls_while_certificates_change(
    tmp_path: Path, peers: PeerCertificates
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, peers=peers) as cluster:
            cluster.create("t")
            await fill(cluster, 20)
            new = PeerCertificates(peers.directory / "new", "New")
            old_ca = peers.ca.read_bytes()
            peers.ca.write_bytes(old_ca + new.ca.read_bytes())
            await cluster.until(lambda: all(trusts(cluster, each, 2) for each in (1, 2, 3)))
            for broker_id in (1, 2, 3):
                path = peers.directory / f"broker-{broker_id}.pem"
                path.write_bytes(new.of(broker_id).read_bytes())
                await cluster.until(
                    partial(lambda broker_id: issuer(cluster, broker_id) == "New", broker_id)
                )
                await reconnect(cluster)
                await fill(cluster, 3)
            peers.ca.write_bytes(new.ca.read_bytes())
            await cluster.until(lambda: all(trusts(cluster, each, 1) for each in (1, 2, 3)))
            await reconnect(cluster)
            await fill(cluster, 3)
            contents = {cluster.content(each, "t") for each in (1, 2, 3)}
            assert len(contents) == 1
            assert cluster.isr("t") == {1, 2, 3}

    asyncio.run(story())


def followed(cluster: ReplicaCluster, broker_id: int) -> Any:
    certificate = cluster.members[broker_id].broker.peer_certificate
    assert certificate is not None
    return certificate.current


def trusts(cluster: ReplicaCluster, broker_id: int, count: int) -> bool:
    return bool(followed(cluster, broker_id).material.trust.count("BEGIN CERT") == count)


def issuer(cluster: ReplicaCluster, broker_id: int) -> str:
    name = followed(cluster, broker_id).certificate.issuer
    return str(name.rfc4514_string()).removeprefix("CN=")


async def reconnect(cluster: ReplicaCluster) -> None:
    """End all connections between brokers, and wait until followers have come back."""
    server = cluster.members[1].server
    before = list(server.connections)
    for connection in before:
        connection.close("a test")
    await cluster.until(lambda: len(server.connections) >= 2)


def test_a_broker_with_anothers_certificate_follows_nobody(
    tmp_path: Path, peers: PeerCertificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, peers=peers) as cluster:
            cluster.create("t")
            await fill(cluster, 2)
            await cluster.stop(3)
            # Broker 3 has the files of broker 2, and means to be 3 all the same.
            stolen = peers.follow("INTERNAL", 2, peers.of(2))
            peers.of(3)
            member = await cluster.start(3)
            member.broker.peer_certificate = stolen
            for connection in list(cluster.members[1].server.connections):
                connection.close("a test")
            end = cluster.append(1, "t", b"x")
            await cluster.until(lambda: cluster.partition(2, "t").log_end_offset == end)
            await cluster.until(
                lambda: f"error {ErrorCode.CLUSTER_AUTHORIZATION_FAILED:d}" in caplog.text
            )
            assert cluster.partition(3, "t").log_end_offset < end

    caplog.set_level("INFO")
    asyncio.run(story())
