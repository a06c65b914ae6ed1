"""Reading and writing a cluster that encrypts and asks who is there: source, sink and jobs."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from local_cluster import Cli, take_cluster_ports
from secure_listener import Certificates
from token_server import TokenServer
from tokens import TokenIssuer, oauth_settings
from waiting import wait_until

from fairlead_cli.local.client_files import read_client_file
from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import Cluster
from fairlead_spark.errors import SourceError
from fairlead_wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = 50
LIFE_S = 12
EARLY = (0.25, 0.3)
"""When it logs in again, of that life: a busy machine has long until the login ends."""
FRESH_S = 3
"""The life that the endpoint tells of: so each login is by another token."""
ISSUER = TokenIssuer()
RIGHTS = (
    "READ topic:in",
    "WRITE topic:out",
    "READ topic:out",
    "READ group:copies",
    "WRITE transactional-id:fairlead-spark.*",
)
JOB = """\
apiVersion: fairlead.io/v1alpha1
kind: StreamJob
metadata: {name: copies}
spec:
  application: {sql: SELECT value FROM records}
  sources: [{topics: [in], view: records, options: {startingOffsets: earliest}}]
  sink: {topic: out}
  checkpoint: {ephemeral: true}
"""


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("secure") / "data", *take_cluster_ports())
    try:
        settings = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            "super.users": "User:admin;User:service",
            **oauth_settings(ISSUER.write(tmp_path_factory.mktemp("keys") / "jwks.json")),
        }
        said = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]
        outcome = cli.up("--secure", *said)
        assert outcome.code == 0, outcome
        for topic in ("in", "out", "closed"):
            cli.ok("topic", "create", topic)
        rights = [part for right in RIGHTS for part in ("--acl", right)]
        cli.ok("user", "create", "copier", *rights)
        producer = Producer(read_client_file(client_file(cli, "admin")) | {"log_level": "0"})
        for number in range(ROWS):
            producer.produce("in", f"value {number}".encode())
        assert producer.flush(30) == 0
        yield cli
    finally:
        cli.close()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    def answer() -> tuple[int, dict[str, Any]]:
        return 200, {"access_token": ISSUER.sign(sub="service"), "expires_in": 600}

    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    with TokenServer(certificates, answer).serving() as started:
        yield started


def token_file(cli: Cli, tokens: TokenServer, folder: Path, **changes: str) -> Path:
    known = read_client_file(client_file(cli, "admin"))
    settings = tokens.client_settings(**changes)
    for name in ("bootstrap.servers", "ssl.ca.location"):
        settings[name] = known[name]
    file = folder / "service.librdkafka"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return file


def client_file(cli: Cli, user: str) -> Path:
    return cli.data / "clients" / f"{user}.librdkafka"


def read(spark: SparkSession, file: Path, topic: str) -> set[str]:
    options = {"clientConfig": str(file), "subscribe": topic}
    rows = spark.read.format("fairlead").options(**options).load()
    return {row.value for row in rows.selectExpr("CAST(value AS STRING) AS value").collect()}


def test_tasks_encrypt_and_log_in(spark: SparkSession, cli: Cli) -> None:
    file = client_file(cli, "copier")
    assert read(spark, file, "in") == {f"value {number}" for number in range(ROWS)}
    rows = spark.createDataFrame([(f"written {number}",) for number in range(ROWS)], ["value"])
    options = {"clientConfig": str(file), "topic": "out"}
    rows.write.format("fairlead").options(**options).mode("append").save()
    assert read(spark, file, "out") >= {f"written {number}" for number in range(ROWS)}


def test_a_refused_login_fails_at_once_and_says_whose(
    spark: SparkSession, cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.librdkafka"
    settings = read_client_file(client_file(cli, "copier")) | {"sasl.password": "not-his"}
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    with pytest.raises(Exception, match="does not let user copier in") as refused:
        read(spark, file, "in")
    assert "not-his" not in str(refused.value)


def test_tasks_log_in_by_tokens(
    spark: SparkSession, cli: Cli, tokens: TokenServer, tmp_path: Path
) -> None:
    file = token_file(cli, tokens, tmp_path)
    cli.ok("topic", "create", "by-token")
    rows = spark.createDataFrame([(f"token {number}",) for number in range(ROWS)], ["value"])
    options = {"clientConfig": str(file), "topic": "by-token", "exactlyOnce": "true"}
    rows.write.format("fairlead").options(**options).mode("append").save()
    assert read(spark, file, "by-token") == {f"token {number}" for number in range(ROWS)}


def test_a_client_whose_secret_is_refused_fails_at_once_and_names_the_endpoint(
    spark: SparkSession, cli: Cli, tokens: TokenServer, tmp_path: Path
) -> None:
    changed = {"sasl.oauthbearer.client.secret": "not-its"}
    file = token_file(cli, tokens, tmp_path, **changed)
    with pytest.raises(Exception, match=f"{tokens.url} gives client app no token") as refused:
        read(spark, file, "in")
    assert "not-its" not in str(refused.value)


def test_a_connection_logs_in_again_before_its_token_ends(
    cli: Cli, tokens: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a login with its token; the reply that was read last stays where it lies."""

    def answer() -> tuple[int, dict[str, Any]]:
        token = ISSUER.sign(sub="service", exp=int(time.time()) + LIFE_S + 1)
        return 200, {"access_token": token, "expires_in": FRESH_S}

    monkeypatch.setattr(tokens, "answer", answer)
    monkeypatch.setattr(limits, "REAUTHENTICATION_SHARES", EARLY)
    file = token_file(cli, tokens, tmp_path, **{"sasl.oauthbearer.scope": "short"})
    bootstrap = read_client_file(file)["bootstrap.servers"]
    cluster = Cluster(ClientSettings(bootstrap, config_file=str(file)))
    (node_id, *_) = cluster.read_node_ids()
    connection = cluster.connection(node_id)
    until = time.monotonic() + 1.5 * LIFE_S
    asked = len(tokens.asked)
    while time.monotonic() < until:
        kept = bytes(connection.frame)
        sent = connection.send(MetadataRequest(topics=[]), 12)
        assert connection.frame[: len(kept)] == kept
        connection.receive(MetadataRequest.API_KEY, 12, sent, timeout_s=30)
        time.sleep(0.1)
    assert cluster.connection(node_id) is connection
    assert len(tokens.asked) >= asked + 2
    cluster.close()


def test_a_login_that_is_refused_the_second_time_is_tried_on_a_new_connection(
    cli: Cli, tokens: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it logged in with may have been changed since; a new connection reads the file anew."""
    answered: list[str] = []

    def answer() -> tuple[int, dict[str, Any]]:
        issuer = TokenIssuer() if len(answered) == 1 else ISSUER
        answered.append(issuer.sign(sub="service", exp=int(time.time()) + LIFE_S + 1))
        return 200, {"access_token": answered[-1], "expires_in": FRESH_S}

    monkeypatch.setattr(tokens, "answer", answer)
    monkeypatch.setattr(limits, "REAUTHENTICATION_SHARES", EARLY)
    file = token_file(cli, tokens, tmp_path, **{"sasl.oauthbearer.scope": "changing"})
    bootstrap = read_client_file(file)["bootstrap.servers"]
    cluster = Cluster(ClientSettings(bootstrap, config_file=str(file)))
    wait_until(lambda: cluster.read_node_ids() and len(answered) > 2)
    assert cluster.read_node_ids()
    cluster.close()


def test_a_token_that_the_broker_refuses_is_an_error_that_shows_none(
    cli: Cli, tokens: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = TokenIssuer().sign(sub="service")
    monkeypatch.setattr(tokens, "answer", lambda: (200, {"access_token": foreign}))
    file = token_file(cli, tokens, tmp_path, **{"sasl.oauthbearer.scope": "foreign"})
    bootstrap = read_client_file(file)["bootstrap.servers"]
    cluster = Cluster(ClientSettings(bootstrap, config_file=str(file)))
    said = f"does not let client app with a token of {tokens.url} in"
    with pytest.raises(SourceError, match=said) as refused:
        cluster.read_node_ids()
    assert foreign not in str(refused.value)


def test_who_forgets_the_clients_file_is_told_of_it(cli: Cli) -> None:
    """A broker that encrypts only closes the connection."""
    cluster = Cluster(
        ClientSettings(read_client_file(client_file(cli, "admin"))["bootstrap.servers"])
    )
    request = MetadataRequest(topics=None)
    with pytest.raises(SourceError, match="clientConfig if brokers encrypt or ask who is there"):
        cluster.retry(lambda: cluster.call_any(request, 9), "the topics", timeout_s=0.3)


def test_a_certificate_that_is_not_trusted_is_an_error_at_once_that_says_what_to_check(
    cli: Cli, tokens: TokenServer, tmp_path: Path
) -> None:
    """It was one after a minute, and spoke of addresses and leaders."""
    changed = tokens.client_settings()["https.ca.location"]
    settings = read_client_file(client_file(cli, "admin")) | {"ssl.ca.location": changed}
    file = tmp_path / "stranger.librdkafka"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    cluster = Cluster(ClientSettings(settings["bootstrap.servers"], config_file=str(file)))
    with pytest.raises(SourceError, match=r"certificate.*Check ssl\.ca\.location"):
        cluster.read_node_ids()


def test_what_the_user_may_not_read_is_not_read(spark: SparkSession, cli: Cli) -> None:
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
        read(spark, client_file(cli, "copier"), "closed")


def test_a_job_of_this_machine_takes_a_clients_file(
    spark: SparkSession, cli: Cli, tmp_path: Path
) -> None:
    job = tmp_path / "copies.yaml"
    job.write_text(JOB)
    done = run_job(cli, job, "--client-config", str(client_file(cli, "copier")))
    assert done.returncode == 0, done.stderr
    found = read(spark, client_file(cli, "copier"), "out")
    assert found >= {f"value {number}" for number in range(ROWS)}
    described = cli.ok("group", "describe", "copies", "-o", "json").json
    assert described[0]["lag"] == 0
    (document,) = (cli.data / "spark" / "copies").glob("*.json")
    assert json.loads(document.read_text())["clientConfig"].endswith("copier.librdkafka")


def run_job(cli: Cli, job: Path, *more: str) -> Any:
    # A job of seconds ends before the second compiler has paid for itself.
    short_lived = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return subprocess.run(
        [
            *cli.command("spark", "run", str(job), "--available-now"),
            *("--master", "local[2]", "--conf", short_lived, *more),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
