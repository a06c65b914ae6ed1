"""What leaves a cluster in a support bundle: no secret, and all that helps."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead_cli.kubectl.masking import MASK, is_secret_name, mask_manifest, mask_text
from fairlead_cli.kubectl.report import Bundle, our_kinds
from fairlead_operator.resources.definitions import DEFINITIONS

HIDDEN = "hunter2hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"ssl.keystore.password={HIDDEN}",
        f"sasl.jaas.config=org.Plain required username=a password={HIDDEN};",
        f'sasl.jaas.config=Module required username="a" password="{HIDDEN}";',
        f"DB_PASSWORD: {HIDDEN}",
        f'{{"client_secret": "{HIDDEN}", "a": 1}}',
        f"Authorization: Bearer {HIDDEN}",
        f"connecting to https://me:{HIDDEN}@example.test/path",
        f"token={HIDDEN} was refused",
        f"aws_secret_access_key = {HIDDEN}",
        f"fs.azure.account.key.logs.blob.core.windows.net={HIDDEN}==",
        f"DefaultEndpointsProtocol=https;AccountName=logs;AccountKey={HIDDEN}==;A=b",
        f"-----BEGIN PRIVATE KEY-----\n{HIDDEN}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{HIDDEN} and no end",
        f"jwt eyJhbGciOiJI.{HIDDEN}.{HIDDEN}",
        f"id-eyJhbGciOiJI.{HIDDEN}.{HIDDEN}",
        f"+https://me:{HIDDEN}@example.test/path",
        f"my API key: {HIDDEN}",
        f"storage-account/key = {HIDDEN}",
    ],
)
def test_secrets_in_texts_are_masked(text: str) -> None:
    masked = mask_text(text)
    assert HIDDEN not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "part", ["a", "a.", "password", "password ", "password=a ", "eyJ-", "http://", "secret'", "a:a"]
)
def test_a_long_line_takes_no_longer_than_it_is(part: str) -> None:
    """One of 16 KB, as a log of Kubernetes may have, took from seconds to hours."""
    started = time.process_time()
    mask_text(part * (16_384 // len(part)))
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "text",
    [
        "leader 2 after 1, leader epoch 5",
        "log.retention.hours=24\nnum.partitions=3",
        'partition/AAAA/0 {"replicas":[0,1,2],"isr":[0,1,2],"leader":0}',
        "GET /status 200",
        "authorizer.class.name=none",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert mask_text(text) == text


def test_values_of_manifests_are_judged_by_their_names() -> None:
    pod: dict[str, Any] = {
        "metadata": {
            "name": "demo-0",
            "managedFields": [{"a": 1}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": f'{{"a": "{HIDDEN}"}}'
            },
        },
        "spec": {
            "config": {"ssl.key.password": HIDDEN, "num.partitions": 3},
            "containers": [
                {
                    "env": [
                        {"name": "API_KEY", "value": HIDDEN},
                        {"name": "FAIRLEAD_DRILL_TOKEN", "value": HIDDEN},
                        {"name": "LOG_LEVEL", "value": "INFO"},
                        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ]
                }
            ],
            "automountServiceAccountToken": False,
            "volumes": [{"secret": {"secretName": "demo-session"}}],
        },
        "data": {"server.properties": f"num.partitions=3\nssl.key.password={HIDDEN}\n"},
    }
    masked = mask_manifest(pod)
    assert HIDDEN not in json.dumps(masked)
    assert "managedFields" not in masked["metadata"]
    assert masked["spec"]["config"]["num.partitions"] == 3
    environment = masked["spec"]["containers"][0]["env"]
    assert environment[2] == {"name": "LOG_LEVEL", "value": "INFO"}
    assert environment[3]["valueFrom"]["secretKeyRef"] == {"name": "s", "key": "k"}
    assert masked["spec"]["automountServiceAccountToken"] is False
    assert masked["spec"]["volumes"][0]["secret"]["secretName"] == "demo-session"
    assert "num.partitions=3" in masked["data"]["server.properties"]


def test_what_follows_an_option_is_judged_by_the_name_of_the_option() -> None:
    def arguments(*given: str) -> list[str]:
        masked: list[str] = mask_manifest({"application": {"arguments": list(given)}})[
            "application"
        ]["arguments"]
        return masked

    told = ("--rate", "5", "--authority", "a", "--token", "--verbose", "run")
    assert arguments(*told) == list(told)
    assert arguments("--db-password", HIDDEN, "run") == ["--db-password", MASK, "run"]
    assert arguments("-password", f"-{HIDDEN}") == ["-password", MASK]
    assert arguments(f"--password={HIDDEN}", "run") == [f"--password={MASK}", "run"]


def test_names_are_judged_generously() -> None:
    assert is_secret_name("spark.hadoop.fs.azure.account.key.logs.blob.core.windows.net")
    assert not is_secret_name("serviceAccountName")
    assert all(map(is_secret_name, ("password", "apiKey", "SASL_JAAS_CONFIG", "authToken")))
    assert not any(map(is_secret_name, ("secretName", "authorizer.class.name", "replicas")))


def test_every_kind_of_ours_is_in_a_bundle() -> None:
    defined = {definition.plural for definition in DEFINITIONS}
    assert {kind.plural for kind in our_kinds()} == defined


def test_a_bundle_in_place_of_an_older_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.touch(mode=0o644)
    Bundle().write(path)
    assert path.stat().st_mode & 0o777 == 0o600
