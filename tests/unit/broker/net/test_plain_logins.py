"""Passwords that wait for a thread: what becomes of their logins meanwhile, and of too many."""

import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker
from secure_listener import Certificates, StaticCredentials, security_of, tls_settings

from fairlead_broker.limits import LOGIN_FAILURES_BURST
from fairlead_broker.net.creation_allowance import CreationAllowance
from fairlead_broker.net.server import ServerLimits
from fairlead_broker.security.sasl.exchange import Answer
from fairlead_model.security.scram import ScramMechanism
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest


@pytest.fixture
def credentials() -> StaticCredentials:
    return StaticCredentials(alice="secret", bob="secret")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def live(
    tmp_path: Path, certificates: Certificates, credentials: StaticCredentials
) -> Iterator[LiveBroker]:
    settings = tls_settings(certificates) | {
        "listener.security.protocol.map": "CLIENT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    security = security_of(settings)
    with LiveBroker(tmp_path, ServerLimits(), security=security, credentials=credentials) as broker:
        yield broker


@pytest.fixture
def client(live: LiveBroker, certificates: Certificates) -> Iterator[FrameClient]:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with FrameClient(live.port) as made:
        made.socket = context.wrap_socket(made.socket, server_hostname="localhost")
        yield made


def log_in(client: FrameClient, user: str = "alice", password: str = "secret") -> Any:
    assert client.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
    return client.call(SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), 2)


def spend_failures(live: LiveBroker) -> None:
    """Have so many logins from here failed that the next password is refused unseen."""

    def spend() -> None:
        logins = live.server._logins
        assert logins is not None
        spent = CreationAllowance(per_s=0, burst=LOGIN_FAILURES_BURST, now_s=live.loop.time())
        for _ in range(LOGIN_FAILURES_BURST):
            spent.spend()
        logins._failures["127.0.0.1"] = spent

    live.run(spend)


def test_a_password_that_is_refused_unseen_is_answered_as_a_wrong_one(
    live: LiveBroker, client: FrameClient
) -> None:
    spend_failures(live)
    reply = log_in(client)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()
    assert live.broker.metrics.logins_failed == 1


def test_a_login_that_is_repeated_may_be_refused_unseen_too(
    live: LiveBroker, client: FrameClient
) -> None:
    assert log_in(client).error_code == 0
    spend_failures(live)
    reply = log_in(client, password="other")
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()


def test_a_password_that_was_right_a_moment_ago_is_not_refused_unseen(
    live: LiveBroker, client: FrameClient
) -> None:
    assert log_in(client).error_code == 0
    spend_failures(live)
    assert log_in(client).error_code == 0
    assert client.call(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("password", ["new", None])
def test_a_credential_that_changes_while_its_password_waits_lets_nobody_in(
    live: LiveBroker, client: FrameClient, credentials: StaticCredentials, password: str | None
) -> None:
    """The connection would be found by no later change of that credential."""
    thread = hold_logins(live)
    assert client.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
    client.send(SaslAuthenticateRequest(b"\0alice\0secret"), 2)
    live.eventually(lambda: len(thread.held) == 1)
    live.run(lambda: credentials.set(ScramMechanism.SCRAM_SHA_512, "alice", password))
    thread.let_go()
    _, reply = client.receive(SaslAuthenticateRequest.API_KEY, 2)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()
    assert live.broker.metrics.logins_succeeded == 0


class HeldThread:
    """In place of the thread of logins: works when a test says so."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Answer], Future[Answer]]] = []

    def submit(self, run: Callable[[], Answer]) -> Future[Answer]:
        future: Future[Answer] = Future()
        self.held.append((run, future))
        return future

    def let_go(self) -> None:
        for run, future in self.held:
            future.set_result(run())

    def shutdown(self, **_: bool) -> None:
        """Nothing runs."""


def hold_logins(live: LiveBroker) -> HeldThread:
    thread = HeldThread()
    logins = live.server._logins
    assert logins is not None
    logins._pool = thread  # type: ignore[assignment]
    return thread
