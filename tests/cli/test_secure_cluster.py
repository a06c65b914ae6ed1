"""`fairlead up --secure`: TLS, logins and rights for each client, with the files that it writes."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from local_cluster import Cli, take_cluster_ports
from login_clients import IN_PYTHON, Login, by_python
from needed_tools import need
from prometheus_client.parser import text_string_to_metric_families
from secure_listener import Certificates
from tokens import TokenIssuer, oauth_settings
from waiting import wait_until

from fairlead_bench.peers.kafka_distribution import ensure_kafka
from fairlead_cli.local.client_files import read_client_file
from fairlead_model.security.scram import ScramMechanism

DEADLINE_S = 60.0
TOPIC = "hello"
SCRAM = [each.sasl_name for each in ScramMechanism]
ISSUER = TokenIssuer()
PAGE = Path(__file__).parents[2] / "docs/http.md"
HTTPS_BLOCKS = re.findall(
    r"<!-- tested: https -->\n```\n(.*?)```", PAGE.read_text(), flags=re.DOTALL
)
assert HTTPS_BLOCKS


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A secure cluster of one broker that takes every mechanism."""
    directory = tmp_path_factory.mktemp("secure")
    cli = Cli(directory / "data", *take_cluster_ports())
    settings = {
        "sasl.enabled.mechanisms": ",".join([*SCRAM, "PLAIN", "OAUTHBEARER"]),
        "super.users": "User:admin;User:alice",
        "group.initial.rebalance.delay.ms": "0",
        **oauth_settings(ISSUER.write(directory / "jwks.json")),
    }
    said = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]
    try:
        outcome = cli.up("--secure", "--brokers", "1", *said)
        assert outcome.code == 0, outcome
        cli.ok("topic", "create", TOPIC)
        yield cli
    finally:
        cli.close()


@pytest.fixture
def settings(cli: Cli) -> dict[str, str]:
    return read_client_file(cli.data / "clients/admin.librdkafka")


def test_files_are_for_their_owner_alone(cli: Cli) -> None:
    names = ["properties", "librdkafka", "curl"]
    names = [*(f"clients/admin.{each}" for each in names), "tls/ca.key"]
    for name in [*names, "tls/broker-0.pem", "secret"]:
        assert stat.S_IMODE((cli.data / name).stat().st_mode) == 0o600, name
    properties = (cli.data / "clients/admin.properties").read_text()
    bootstrap = f"127.0.0.1:{cli.port + 50}"
    assert f"bootstrap.servers={bootstrap}\n" in properties
    assert 'ScramLoginModule required username="admin" password="' in properties
    assert f"bootstrap.servers={bootstrap}\n" in (cli.data / "clients/admin.librdkafka").read_text()


def test_metrics_tell_when_certificates_end(cli: Cli) -> None:
    told = {}
    for process, http_port in (("broker-0", cli.http_port), ("controller", cli.http_port + 90)):
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=30) as page:
            text = page.read().decode()
        pem = (cli.data / f"tls/{process}.pem").read_bytes()
        ends = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
        told[process] = {
            sample.labels["listener"]: sample.value - ends
            for family in text_string_to_metric_families(text)
            if family.name == "fairlead_certificate_not_after_timestamp_seconds"
            for sample in family.samples
        }
    listeners = ("CLIENT", "CONTROLLER", "INTERNAL", "REST")
    assert told == {"broker-0": dict.fromkeys(listeners, 0.0), "controller": {"CONTROLLER": 0.0}}


def test_curl_logs_in_with_a_file(cli: Cli) -> None:
    need("curl")
    (broker,) = cli.status()["brokers"]
    assert broker["rest"] == f"https://127.0.0.1:{cli.http_port + 100}"

    def ask(user: str, path: str, *more: str) -> Any:
        command = ["curl", "-sS", "-K", str(cli.data / f"clients/{user}.curl"), *more]
        found = subprocess.run(
            [*command, broker["rest"] + path], capture_output=True, timeout=DEADLINE_S, check=True
        )
        return json.loads(found.stdout)

    cluster = ask("admin", "/v3/clusters")["data"][0]["cluster_id"]
    made = cli.ok("user", "create", "by-http", "--acl", f"WRITE topic:{TOPIC}")
    assert f"curl -K {cli.data}/clients/by-http.curl" in made.out
    path = f"/v3/clusters/{cluster}/topics"
    body = '{"value": {"type": "STRING", "data": "by curl"}}'
    written = ask("by-http", f"{path}/{TOPIC}/records", "--json", body)
    assert written["error_code"] == 200
    assert ask("by-http", path)["data"][0]["topic_name"] == TOPIC
    assert ask("by-http", f"/topics/{TOPIC}/partitions/0/records")["error_code"] == 40301
    password = (cli.data / "clients/by-http.curl").read_text()
    cli.ok("user", "delete", "by-http", "--yes")
    (cli.data / "clients/by-http.curl").write_text(password)
    wait_until(lambda: ask("by-http", "/v3/clusters").get("error_code") == 40101)
    (cli.data / "clients/by-http.curl").unlink()


@pytest.mark.parametrize("block", HTTPS_BLOCKS)
def test_lines_of_the_page_run_as_written(cli: Cli, block: str) -> None:
    need("curl")
    text = block.replace("127.0.0.1:8180", f"127.0.0.1:{cli.http_port + 100}")
    text = text.replace(".fairlead/", f"{cli.data}/").replace("curl -s", "curl -sf")
    environment = os.environ | {
        "FAIRLEAD_DATA": str(cli.data),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_nobody_comes_in_clear(cli: Cli) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", cli.port), timeout=DEADLINE_S)
    with socket.create_connection(("127.0.0.1", cli.http_port + 100), timeout=DEADLINE_S) as plain:
        plain.sendall(b"GET /v3/clusters HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert plain.recv(1) == b"", "the HTTP API answers who speaks no TLS"
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{cli.port + 50}", "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)


def test_commands_log_in_by_themselves(cli: Cli) -> None:
    assert TOPIC in cli.ok("topic", "list").out
    cli.ok("produce", TOPIC, stdin="world\n")
    assert "world" in cli.ok("consume", TOPIC, "--until-end").out
    assert cli.ok("broker", "list", "-o", "json").json
    assert cli.ok("status").out


def test_a_file_says_how_to_log_in_elsewhere(cli: Cli, tmp_path: Path) -> None:
    other = Cli(tmp_path / "none", 1, 2)
    file = cli.data / "clients/admin.librdkafka"
    listed = other.ok("topic", "list", "--client-config", str(file))
    assert TOPIC in listed.out
    bootstrap = f"127.0.0.1:{cli.port + 50}"
    refused = other("topic", "list", "--bootstrap", bootstrap)
    assert refused.code != 0 and "--client-config FILE" in refused.err
    java = cli.data / "clients/admin.properties"
    refused = other("topic", "list", "--client-config", str(java))
    assert refused.code != 0 and "is for Java's clients" in refused.err


def test_requests_of_our_own_log_in(cli: Cli, settings: dict[str, str]) -> None:
    """The command asks a broker by a connection of its own for what librdkafka cannot say."""
    producer = Producer({**settings, "transactional.id": "orders"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"x")
    assert producer.flush(DEADLINE_S) == 0
    assert "orders" in cli.ok("txn", "describe", "orders").out
    producer.abort_transaction(DEADLINE_S)


def test_kcat_reads_the_file(cli: Cli) -> None:
    need("kcat")
    file = str(cli.data / "clients/admin.librdkafka")
    listed = subprocess.run(
        ["kcat", "-F", file, "-L"], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert f'topic "{TOPIC}"' in listed.stdout


@pytest.mark.java
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_tools_of_kafka_read_the_properties(
    cli: Cli, settings: dict[str, str], tmp_path: Path, mechanism: str
) -> None:
    need("java")
    file = tmp_path / "client.properties"
    text = (cli.data / "clients/admin.properties").read_text()
    if mechanism == "PLAIN":
        text = text.replace("SCRAM-SHA-512", "PLAIN")
        text = text.replace("scram.ScramLoginModule", "plain.PlainLoginModule")
    file.write_text(text)
    command = ["java", "-cp", ensure_kafka().classpath, "org.apache.kafka.tools.TopicCommand"]
    command += ["--bootstrap-server", settings["bootstrap.servers"]]
    command += ["--command-config", str(file), "--list"]
    listed = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=True
    )
    assert TOPIC in listed.stdout.split()


@pytest.fixture(scope="module")
def both_hashes(cli: Cli) -> None:
    """The super user of `up` has a credential for SCRAM-SHA-512 alone."""
    from confluent_kafka.admin import (
        ScramCredentialInfo,
        UserScramCredentialUpsertion,
    )
    from confluent_kafka.admin import ScramMechanism as Mechanism

    settings = read_client_file(cli.data / "clients/admin.librdkafka")
    info = ScramCredentialInfo(Mechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("admin", info, settings["sasl.password"].encode())
    admin = AdminClient(settings)
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(DEADLINE_S)


@pytest.mark.clients
@pytest.mark.usefixtures("both_hashes")
@pytest.mark.parametrize("mechanism", [*SCRAM, "PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("client", IN_PYTHON)
def test_clients_log_in_by_every_mechanism(
    settings: dict[str, str], client: str, mechanism: str
) -> None:
    login = Login(
        mechanism,
        settings["bootstrap.servers"],
        Path(settings["ssl.ca.location"]),
        certificate=Path(),
        user=settings["sasl.username"],
        password=settings["sasl.password"],
        token=ISSUER.sign(),
    )
    name = f"{client}-{mechanism}"
    by_python(client)(login, TOPIC, name, name.encode())


def test_who_has_no_rights_may_do_nothing(cli: Cli, settings: dict[str, str]) -> None:
    from confluent_kafka.admin import ScramCredentialInfo, UserScramCredentialUpsertion
    from confluent_kafka.admin import ScramMechanism as Mechanism

    admin = AdminClient(settings)
    info = ScramCredentialInfo(Mechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("bob", info, b"bob's")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(DEADLINE_S)
    of_bob = settings | {"sasl.username": "bob", "sasl.password": "bob's"}
    bob = AdminClient(of_bob)
    assert bob.list_topics(timeout=DEADLINE_S).topics == {}
    with pytest.raises(KafkaException) as refused:
        bob.create_topics([NewTopic("of-bob", 1, 1)])["of-bob"].result(DEADLINE_S)
    assert refused.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"


def test_a_cluster_that_was_secure_stays_so_with_the_same_password(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data", *take_cluster_ports())
    file = cli.data / "clients/admin.librdkafka"
    try:
        assert cli.up("--secure", "--brokers", "1").code == 0
        cli.ok("topic", "create", TOPIC)
        first = file.read_text()
        authority = (cli.data / "tls/ca.crt").read_bytes()
        assert cli("down").code == 0
        assert cli.up().code == 0
        assert file.read_text() == first
        assert (cli.data / "tls/ca.crt").read_bytes() == authority
        assert TOPIC in cli.ok("topic", "list").out
        assert cli("down").code == 0
        # Whoever has lost the files gets others, also if a start fails before brokers know of it.
        shutil.rmtree(cli.data / "clients")
        missing = tmp_path / "missing.pem"
        failed = cli.up("--set", f"listener.name.client.ssl.keystore.location={missing}")
        assert failed.code != 0 and str(missing) in failed.out + failed.err
        assert cli.up().code == 0
        assert file.read_text() != first
        assert TOPIC in cli.ok("topic", "list").out
    finally:
        cli.close()


def test_certificates_of_clients_may_be_asked_for_besides(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data", *take_cluster_ports())
    certificates = Certificates(tmp_path / "clients")
    own = certificates.issue("alice", is_client=True)
    try:
        outcome = cli.up(
            "--secure",
            "--brokers",
            "1",
            "--set",
            "listener.name.client.ssl.client.auth=required",
            "--set",
            f"ssl.truststore.location={certificates.ca}",
        )
        assert outcome.code == 0, outcome
        settings = read_client_file(cli.data / "clients/admin.librdkafka")
        with pytest.raises(KafkaException):
            AdminClient(settings | {"log_level": "0"}).list_topics(timeout=3)
        shown = {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
        assert AdminClient(settings | shown).list_topics(timeout=DEADLINE_S).brokers
    finally:
        cli.close()
