"""Tokens over SASL: those that are refused count among the failed logins of an address."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker
from secure_listener import Certificates, StaticCredentials, security_of, tls_settings
from tokens import AUDIENCE, ISSUER, TokenIssuer

from fairlead_broker.limits import LOGIN_FAILURES_BURST
from fairlead_broker.net.creation_allowance import CreationAllowance
from fairlead_broker.net.server import ServerLimits
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest

KEYS = "keys.json"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    return TokenIssuer()


@pytest.fixture
def live(tmp_path: Path, certificates: Certificates, issuer: TokenIssuer) -> Iterator[LiveBroker]:
    settings = tls_settings(certificates) | {
        "listener.security.protocol.map": "CLIENT:SASL_SSL",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path / KEYS),
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with LiveBroker(
        tmp_path, ServerLimits(), security=security_of(settings), credentials=StaticCredentials()
    ) as broker:
        logins = broker.server._logins
        assert logins is not None
        (reader,) = logins._readers.values()
        broker.eventually(lambda: bool(reader.keys))
        yield broker


def log_in(live: LiveBroker, certificates: Certificates, token: str) -> Any:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with FrameClient(live.port) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        assert client.call(SaslHandshakeRequest("OAUTHBEARER"), 1).error_code == 0
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        return client.call(SaslAuthenticateRequest(message), 2)


def keys_of(live: LiveBroker) -> set[str | int]:
    logins = live.server._logins
    assert logins is not None
    (reader,) = logins._readers.values()
    return set(reader.keys)


@pytest.mark.parametrize("left", [[], [{"kty": "AKP", "kid": "k3", "use": "sig"}]])
def test_nobody_comes_in_once_the_last_known_key_has_left_the_set(
    live: LiveBroker,
    certificates: Certificates,
    issuer: TokenIssuer,
    tmp_path: Path,
    left: list[dict[str, str]],
) -> None:
    """The set is emptied, or has only keys of a kind that is not known here."""
    token = issuer.sign()
    assert log_in(live, certificates, token).auth_bytes == b""
    (tmp_path / KEYS).write_text("{}")  # This is no set: the keys of before stay.
    live.eventually(lambda: failures_of(live) > 0)
    assert keys_of(live) == {"k1", "k2"}
    (tmp_path / KEYS).write_text(json.dumps({"keys": left}))
    live.eventually(lambda: not keys_of(live))
    assert log_in(live, certificates, token).auth_bytes == b'{"status":"invalid_token"}'
    issuer.write(tmp_path / KEYS)
    live.eventually(lambda: "k1" in keys_of(live))
    assert log_in(live, certificates, token).auth_bytes == b""


def failures_of(live: LiveBroker) -> int:
    logins = live.server._logins
    assert logins is not None
    return sum(each.failures_count for each in logins._readers.values())


def leave_failures(live: LiveBroker, count: int) -> None:
    """Have so many logins from here failed that `count` more may."""

    def spend() -> None:
        logins = live.server._logins
        assert logins is not None
        left = CreationAllowance(per_s=0, burst=LOGIN_FAILURES_BURST, now_s=live.loop.time())
        for _ in range(LOGIN_FAILURES_BURST - count):
            left.spend()
        logins._failures["127.0.0.1"] = left

    live.run(spend)


def test_a_token_that_is_refused_is_a_login_that_failed(
    live: LiveBroker, certificates: Certificates, issuer: TokenIssuer
) -> None:
    """Whoever never says that he knows of the refusal has guessed all the same."""
    leave_failures(live, 1)
    assert log_in(live, certificates, issuer.sign()).error_code == 0
    refused = log_in(live, certificates, issuer.sign(aud="others"))
    assert (refused.error_code, refused.auth_bytes) == (0, b'{"status":"invalid_token"}')
    unseen = log_in(live, certificates, issuer.sign())
    assert unseen.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
