"""A listener whose clients log in: the frames of SASL, in and out of order."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from live_broker import FrameClient, LiveBroker, batch
from scram_client import ScramClient
from secure_listener import StaticCredentials, security_of

from fairlead_broker.authorization import Principal
from fairlead_broker.limits import STRANGER_S, TOKEN_BYTES_MAX
from fairlead_broker.net import sasl_connection
from fairlead_broker.net.sasl_connection import SaslConnection
from fairlead_broker.net.server import ServerLimits
from fairlead_model.security.scram import ScramMechanism
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest

SHA_256, SHA_512 = ScramMechanism
NAMES = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
LATE_S = 1.0
"""How late a client on a busy machine may look for an answer."""
SETTINGS = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(NAMES),
}


@pytest.fixture
def credentials() -> StaticCredentials:
    return StaticCredentials(alice="secret", bob="secret")


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    return SETTINGS | getattr(request, "param", {})


@pytest.fixture
def live(
    tmp_path: Path, credentials: StaticCredentials, settings: dict[str, str]
) -> Iterator[LiveBroker]:
    security = security_of(settings)
    with LiveBroker(tmp_path, ServerLimits(), security=security, credentials=credentials) as broker:
        yield broker


@pytest.fixture
def client(live: LiveBroker) -> Iterator[FrameClient]:
    with FrameClient(live.port) as made:
        yield made


def log_in(
    client: FrameClient,
    user: str = "alice",
    password: str = "secret",
    mechanism: ScramMechanism = SHA_256,
    version: int = 2,
) -> Any:
    """The last reply."""
    scram = ScramClient(mechanism, user, password)
    handshake = client.call(SaslHandshakeRequest(mechanism.sasl_name), 1)
    assert (handshake.error_code, handshake.mechanisms) == (0, NAMES)
    first = client.call(SaslAuthenticateRequest(scram.first), version)
    assert (first.error_code, first.session_lifetime_ms) == (0, 0)
    last = client.call(SaslAuthenticateRequest(scram.last(bytes(first.auth_bytes))), version)
    if not last.error_code:
        assert bytes(last.auth_bytes) == scram.signature
    return last


def principals(live: LiveBroker) -> list[Principal]:
    return live.run(lambda: [each.principal for each in live.server.connections])


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_login(
    live: LiveBroker, client: FrameClient, mechanism: ScramMechanism, version: int
) -> None:
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    assert log_in(client, mechanism=mechanism, version=version).error_code == 0
    assert principals(live) == [Principal("User", "alice")]
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    live.pass_seconds(STRANGER_S)
    assert client.call(ApiVersionsRequest(), 0).error_code == 0


def test_tokens_follow_bare_after_a_handshake_in_version_0(
    live: LiveBroker, client: FrameClient
) -> None:
    assert client.call(SaslHandshakeRequest("SCRAM-SHA-512"), 0).error_code == 0
    scram = ScramClient(SHA_512, "alice", "secret")
    send_bare(client, scram.first)
    send_bare(client, scram.last(client.receive_frame()))
    assert client.receive_frame() == scram.signature
    assert client.call(ApiVersionsRequest(), 0).error_code == 0
    assert principals(live) == [Principal("User", "alice")]


def send_bare(client: FrameClient, token: bytes) -> None:
    client.socket.sendall(struct.pack(">i", len(token)) + token)


@pytest.mark.parametrize("token", [b"", b"x", b"\xff" * 1000])
def test_a_bare_token_that_is_wrong_is_answered_by_the_end(
    client: FrameClient, token: bytes
) -> None:
    assert client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 0).error_code == 0
    send_bare(client, token)
    assert client.is_closed_by_peer()


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret")])
def test_a_login_that_fails_is_answered_late_and_in_the_same_words(
    live: LiveBroker, client: FrameClient, user: str, password: str
) -> None:
    reply = log_in(client, user, password)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply.error_message == (
        "Authentication failed: the credentials are not those of a user."
    )
    assert client.is_closed_by_peer()
    assert live.broker.metrics.logins_failed == 1


def test_a_login_that_fails_has_its_answer_well_before_the_end_and_nothing_else(
    live: LiveBroker, client: FrameClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    linger_s = 2.0
    monkeypatch.setattr(sasl_connection, "REFUSED_LOGIN_LINGER_S", linger_s)
    log_in(client, "alice", "wrong")
    answered_s = time.monotonic()
    client.send(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    # An end that leaves something unread is a reset.
    with pytest.raises(ConnectionResetError):
        client.socket.recv(1)
    assert time.monotonic() - answered_s > linger_s / 2
    assert live.broker.metrics.logins_failed == 1


def test_a_client_that_looks_late_finds_the_answer_to_its_failed_login_without_the_end(
    client: FrameClient,
) -> None:
    """kafka-python takes an answer that comes together with the end for no answer."""
    began_s = time.monotonic()
    assert log_in(client, "alice", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.socket.recv(1) == b""
    assert time.monotonic() - began_s > LATE_S


def test_who_fails_to_log_in_and_hangs_up_is_gone_at_once(
    live: LiveBroker, client: FrameClient
) -> None:
    log_in(client, "alice", "wrong")
    client.socket.shutdown(socket.SHUT_WR)
    live.pass_seconds(1)
    assert live.run(lambda: len(live.server.connections)) == 0


def test_a_mechanism_that_is_not_enabled(client: FrameClient) -> None:
    reply = client.call(SaslHandshakeRequest("PLAIN"), 1)
    assert reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert reply.mechanisms == NAMES
    assert client.is_closed_by_peer()


def handshake(client: FrameClient) -> None:
    assert client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1).error_code == 0


def ask_versions(client: FrameClient) -> None:
    assert client.call(ApiVersionsRequest(), 0).error_code == 0


def nothing(client: FrameClient) -> None:
    """Say nothing before."""


@pytest.mark.parametrize(
    ("before", "request_", "version"),
    [
        (nothing, FetchRequest(), 12),
        (nothing, SaslAuthenticateRequest(b"n,,n=alice,r=x"), 2),
        (ask_versions, ApiVersionsRequest(), 0),
        (ask_versions, FetchRequest(), 12),
        (handshake, ApiVersionsRequest(), 0),
        (handshake, SaslHandshakeRequest("SCRAM-SHA-256"), 1),
        (handshake, FetchRequest(), 12),
    ],
)
def test_requests_out_of_order_end_the_connection(
    live: LiveBroker,
    client: FrameClient,
    before: Callable[[FrameClient], None],
    request_: Any,
    version: int,
) -> None:
    """R31."""
    before(client)
    client.send(request_, version)
    # Whatever follows in the same breath is not looked at.
    client.send(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    assert client.is_closed_by_peer()
    assert live.broker.metrics.logins_succeeded == 0


def test_versions_may_be_asked_again_after_one_that_is_not_known(client: FrameClient) -> None:
    frame = struct.pack(">hhih", 18, 99, 7, -1)
    for _ in range(3):
        client.socket.sendall(struct.pack(">i", len(frame)) + frame)
        assert client.receive_frame()[:6] == struct.pack(">ih", 7, ErrorCode.UNSUPPORTED_VERSION)
    ask_versions(client)
    assert log_in(client).error_code == 0


@pytest.mark.parametrize("size", [-1, 1 << 17, 1 << 26, 2**31 - 1])
def test_frames_are_small_until_the_login(client: FrameClient, size: int) -> None:
    client.socket.sendall(struct.pack(">i", size) + b"\0\x11\0\1")
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_message_that_no_login_needs_is_not_looked_at(
    live: LiveBroker, client: FrameClient, is_repeated: bool
) -> None:
    """64 KiB of commas held up the broker for 16 ms, the frame of somebody known for seconds."""
    if is_repeated:
        assert log_in(client).error_code == 0
    handshake(client)
    padded = ScramClient(SHA_256, "alice", "secret").first + b"," * TOKEN_BYTES_MAX
    reply = client.call(SaslAuthenticateRequest(padded), 2)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()
    assert live.broker.metrics.logins_failed == 1


def test_sasl_where_none_is_due(client: FrameClient) -> None:
    assert log_in(client).error_code == 0
    reply = client.call(SaslAuthenticateRequest(b"n,,n=alice,r=x"), 2)
    assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
    ask_versions(client)


def test_sasl_on_a_listener_without_it(tmp_path: Path) -> None:
    with LiveBroker(tmp_path) as live, FrameClient(live.port) as client:
        for request, version in (
            (SaslHandshakeRequest("PLAIN"), 1),
            (SaslAuthenticateRequest(b"x"), 2),
        ):
            assert client.call(request, version).error_code == ErrorCode.ILLEGAL_SASL_STATE
        ask_versions(client)


def test_a_login_is_repeated_but_not_within_a_second(
    live: LiveBroker, client: FrameClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SaslConnection, "_now_ms", lambda _: 5)
    assert log_in(client).error_code == 0
    assert log_in(client).error_code == 0
    reply = client.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    assert reply.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert principals(live) == [Principal("User", "alice")]


def test_a_connection_cannot_change_its_user(live: LiveBroker, client: FrameClient) -> None:
    assert log_in(client).error_code == 0
    reply = log_in(client, "bob")
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()


def test_a_login_is_repeated_by_the_same_mechanism(client: FrameClient) -> None:
    assert log_in(client).error_code == 0
    assert client.call(SaslHandshakeRequest("SCRAM-SHA-512"), 1).error_code == 0
    first = ScramClient(SHA_512, "alice", "secret").first
    reply = client.call(SaslAuthenticateRequest(first), 2)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()


@pytest.mark.parametrize(
    "settings",
    [
        {"connections.max.reauth.ms": "1500"},
        {"listener.name.client.scram-sha-256.connections.max.reauth.ms": "1500"},
    ],
    indirect=True,
)
def test_a_login_that_is_not_repeated_ends(client: FrameClient) -> None:
    assert log_in(client).session_lifetime_ms == 1500
    ask_versions(client)
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("settings", [{"connections.max.reauth.ms": "2500"}], indirect=True)
def test_a_login_that_ends_while_a_quota_holds_its_client_back_may_be_repeated_then(
    live: LiveBroker, client: FrameClient
) -> None:
    live.add_partition("t")
    live.set_quotas({(("user", "alice"),): {"producer_byte_rate": 70_000.0}})
    log_in(client)
    data = [PartitionProduceData(0, batch(b"v" * 1_080_000))]
    produced = client.call(
        ProduceRequest(None, 1, 5000, [TopicProduceData("t", partition_data=data)]), 9
    )
    assert 3500 < produced.throttle_time_ms < 6000
    assert log_in(client).session_lifetime_ms == 2500
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("settings", [{"connections.max.reauth.ms": "1500"}], indirect=True)
@pytest.mark.parametrize("is_repeated", [True, False])
def test_a_login_that_is_over_is_not_served_for_long_where_its_quota_is_lifted(
    live: LiveBroker, client: FrameClient, is_repeated: bool
) -> None:
    live.add_partition("t")
    live.set_quotas({(("user", "alice"),): {"producer_byte_rate": 1.0}})
    log_in(client)
    data = [PartitionProduceData(0, batch(b"v" * 100_000))]
    client.call(ProduceRequest(None, 1, 5000, [TopicProduceData("t", partition_data=data)]), 9)
    (connection,) = live.server.connections
    assert isinstance(connection, SaslConnection)

    def is_over() -> bool:
        timer = connection._timer
        return timer is not None and timer.when() > live.loop.time() + 60

    live.eventually(is_over)
    live.set_quotas({})
    ask_versions(client)
    if is_repeated:
        assert log_in(client).session_lifetime_ms == 1500
    assert client.is_closed_by_peer()


def fetch_that_waits(wait_ms: int) -> FetchRequest:
    topics = [FetchTopic("t", partitions=[FetchPartition(0, partition_max_bytes=1_000_000)])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=topics)


@pytest.mark.parametrize("settings", [{"connections.max.reauth.ms": "1500"}], indirect=True)
def test_a_login_that_ends_while_a_request_waits_may_be_repeated_after_its_answer(
    live: LiveBroker, client: FrameClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client cannot repeat it before: answers come in the order of requests."""
    monkeypatch.setattr(sasl_connection, "LOGIN_AFTER_WAIT_S", 5.0)
    live.add_partition("t")
    log_in(client)
    client.send(fetch_that_waits(2_500), 12)
    _, answer = client.receive(FetchRequest.API_KEY, 12)
    assert answer.responses[0].partitions[0].error_code == 0
    assert log_in(client).session_lifetime_ms == 1500
    client.send(fetch_that_waits(2_500), 12)
    client.receive(FetchRequest.API_KEY, 12)
    assert client.is_closed_by_peer(), "the login is not repeated"


@pytest.mark.parametrize("settings", [{"connections.max.reauth.ms": "1500"}], indirect=True)
def test_nothing_else_is_asked_under_a_login_that_is_over(
    live: LiveBroker, client: FrameClient
) -> None:
    live.add_partition("t")
    log_in(client)
    client.send(fetch_that_waits(60_000), 12)
    (connection,) = live.server.connections
    assert isinstance(connection, SaslConnection)
    live.eventually(lambda: connection._timer is None)
    client.send(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    live.eventually(lambda: len(connection._slots) == 2)
    client.send(fetch_that_waits(0), 12)
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("settings", [{"connections.max.reauth.ms": "1500"}], indirect=True)
def test_version_0_is_not_told_how_long_a_login_holds_and_cut_off_all_the_same(
    client: FrameClient,
) -> None:
    assert log_in(client, version=0).session_lifetime_ms == 0
    assert client.is_closed_by_peer()


def test_connections_end_when_what_let_them_in_changes(
    live: LiveBroker, client: FrameClient, credentials: StaticCredentials
) -> None:
    assert log_in(client).error_code == 0
    with FrameClient(live.port) as other, FrameClient(live.port) as of_bob:
        assert log_in(other, mechanism=SHA_512).error_code == 0
        assert log_in(of_bob, "bob").error_code == 0
        live.run(lambda: credentials.set(SHA_256, "alice", "new"))
        assert client.is_closed_by_peer()
        ask_versions(other)
        live.run(lambda: credentials.set(SHA_512, "alice", None))
        assert other.is_closed_by_peer()
        ask_versions(of_bob)


def test_quotas_hold_nobody_back_until_the_login(live: LiveBroker, client: FrameClient) -> None:
    """Strangers would use up what all of them share, and hold up everybody's login."""
    live.set_quotas({(("user", None),): {"request_percentage": 1e-6}})
    with FrameClient(live.port) as stranger:
        assert stranger.call(ApiVersionsRequest(), 1).throttle_time_ms == 0
        assert client.call(ApiVersionsRequest(), 1).throttle_time_ms == 0
        live.set_quotas({(("user", None),): {"request_percentage": 1e-7}})
        assert log_in(client).error_code == 0
        assert client.call(ApiVersionsRequest(), 1).throttle_time_ms > 0
        assert set(live.broker.metrics.throttles) == {"request"}
    meters = live.run(lambda: set(live.quotas._meters))
    assert {cast("tuple[Any, Any]", each)[1] for each in meters} == {("alice", None)}


def test_who_does_not_log_in_has_to_go(live: LiveBroker, client: FrameClient) -> None:
    ask_versions(client)
    live.pass_seconds(STRANGER_S)
    assert client.is_closed_by_peer()
