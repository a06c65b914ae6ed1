"""What the Secret of a User holds, for each login, and where its client begins."""

from __future__ import annotations

import base64
import subprocess
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates
from needed_tools import is_on_the_path, missing
from waiting import DEADLINE_S

from fairlead_cli.local.client_files import read_client_file
from fairlead_operator.certificates.authority import issue_client, make_authority
from fairlead_operator.specs.client_access import (
    ClientAccess,
    HttpAccess,
    UserAccess,
    find_access,
    find_user_access,
)
from fairlead_operator.specs.names import CERTIFICATES_LABEL
from fairlead_operator.specs.secret_data import read_data
from fairlead_operator.users.keystores import build_pkcs12
from fairlead_operator.users.user_resource import UserResource, read_user_resource
from fairlead_operator.users.user_secret import (
    UserMaterial,
    build_data,
    build_secret,
    corrected_secret,
    is_owned,
    password_problem,
    read_material,
    revision_of,
    salt_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCESS = ClientAccess("demo-bootstrap.shop.svc:9093", "SASL_SSL", is_of_own_authority=True)
CA = b"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def resource(**authentication: Any) -> UserResource:
    return read_user_resource(
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "User",
            "metadata": {"name": "app", "namespace": "shop", "uid": "u-1"},
            "spec": {"clusterName": "demo", "authentication": authentication},
        }
    )


SCRAM = resource(type="scram-sha-512")


def java(text: bytes) -> dict[str, str]:
    """As Java's Properties reads what has no line that goes on."""
    settings = {}
    for line in text.decode("ascii").splitlines():
        name, _, value = line.partition("=")
        units = value.encode().decode("unicode_escape")
        settings[name] = units.encode("utf-16", "surrogatepass").decode("utf-16")
    return settings


def cluster(*listeners: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "demo", "namespace": "shop"}, "spec": {"listeners": listeners}}


def listener(login: str, **fields: Any) -> dict[str, Any]:
    return {"name": login[:5], "port": 9093, "authentication": {"type": login}} | fields


@pytest.mark.parametrize("password", ["simple", 'qu"o\\te', "\u00e4\U0001f600 mid", "a=b#c"])
def test_clients_read_the_password_back(password: str, tmp_path: Path) -> None:
    data = build_data(SCRAM, UserMaterial(password=password), UserAccess(ACCESS), CA)
    settings = java(data["client.properties"])
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert settings["sasl.jaas.config"].endswith(f'username="app" password="{quoted}";')
    assert data["sasl.jaas.config"].decode() == settings["sasl.jaas.config"]
    assert settings["ssl.truststore.certificates"].encode() == CA
    assert settings["security.protocol"] == "SASL_SSL"
    path = tmp_path / "librdkafka.config"
    path.write_bytes(data["librdkafka.config"])
    plain = read_client_file(path)
    assert (plain["sasl.username"], plain["sasl.password"]) == ("app", password)
    assert plain["ssl.ca.location"] == "/etc/fairlead/user/ca.crt"
    assert read_material(data).password == password


def test_a_secret_without_a_listener_has_the_password_all_the_same() -> None:
    data = build_data(SCRAM, UserMaterial(password="x"), UserAccess(None), b"")
    assert set(data) == {"username", "password", "sasl.jaas.config"}


HTTP = HttpAccess("https://demo-bootstrap.shop.svc:8082", is_of_own_authority=True)


@contextmanager
def asked_server() -> Iterator[tuple[str, list[str]]]:
    """An HTTP server that notes how clients say who they are."""
    said: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said.append(self.headers["Authorization"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", said
        thread.join(DEADLINE_S)


@pytest.mark.parametrize("password", ["simple", 'qu"o\\te', "mid: dle #", "\u00e4\U0001f600"])
def test_curl_reads_the_password_back(password: str, tmp_path: Path) -> None:
    data = build_data(SCRAM, UserMaterial(password=password), UserAccess(None, HTTP), CA)
    assert set(data) == {
        *("username", "password", "sasl.jaas.config", "ca.crt"),
        *("rest.url", "curl.config"),
    }
    assert data["rest.url"] == b"https://demo-bootstrap.shop.svc:8082"
    text = data["curl.config"].decode()
    assert 'cacert = "/etc/fairlead/user/ca.crt"' in text
    if not is_on_the_path("curl"):
        missing("no curl here")
    path = tmp_path / "curl.config"
    path.write_text(text, encoding="utf-8")
    with asked_server() as (url, said):
        command = ["curl", "-s", "-K", str(path), "--noproxy", "*", url]
        subprocess.run(command, check=True, timeout=DEADLINE_S)
    assert said == ["Basic " + base64.b64encode(f"app:{password}".encode()).decode()]


def test_curl_shows_a_certificate_or_nothing_but_whom_it_trusts() -> None:
    material = UserMaterial("", b"crt", b"key", b"p12", "word")
    text = build_data(resource(type="tls"), material, UserAccess(None, HTTP), CA)["curl.config"]
    assert text.decode().splitlines() == [
        'cert = "/etc/fairlead/user/user.crt"',
        'key = "/etc/fairlead/user/user.key"',
        'cacert = "/etc/fairlead/user/ca.crt"',
    ]
    by_token = resource(type="oauth", subject="someone")
    tokens = build_data(by_token, UserMaterial(), UserAccess(None, HTTP), CA)
    assert tokens["curl.config"] == b'cacert = "/etc/fairlead/user/ca.crt"\n'


def test_who_trusts_the_authority_for_http_alone_does_not_for_kafka() -> None:
    theirs = ClientAccess("demo-bootstrap.shop.svc:9093", "SASL_SSL")
    data = build_data(SCRAM, UserMaterial(password="x"), UserAccess(theirs, HTTP), CA)
    assert b"ssl.ca.location" not in data["librdkafka.config"]
    assert b"ssl.truststore" not in data["client.properties"]
    assert b"cacert" in data["curl.config"]


TLS_LOGIN = {"enabled": True, "authentication": {"type": "tls"}}


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ({}, None),
        ({"enabled": True}, None),
        (TLS_LOGIN | {"enabled": False}, None),
        (TLS_LOGIN | {"authentication": {"type": "scram-sha-512"}}, None),
        (TLS_LOGIN | {"tls": {}}, HTTP),
        (TLS_LOGIN | {"tls": {"issuerRef": {"name": "i"}}}, HttpAccess(HTTP.url)),
    ],
)
def test_the_http_api_is_a_way_where_it_takes_the_login(
    rest: dict[str, Any], expected: HttpAccess | None
) -> None:
    manifest = cluster()
    manifest["spec"]["rest"] = rest
    access = find_user_access(manifest, "tls")
    assert access == UserAccess(None, expected)
    assert access.takes_login == (expected is not None)


def test_a_certificate_comes_in_all_forms_under_strimzis_names() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    authority = make_authority("CA of tests", now)
    pair = issue_client(authority, "app", now)
    keystore = build_pkcs12("app", pair, authority.certificate, "word")
    material = UserMaterial("", pair.certificate, pair.key, keystore, "word")
    user = resource(type="tls")
    access = ClientAccess("demo-bootstrap.shop.svc:9095", "SSL", True)
    data = build_data(user, material, UserAccess(access), authority.certificate)
    assert {"user.crt", "user.key", "user.p12", "user.password", "ca.crt"} < set(data)
    settings = java(data["client.properties"])
    assert settings["ssl.keystore.certificate.chain"].encode() == pair.certificate
    assert settings["ssl.keystore.key"].encode() == pair.key
    _, certificate, others = load_key_and_certificates(data["user.p12"], b"word")
    assert certificate is not None
    assert certificate.subject.rfc4514_string() == "CN=app"
    assert len(others) == 1
    assert read_material(data) == material
    assert material.has_all_of("tls")
    secret = build_secret(user, data)
    assert secret["metadata"]["labels"][CERTIFICATES_LABEL] == "true"
    assert CERTIFICATES_LABEL not in build_secret(SCRAM, {})["metadata"]["labels"]


def test_a_secret_is_corrected_as_a_whole_and_labels_of_others_stay() -> None:
    data = {"password": b"x", "username": b"app"}
    held = build_secret(SCRAM, data)
    held["metadata"] |= {"uid": "s-1", "resourceVersion": "7"}
    held["metadata"]["labels"]["theirs"] = "yes"
    assert corrected_secret(held, SCRAM, data) is None
    assert is_owned(held, SCRAM)
    held["data"] |= {"password": "!", "more": base64.b64encode(b"y").decode()}
    corrected = corrected_secret(held, SCRAM, data)
    assert corrected is not None
    assert read_data(corrected) == data
    assert corrected["metadata"]["labels"]["theirs"] == "yes"
    assert corrected["metadata"]["resourceVersion"] == "7"
    del held["metadata"]["ownerReferences"]
    assert not is_owned(held, SCRAM)


def test_a_salt_stays_as_long_as_its_secret_and_a_revision_as_its_contents() -> None:
    first = {"metadata": {"uid": "s-1", "resourceVersion": "7"}}
    edited = {"metadata": {"uid": "s-1", "resourceVersion": "8"}}
    another = {"metadata": {"uid": "s-2", "resourceVersion": "9"}}
    assert salt_of(first) == salt_of(edited) != salt_of(another)
    assert len({revision_of(each) for each in (first, edited, another)}) == 3


@pytest.mark.parametrize("password", ["", " x", "x\n", "a\nb", "a\x00b", "\t"])
def test_passwords_that_files_cannot_hold_are_refused(password: str) -> None:
    assert password_problem(password)
    assert not UserMaterial(password=password).has_all_of("scram-sha-512")


@pytest.mark.parametrize(
    ("listeners", "login", "expected"),
    [
        ((), "scram-sha-512", None),
        (({"name": "plain", "type": "Internal", "port": 9092},), "scram-sha-512", None),
        (
            (listener("scram-sha-512", type="Internal"),),
            "scram-sha-512",
            ClientAccess("demo-bootstrap.shop.svc:9093", "SASL_PLAINTEXT"),
        ),
        (
            (
                listener("scram-sha-512", type="NodePort", tls={}),
                listener("scram-sha-512", type="Internal", port=9096, tls={}),
            ),
            "scram-sha-512",
            ClientAccess("demo-bootstrap.shop.svc:9096", "SASL_SSL", True),
        ),
        (
            (listener("tls", type="NodePort", tls={"certificate": {"secretName": "x"}}),),
            "tls",
            ClientAccess("demo-tls-bootstrap.shop.svc:9093", "SSL"),
        ),
        (
            (listener("oauth", type="Internal", tls={"enabled": False}),),
            "oauth",
            ClientAccess("demo-bootstrap.shop.svc:9093", "SASL_PLAINTEXT"),
        ),
    ],
)
def test_a_client_begins_at_the_first_listener_that_takes_its_login(
    listeners: tuple[dict[str, Any], ...], login: Any, expected: ClientAccess | None
) -> None:
    assert find_access(cluster(*listeners), login) == expected
