"""Secrets by which jobs of other namespaces log in: what is good enough, and what is said if not.

The Secrets are those that the operator makes for Users, as somebody copies them.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fairlead_model.resources.stream_job import StreamJobSpec
from fairlead_operator.certificates.authority import issue_client, make_authority
from fairlead_operator.specs.client_access import ClientAccess, UserAccess
from fairlead_operator.stream_jobs.job_secret import SecretSource, find_secret_obstacle
from fairlead_operator.users.user_resource import read_user_resource
from fairlead_operator.users.user_secret import UserMaterial, build_data

if TYPE_CHECKING:
    from fairlead_model.resources.stream_job import JobLogin

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
AUTHORITY = make_authority("demo", NOW)
PAIR = issue_client(AUTHORITY, "app", NOW)
PASSWORD = "a-password-of-the-test"
MATERIAL = UserMaterial(PASSWORD, PAIR.certificate, PAIR.key, b"keystore", "x")
PROTOCOLS: dict[JobLogin, str] = {"scram-sha-512": "SASL_SSL", "tls": "SSL"}
BOTH: list[JobLogin] = ["scram-sha-512", "tls"]
SOURCE = SecretSource("jobs", "copied")


def access(login: JobLogin, **changes: Any) -> ClientAccess:
    known = {"protocol": PROTOCOLS[login], "is_of_own_authority": True, **changes}
    return ClientAccess("demo-bootstrap.data.svc:9093", **known)


def secret_of(login: JobLogin, **changes: bytes | None) -> dict[str, bytes]:
    """What a User's Secret holds; `changes` are by keys, with _ for what no name may have."""
    manifest = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "User",
        "metadata": {"name": "app", "namespace": "data", "uid": "u"},
        "spec": {"clusterName": "demo", "authentication": {"type": login}, "acls": []},
    }
    resource = read_user_resource(manifest)
    data = build_data(resource, MATERIAL, UserAccess(access(login)), AUTHORITY.certificate)
    given = {name.replace("_", "."): value for name, value in changes.items()}
    return {name: value for name, value in (data | given).items() if value is not None}


def said_of(login: JobLogin, data: dict[str, bytes], **changes: Any) -> tuple[str, str] | None:
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    held = {"metadata": {"name": "copied"}, "data": encoded}
    return find_secret_obstacle(SOURCE, login, access(login, **changes), held)


@pytest.mark.parametrize("login", BOTH)
def test_a_copy_of_the_secret_of_a_user_is_taken_as_it_is(login: JobLogin) -> None:
    assert said_of(login, secret_of(login)) is None


@pytest.mark.parametrize("login", BOTH)
def test_nothing_is_asked_for_that_the_settings_do_not_name(login: JobLogin) -> None:
    data = secret_of(login)
    unused = data.keys() - {"librdkafka.config", "ca.crt", "user.crt", "user.key"}
    assert "client.properties" in unused
    assert said_of(login, {name: data[name] for name in data.keys() - unused}) is None


def test_another_authority_than_the_clusters_needs_no_certificate_in_the_secret() -> None:
    text = secret_of("scram-sha-512")["librdkafka.config"].decode()
    lines = [line for line in text.splitlines() if not line.startswith("ssl.ca.location")]
    data = {"librdkafka.config": "\n".join(lines).encode()}
    assert said_of("scram-sha-512", data, is_of_own_authority=False) is None
    found = said_of("scram-sha-512", data)
    assert found is not None
    assert "ssl.ca.location=/etc/fairlead/user/ca.crt" in found[1]


@pytest.mark.parametrize(
    ("login", "changes", "reason", "said"),
    [
        ("tls", {"librdkafka_config": None}, "SecretIncomplete", "has no librdkafka.config"),
        ("tls", {"librdkafka_config": b" "}, "SecretIncomplete", "has no librdkafka.config"),
        ("tls", {"librdkafka_config": b"\xff"}, "SecretNotUsable", "that is no text"),
        ("tls", {"ca_crt": None}, "SecretIncomplete", "has no ca.crt"),
        ("scram-sha-512", {"ca_crt": b""}, "SecretIncomplete", "has no ca.crt"),
        ("tls", {"user_key": None}, "SecretIncomplete", "has no user.key"),
        ("tls", {"user_crt": None}, "SecretIncomplete", "has no user.crt"),
        (
            "tls",
            {"ca_crt": base64.b64encode(AUTHORITY.certificate)},
            "SecretNotUsable",
            "has a ca.crt that is no certificate in PEM",
        ),
        (
            "scram-sha-512",
            {"librdkafka_config": b"security.protocol=sasl_ssl\nsasl.mechanism=PLAIN\n"},
            "SecretNotUsable",
            "does not have the sasl.mechanism of authentication.type scram-sha-512: SCRAM-SHA-512",
        ),
        (
            "scram-sha-512",
            {
                "librdkafka_config": b"security.protocol=sasl_ssl\nsasl.mechanism=SCRAM-SHA-512\n"
                b"sasl.username=app\nsasl.password=\n"
            },
            "SecretNotUsable",
            "has no sasl.password",
        ),
    ],
)
def test_what_a_secret_lacks_is_said_with_its_name(
    login: JobLogin, changes: dict[str, Any], reason: str, said: str
) -> None:
    found = said_of(login, secret_of(login, **changes))
    assert found is not None
    assert found[0] == reason
    assert found[1].startswith("spec.authentication: Secret copied ")
    assert said in found[1]


def test_a_secret_for_another_listener_is_told_from_one_that_fits() -> None:
    found = said_of("scram-sha-512", secret_of("tls"))
    assert found is not None
    assert found[0] == "SecretNotUsable"
    assert "has a security.protocol SSL, and the listener at demo-bootstrap" in found[1]


def test_the_example_logs_in_as_its_user_does_who_may_do_what_it_does() -> None:
    job = next(yaml.safe_load_all((EXAMPLES / "kubernetes" / "stream-job.yaml").read_text()))
    user = yaml.safe_load((EXAMPLES / "spark" / "late_flights_user.yaml").read_text())
    spec, given = StreamJobSpec.from_manifest(job), user["spec"]
    assert spec.authentication is not None and spec.sink is not None
    assert spec.authentication.type == given["authentication"]["type"]
    assert spec.authentication.secret_name == user["metadata"]["name"]
    assert spec.cluster_name == given["clusterName"]
    allowed = {
        (rule["resource"]["type"], rule["resource"]["name"], operation)
        for rule in given["acls"]
        for operation in rule["operations"]
    }
    topics = {("topic", topic, "Read") for source in spec.sources for topic in source.topics}
    group = ("group", spec.group_id or job["metadata"]["name"], "Read")
    assert allowed >= {*topics, group, ("topic", str(spec.sink.topic), "Write")}


def test_no_message_holds_what_the_secret_holds() -> None:
    muddled = f"security.protocol={PASSWORD}\nsasl.mechanism={PASSWORD}\nsasl.password={PASSWORD}"
    right = secret_of("scram-sha-512")["librdkafka.config"].decode()
    for text in (
        muddled,
        right.replace("SCRAM-SHA-512", PASSWORD),
        right.replace("sasl.username", "#"),
        right.replace("ssl.ca.location", "#"),
    ):
        data = secret_of("scram-sha-512", librdkafka_config=text.encode())
        found = said_of("scram-sha-512", data)
        assert found is not None
        assert PASSWORD not in found[1]
