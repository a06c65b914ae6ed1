"""The file that says how a source or sink encrypts and logs in."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from plain_certificates import PlainCertificates, check_as_newer_pythons_do, shake_hands

from fairlead_spark.client_security import Login, read_security
from fairlead_spark.errors import OptionError
from fairlead_spark.options import parse_sink_options, parse_source_options
from fairlead_spark.token_endpoint import TokenEndpoint

if TYPE_CHECKING:
    from pathlib import Path

LOGIN = """\
# of a User
bootstrap.servers=demo:9093
security.protocol=sasl_plaintext
sasl.mechanism=SCRAM-SHA-512
sasl.username=app
sasl.password=a=b
"""

TOKENS = """\
security.protocol=sasl_ssl
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.method=oidc
sasl.oauthbearer.token.endpoint.url=https://sso.example/token
sasl.oauthbearer.client.id=app
sasl.oauthbearer.client.secret=a=b
"""


def written(folder: Path, text: str) -> str:
    path = folder / "librdkafka.config"
    path.write_text(text)
    return str(path)


def test_addresses_and_login_are_those_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, LOGIN)
    security = read_security(path)
    assert security.login == Login("SCRAM-SHA-512", "app", "a=b")
    assert security.tls is None
    source = parse_source_options({"clientConfig": path, "subscribe": "t"}, is_stream=True)
    sink = parse_sink_options({"clientConfig": path, "topic": "t"})
    assert {source.client.bootstrap_servers, sink.client.bootstrap_servers} == {"demo:9093"}
    other = {"clientConfig": path, "subscribe": "t", "kafka.bootstrap.servers": "other:1"}
    assert parse_source_options(other, is_stream=True).client.bootstrap_servers == "other:1"


def test_a_password_is_neither_among_the_options_nor_shown(tmp_path: Path) -> None:
    path = written(tmp_path, LOGIN)
    source = parse_source_options({"clientConfig": path, "subscribe": "t"}, is_stream=True)
    assert "a=b" not in repr(source)
    assert "a=b" not in repr(read_security(path))


def test_tokens_are_fetched_as_the_file_says_and_the_secret_is_not_shown(tmp_path: Path) -> None:
    more = "sasl.oauthbearer.scope=kafka\nsasl.oauthbearer.extensions=team=a b,logicalCluster=lkc\n"
    security = read_security(written(tmp_path, TOKENS + more))
    login = security.login
    assert login is not None
    assert login.tokens == TokenEndpoint("https://sso.example/token", "app", "a=b", "kafka")
    assert login.extensions == (("team", "a b"), ("logicalCluster", "lkc"))
    assert "a=b" not in repr(security)


def test_without_a_file_nothing_is_done() -> None:
    security = read_security(None)
    assert (security.tls, security.login) == (None, None)


def test_brokers_are_checked_by_name_unless_the_file_says_no(tmp_path: Path) -> None:
    tls = read_security(written(tmp_path, "security.protocol=ssl\n")).tls
    assert tls is not None
    assert tls.check_hostname
    unchecked = "security.protocol=ssl\nssl.endpoint.identification.algorithm=none\n"
    tls = read_security(written(tmp_path, unchecked)).tls
    assert tls is not None
    assert not tls.check_hostname


def test_brokers_are_checked_as_librdkafka_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.13 on, a certificate without key identifiers was refused."""
    check_as_newer_pythons_do(monkeypatch)
    root = PlainCertificates(tmp_path / "root")
    below = PlainCertificates(tmp_path / "of-shop", "Shop", root.authority)
    text = "security.protocol=ssl\nssl.ca.location={}\n"
    tls = read_security(written(tmp_path, text.format(root.ca))).tls
    assert tls is not None
    shake_hands(tls, root.issue("broker"))
    tls = read_security(written(tmp_path, text.format(below.ca))).tls
    assert tls is not None
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get issuer certificate"):
        shake_hands(tls, below.issue("broker"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=tls", "it can be PLAINTEXT, SSL"),
        ("compression.type=lz4", "all others are options"),
        ("sasl.jaas.config=x", "all others are options"),
        (LOGIN.replace("SCRAM-SHA-512", "GSSAPI"), "it can be PLAIN, SCRAM"),
        (LOGIN.replace("SCRAM-SHA-512", "OAUTHBEARER"), "sasl.oauthbearer.method is ''; with OAUT"),
        (TOKENS.replace("=oidc", "=default"), "sasl.oauthbearer.method is 'default'"),
        (TOKENS.replace("client.secret", "scope"), "sasl.oauthbearer.client.secret is missing"),
        (TOKENS.replace("https:", "http:"), "it has to begin with https://HOST"),
        (TOKENS.replace("https://", "https://user:pw@"), "it has to begin with https://HOST"),
        (TOKENS + "https.ca.location=/no/such/ca\n", "/no/such/ca cannot be read"),
        (TOKENS + "sasl.oauthbearer.extensions=a=b,no\n", "'no' is not NAME=VALUE"),
        (TOKENS + "sasl.oauthbearer.extensions=auth=b\n", "'auth=b' is not NAME=VALUE"),
        (LOGIN.replace("sasl.mechanism=SCRAM-SHA-512\n", ""), "sasl.mechanism is ''"),
        (LOGIN.replace("sasl.password=a=b\n", ""), "sasl.password is missing"),
        ("security.protocol=ssl\nssl.ca.location=/no/such/ca", "cannot be read"),
        ("security.protocol=ssl\nssl.certificate.location=/no/such/crt", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_anything_runs(
    tmp_path: Path, text: str, said: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(OptionError, match="clientConfig") as refused:
        parse_sink_options({"clientConfig": path, "topic": "t", "kafka.bootstrap.servers": "a:1"})
    assert said in str(refused.value)
    assert path in str(refused.value)
    assert "user:pw" not in str(refused.value), "errors go to logs"
