"""A listener with TLS: who gets in, as whom, and what strangers can make it hold."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID
from live_broker import DEADLINE_S, FrameClient, LiveBroker
from secure_listener import Certificates, security_of, tls_settings
from waiting import wait_until

from fairlead_broker.authorization import ANONYMOUS, Principal
from fairlead_broker.limits import (
    STRANGER_S,
    STRANGERS_PER_IP_MAX,
)
from fairlead_broker.net import server, tls_peers, tls_transport
from fairlead_broker.net.server import ServerLimits
from fairlead_operator.certificates.authority import issue
from fairlead_tls import handshake_pool
from fairlead_tls.handshake_pool import HANDSHAKE_THREADS
from fairlead_tls.limits import HANDSHAKE_BYTES_MAX
from fairlead_wire.messages.api_versions import ApiVersionsRequest

USER_OF_CN = "RULE:^CN=([^,+]+)$/$1/"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def live_tls(tmp_path: Path, certificates: Certificates) -> Iterator[LiveBroker]:
    security = security_of(tls_settings(certificates))
    with LiveBroker(tmp_path, ServerLimits(), security=security) as broker:
        yield broker


@pytest.fixture
def live_mutual(
    request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates
) -> Iterator[LiveBroker]:
    settings = tls_settings(
        certificates, ssl_client_auth=request.param, ssl_principal_mapping_rules=USER_OF_CN
    )
    with LiveBroker(tmp_path, ServerLimits(), security=security_of(settings)) as broker:
        yield broker


def connect(
    live: LiveBroker, certificates: Certificates, certificate: Path | None = None
) -> FrameClient:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return connect_with(live, context)


def connect_with(live: LiveBroker, context: ssl.SSLContext) -> FrameClient:
    client = FrameClient(live.port)
    try:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    except BaseException:
        client.socket.close()
        raise
    return client


def is_let_in(client: FrameClient) -> bool:
    """Whether a request is answered: with TLS 1.3 the handshake alone says nothing to a client."""
    try:
        return bool(client.call(ApiVersionsRequest(), 0).error_code == 0)
    except (ssl.SSLError, ConnectionError):
        return False


def principal_of_client(live: LiveBroker) -> Principal:
    (connection,) = live.run(lambda: list(live.server.connections))
    return connection.principal


def test_the_strictest_clients_take_certificates_of_our_authority(
    live_tls: LiveBroker, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    # What Python has on by default from 3.13 on.
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    with connect_with(live_tls, context) as client:
        assert is_let_in(client)
        assert principal_of_client(live_tls) == ANONYMOUS


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_two_versions_are_spoken(
    live_tls: LiveBroker, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.minimum_version = context.maximum_version = version
    with connect_with(live_tls, context) as client:
        assert is_let_in(client)


def test_older_versions_are_not(live_tls: LiveBroker, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    # Without this the client's own OpenSSL would not even ask.
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
        connect_with(live_tls, context)


@pytest.mark.parametrize("live_mutual", ["required", "requested"], indirect=True)
def test_a_certificate_names_the_user(live_mutual: LiveBroker, certificates: Certificates) -> None:
    with connect(live_mutual, certificates, certificates.issue("alice", is_client=True)) as client:
        assert is_let_in(client)
        assert principal_of_client(live_mutual) == Principal("User", "alice")


@pytest.mark.parametrize("live_mutual", ["required", "requested"], indirect=True)
def test_who_shows_no_certificate(
    request: pytest.FixtureRequest, live_mutual: LiveBroker, certificates: Certificates
) -> None:
    is_required = "required" in request.node.name
    with connect(live_mutual, certificates) as client:
        assert is_let_in(client) is not is_required
        if not is_required:
            assert principal_of_client(live_mutual) == ANONYMOUS


@pytest.mark.parametrize(
    "kind", ["expired", "other authority", "server only", "self-signed", "of version 2"]
)
@pytest.mark.parametrize("live_mutual", ["required", "requested"], indirect=True)
def test_bad_certificates_are_refused(
    live_mutual: LiveBroker, certificates: Certificates, tmp_path: Path, kind: str
) -> None:
    if kind == "expired":
        path = certificates.expired("alice")
    elif kind == "of version 2":
        path = certificates.of_version_2(certificates.issue("alice", is_client=True))
    elif kind == "other authority":
        path = Certificates(tmp_path / "other").issue("alice", is_client=True)
    elif kind == "self-signed":
        other = Certificates(tmp_path / "self", "alice")
        path = other.write("alice", other.authority)
    else:
        path = make_server_only(certificates)
    with connect(live_mutual, certificates, path) as client:
        assert not is_let_in(client)
    live_mutual.eventually(lambda: live_mutual.broker.metrics.tls_handshakes_failed == 1)


def make_server_only(certificates: Certificates) -> Path:
    """A certificate that is good for servers and for nothing else."""
    pair = issue(certificates.authority, "alice", datetime.now(UTC))
    leaf = x509.load_pem_x509_certificate(pair.certificate)
    builder = x509.CertificateBuilder(
        leaf.issuer,
        leaf.subject,
        leaf.public_key(),
        leaf.serial_number,
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
    ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    key = load_pem_private_key(certificates.authority.key, None)
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path = certificates.directory / "server_only.pem"
    path.write_bytes(signed.public_bytes(Encoding.PEM) + pair.key)
    return path


@pytest.mark.parametrize("live_mutual", ["required"], indirect=True)
def test_a_certificate_that_no_rule_maps_is_refused(
    live_mutual: LiveBroker, certificates: Certificates
) -> None:
    path = certificates.issue("a,b", is_client=True)
    with connect(live_mutual, certificates, path) as client:
        assert not is_let_in(client)


@pytest.mark.parametrize("live_mutual", ["required"], indirect=True)
def test_a_session_that_is_taken_up_again_ends_with_its_certificate(
    live_mutual: LiveBroker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL does not look at the certificate of such a session, and Python cannot forbid them."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificates.issue("alice", is_client=True))
    with connect_with(live_mutual, context) as client:
        assert is_let_in(client)
        assert isinstance(client.socket, ssl.SSLSocket)
        session = client.socket.session
    later = datetime.now(UTC) + timedelta(days=400)
    for now, may_enter in ((datetime.now(UTC), True), (later, False)):
        monkeypatch.setattr(tls_peers, "_now", lambda now=now: now)
        with FrameClient(live_mutual.port) as again:
            again.socket = context.wrap_socket(
                again.socket, server_hostname="localhost", session=session
            )
            assert again.socket.session_reused
            assert is_let_in(again) is may_enter


@pytest.mark.parametrize("live_mutual", ["required"], indirect=True)
def test_a_connection_ends_with_its_certificate(
    live_mutual: LiveBroker, certificates: Certificates
) -> None:
    # Certificates know whole seconds.
    path = certificates.issue("alice", is_client=True, life=timedelta(seconds=4))
    with connect(live_mutual, certificates, path) as client:
        assert is_let_in(client)
        assert client.is_closed_by_peer()


@pytest.mark.parametrize(
    "first", [struct.pack(">ihhih", 10, 18, 0, 1, -1), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x02\0\0\1"]
)
def test_what_is_no_tls_is_shown_out_before_any_memory_is_spent(
    live_tls: LiveBroker, first: bytes
) -> None:
    with FrameClient(live_tls.port) as plain:
        plain.socket.sendall(first)
        assert plain.is_closed_by_peer()


def test_a_handshake_has_only_so_many_bytes(live_tls: LiveBroker) -> None:
    """A record after the other that says it belongs to a ClientHello that never ends."""
    # Less than OpenSSL itself would take.
    body = b"\x01\x01\xff\xff" + bytes(16_000)
    record = b"\x16\x03\x01" + struct.pack(">H", len(body)) + body
    with FrameClient(live_tls.port) as client:
        with contextlib.suppress(ConnectionError):
            for _ in range(HANDSHAKE_BYTES_MAX // len(record) + 2):
                client.socket.sendall(record)
        # Refused, not only given up when its time is over.
        live_tls.eventually(lambda: live_tls.broker.metrics.tls_handshakes_failed == 1)


def test_half_handshakes_push_each_other_out_and_nobody_else(
    live_tls: LiveBroker, certificates: Certificates
) -> None:
    hello = client_hello()
    crowd = []
    try:
        for number in range(STRANGERS_PER_IP_MAX + 20):
            stranger = socket.create_connection(("127.0.0.1", live_tls.port), timeout=DEADLINE_S)
            crowd.append(stranger)
            # Silent, cut off in the middle, or waiting for an answer to what the server has said.
            stranger.sendall((b"", hello[:3], hello[:100], hello)[number % 4])
        live_tls.eventually(lambda: len(live_tls.server.strangers) == STRANGERS_PER_IP_MAX)
        with connect(live_tls, certificates) as client:
            assert is_let_in(client)
        live_tls.pass_seconds(STRANGER_S)
        live_tls.eventually(lambda: len(live_tls.server.connections) == 0)
    finally:
        for stranger in crowd:
            stranger.close()


def test_who_comes_while_handshakes_compute_slowly_waits_in_the_kernel(
    live_tls: LiveBroker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was accepted has little time, and a place that others may take."""
    step, may_go_on, steps = tls_transport._step, threading.Event(), []

    def step_slowly(*arguments: Any) -> Any:
        may_go_on.wait(DEADLINE_S)
        steps.append(arguments)
        return step(*arguments)

    monkeypatch.setattr(tls_transport, "_step", step_slowly)
    monkeypatch.setattr(handshake_pool, "HANDSHAKES_WAITING_MAX", 10)
    monkeypatch.setattr(server, "ACCEPTS_PER_TURN", 4)
    hello, count, crowd = client_hello(), 60, []
    try:
        for _ in range(count):
            crowd.append(socket.create_connection(("127.0.0.1", live_tls.port), DEADLINE_S))
            crowd[-1].sendall(hello)
        live_tls.eventually(lambda: not live_tls.server._handshakes.has_room)
        # Two turns' worth may have come before the first of them was heard.
        accepted = live_tls.run(lambda: len(live_tls.server.connections))
        assert 10 <= accepted <= 10 + 2 * 4
        for connection in live_tls.run(lambda: list(live_tls.server.connections)):
            live_tls.run(partial(connection.close, "it is one of a flood"))
        may_go_on.set()
        with connect(live_tls, certificates) as client:
            assert is_let_in(client)
        # Steps of connections that had closed were not done, but for those under way then.
        assert len(steps) <= count - accepted + HANDSHAKE_THREADS + 2
    finally:
        may_go_on.set()
        for stranger in crowd:
            stranger.close()


def test_a_handshake_that_fails_in_an_unforeseen_way_is_ended_at_once(
    live_tls: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection was left to itself until the time for strangers was over."""

    def fail(*_: Any) -> Any:
        raise RuntimeError("odd")

    monkeypatch.setattr(tls_transport, "_step", fail)
    with FrameClient(live_tls.port) as client:
        client.socket.sendall(client_hello())
        assert client.is_closed_by_peer()
    assert live_tls.broker.metrics.tls_handshakes_failed == 1


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_a_client_that_was_let_in_is_no_stranger(
    live_tls: LiveBroker, certificates: Certificates
) -> None:
    with connect(live_tls, certificates) as client:
        assert is_let_in(client)
        live_tls.pass_seconds(STRANGER_S)
        assert is_let_in(client)


def test_a_new_certificate_serves_new_connections_and_a_bad_one_nobody(
    live_tls: LiveBroker, certificates: Certificates, tmp_path: Path
) -> None:
    def serial() -> int:
        with connect(live_tls, certificates) as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            peer = client.socket.getpeercert()
            assert peer is not None and is_let_in(client)
            return int(str(peer["serialNumber"]), 16)

    first = serial()
    with connect(live_tls, certificates) as old:
        certificates.issue("server")
        wait_until(lambda: serial() != first)
        second = serial()
        assert is_let_in(old)
    metrics = live_tls.broker.metrics
    server = certificates.directory / "server.pem"
    good = server.read_bytes()
    other = Certificates(tmp_path / "other").issue("stranger", hosts=("example.com",))
    for count, bad in enumerate((b"no PEM", other.read_bytes(), expired(certificates)), start=1):
        server.write_bytes(bad)
        live_tls.eventually(partial(lambda count: metrics.certificates_refused == count, count))
        assert serial() == second
    server.write_bytes(good)


def expired(certificates: Certificates) -> bytes:
    then = datetime.now(UTC) - timedelta(days=3)
    pair = issue(certificates.authority, "server", then, life=timedelta(days=1))
    return pair.certificate + pair.key
