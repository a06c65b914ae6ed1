"""How tokens are fetched, kept, and fetched anew; what an endpoint that gives none is told as."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from plain_certificates import PlainCertificates, check_as_newer_pythons_do
from secure_listener import Certificates
from token_server import CLIENT, SECRET, TokenServer
from tokens import TokenIssuer

from fairlead_spark.errors import SourceError
from fairlead_spark.token_endpoint import TokenEndpoint, forget_token, read_token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ISSUER = TokenIssuer()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server(certificates: Certificates) -> Iterator[TokenServer]:
    with TokenServer(certificates, lambda: (200, granted("t"))).serving() as started:
        yield started


@pytest.fixture
def endpoint(server: TokenServer) -> Iterator[TokenEndpoint]:
    made = TokenEndpoint(server.url, CLIENT, SECRET, ca_file=str(server.ca))
    yield made
    forget_token(made)


class Clock:
    """The monotonic clock of a test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def granted(token: str, **more: Any) -> dict[str, Any]:
    return {"access_token": token, "token_type": "Bearer", "expires_in": 100, **more}


def test_a_token_is_asked_for_as_librdkafka_does(
    server: TokenServer, endpoint: TokenEndpoint
) -> None:
    with_scope = replace(endpoint, scope="kafka write")
    assert read_token(with_scope) == "t"
    assert server.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka write"]}]
    forget_token(with_scope)


def test_a_token_is_kept_for_four_fifths_of_its_life(
    server: TokenServer, endpoint: TokenEndpoint, clock: Clock
) -> None:
    assert read_token(endpoint) == "t"
    server.answer = lambda: (200, granted("next"))
    clock.now += 79
    assert read_token(endpoint) == "t"
    clock.now += 2
    assert read_token(endpoint) == "next"
    assert len(server.asked) == 2


def test_a_token_that_is_refused_is_not_used_again(
    server: TokenServer, endpoint: TokenEndpoint
) -> None:
    assert read_token(endpoint) == "t"
    server.answer = lambda: (200, granted("next"))
    forget_token(endpoint)
    assert read_token(endpoint) == "next"


def test_a_token_says_itself_how_long_it_lives_where_the_endpoint_does_not(
    server: TokenServer, endpoint: TokenEndpoint, clock: Clock
) -> None:
    token = ISSUER.sign(exp=int(time.time()) + 100)
    server.answer = lambda: (200, {"access_token": token})
    read_token(endpoint)
    clock.now += 70
    read_token(endpoint)
    assert len(server.asked) == 1
    clock.now += 15
    read_token(endpoint)
    assert len(server.asked) == 2


def test_a_token_of_unknown_life_is_used_once(server: TokenServer, endpoint: TokenEndpoint) -> None:
    server.answer = lambda: (200, {"access_token": "opaque"})
    assert [read_token(endpoint), read_token(endpoint)] == ["opaque", "opaque"]
    assert len(server.asked) == 2


def test_a_claim_that_is_no_time_says_nothing_of_a_tokens_life(
    server: TokenServer, endpoint: TokenEndpoint
) -> None:
    token = ISSUER.sign(exp=10**400)
    server.answer = lambda: (200, {"access_token": token})
    assert [read_token(endpoint), read_token(endpoint)] == [token, token]
    assert len(server.asked) == 2


def test_while_the_endpoint_fails_a_token_is_used_to_its_end(
    server: TokenServer, endpoint: TokenEndpoint, clock: Clock
) -> None:
    assert read_token(endpoint) == "t"
    server.answer = lambda: (503, "away")
    clock.now += 90
    assert [read_token(endpoint), read_token(endpoint)] == ["t", "t"]
    assert len(server.asked) == 2
    clock.now += 11
    with pytest.raises(ConnectionError, match="it answers 503"):
        read_token(endpoint)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        ((400, {"error": "invalid_scope"}), SourceError, "app no token: it answers 400, invalid_s"),
        ((401, {"error": "invalid_client", "error_description": "gone"}), SourceError, "nt: gone"),
        ((400, {"error": SECRET}), SourceError, "answers 400. Check the file"),
        ((403, "<html>"), SourceError, "it answers 403. Check the file"),
        ((302, "https://elsewhere.example/"), SourceError, "it answers 302"),
        ((429, {}), ConnectionError, "it answers 429"),
        ((500, "[]"), ConnectionError, "it answers 500"),
        ((200, "nonsense"), SourceError, "answers with what is no token"),
        ((200, "[]"), SourceError, "answers with what is no token"),
        ((200, {"access_token": ""}), SourceError, "answers with what is no token"),
        ((200, {"access_token": "a\x01auth=b"}), SourceError, "answers with what is no token"),
        ((200, {"access_token": 5}), SourceError, "answers with what is no token"),
        ((200, granted("t", expires_in="x")), SourceError, "answers with what is no token"),
        ((200, granted("t", expires_in=math.inf)), SourceError, "answers with what is no token"),
        ((200, granted("t", expires_in="nan")), SourceError, "answers with what is no token"),
        ((200, granted("t", expires_in=10**400)), SourceError, "answers with what is no token"),
        ((200, " " * 300_000), SourceError, "no token: more than 262144 bytes"),
    ],
)
def test_an_endpoint_that_gives_none_is_named_and_the_secret_never(
    server: TokenServer, endpoint: TokenEndpoint, answer: Any, kind: type[Exception], said: str
) -> None:
    server.answer = lambda: answer
    with pytest.raises(kind) as refused:
        read_token(endpoint)
    assert type(refused.value) is kind
    assert server.url in str(refused.value)
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_wrong_secret_is_an_error_that_names_the_client(endpoint: TokenEndpoint) -> None:
    with pytest.raises(SourceError, match="gives client app no token: it answers 401") as refused:
        read_token(replace(endpoint, client_secret="not-its"))
    assert "not-its" not in str(refused.value)


def test_an_endpoint_that_nobody_vouches_for_is_not_told_the_secret(
    server: TokenServer, endpoint: TokenEndpoint
) -> None:
    with pytest.raises(SourceError, match=r"Check https\.ca\.location"):
        read_token(replace(endpoint, ca_file=None))
    assert server.asked == []


def test_an_endpoint_is_checked_as_librdkafka_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.13 on, a certificate without key identifiers was refused."""
    check_as_newer_pythons_do(monkeypatch)
    certificates = PlainCertificates(tmp_path)
    with TokenServer(certificates, lambda: (200, granted("t"))).serving() as server:
        endpoint = TokenEndpoint(server.url, CLIENT, SECRET, ca_file=str(server.ca))
        try:
            assert read_token(endpoint) == "t"
        finally:
            forget_token(endpoint)


def test_an_endpoint_that_is_away_may_come_back(endpoint: TokenEndpoint) -> None:
    away = replace(endpoint, url="https://127.0.0.1:1/token")
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1/token cannot be asked for a token"):
        read_token(away)


def test_no_secret_is_shown(endpoint: TokenEndpoint) -> None:
    assert SECRET not in repr(endpoint)
