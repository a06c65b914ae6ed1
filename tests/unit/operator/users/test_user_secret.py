"""What the Secret of a User holds, for each login, and where its client begins."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from fairlead_cli.local.client_files import read_client_file
from fairlead_operator.certificates.authority import issue_client, make_authority
from fairlead_operator.specs.client_access import ClientAccess, find_access
from fairlead_operator.users.keystores import build_pkcs12
from fairlead_operator.users.user_resource import UserResource, read_user_resource
from fairlead_operator.users.user_secret import (
    CERTIFICATES_LABEL,
    UserMaterial,
    build_data,
    build_secret,
    corrected_secret,
    is_owned,
    password_problem,
    read_data,
    read_material,
    revision_of,
    salt_of,
)

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
def test_clients_read_the_password_back(password: str, tmp_path) -> None:
    data = build_data(SCRAM, UserMaterial(password=password), ACCESS, CA)
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
    data = build_data(SCRAM, UserMaterial(password="x"), None, b"")
    assert set(data) == {"username", "password", "sasl.jaas.config"}


def test_a_certificate_comes_in_all_forms_under_strimzis_names() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    authority = make_authority("CA of tests", now)
    pair = issue_client(authority, "app", now)
    keystore = build_pkcs12("app", pair, authority.certificate, "word")
    material = UserMaterial("", pair.certificate, pair.key, keystore, "word")
    user = resource(type="tls")
    access = ClientAccess("demo-bootstrap.shop.svc:9095", "SSL", True)
    data = build_data(user, material, access, authority.certificate)
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
