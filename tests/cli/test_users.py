"""`fairlead user` and `fairlead acl` against a secure cluster, and Kafka's tools beside them."""

import base64
import re
import socket
import ssl
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from local_cluster import Cli, take_cluster_ports
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import ensure_kafka
from fairlead_cli.local.client_files import read_client_file
from fairlead_wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A secure cluster of two brokers, so that one hears of what another was asked for."""
    cli = Cli(tmp_path_factory.mktemp("users") / "data", *take_cluster_ports())
    try:
        outcome = cli.up("--secure", "--brokers", "2")
        assert outcome.code == 0, outcome
        for topic in ("orders", "payments"):
            cli.ok("topic", "create", topic)
        yield cli
    finally:
        cli.close()


@pytest.fixture
def open_cli(tmp_path: Path) -> Iterator[Cli]:
    """A cluster that asks nobody who he is."""
    cli = Cli(tmp_path / "data", *take_cluster_ports())
    try:
        outcome = cli.up("--brokers", "1")
        assert outcome.code == 0, outcome
        yield cli
    finally:
        cli.close()


def test_users_are_listed_and_removed_where_nothing_is_authorized(open_cli: Cli) -> None:
    """They were made before somebody asks for a login."""
    assert "no users who log in" in open_cli.ok("user", "list").err
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{open_cli.port}"})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    upsertion = UserScramCredentialUpsertion("shop", info, b"secret")
    admin.alter_user_scram_credentials([upsertion])["shop"].result(DEADLINE_S)
    listed = open_cli.ok("user", "list", "-o", "json")
    (shop,) = listed.json
    assert shop.pop("isSuperUser") is False
    assert shop == {"name": "shop", "mechanisms": {"SCRAM-SHA-512": 4096}, "acls": []}
    assert "each user may do everything" in listed.err
    assert "Deleted user shop" in open_cli.ok("user", "delete", "shop", "--yes").out
    assert open_cli.ok("user", "list", "-o", "json").json == []


def settings(cli: Cli, name: str) -> dict[str, str]:
    return read_client_file(cli.data / "clients" / f"{name}.librdkafka")


def error_of_produce(cli: Cli, name: str, topic: str) -> int | None:
    """What a record of a user meets: None, or the code of the error."""
    said: list[KafkaError | None] = []
    own = settings(cli, name) | {"message.timeout.ms": "60000", "log_level": "0"}
    producer = Producer(own)
    producer.produce(topic, b"v", on_delivery=lambda error, _: said.append(error))
    assert producer.flush(90) == 0
    (error,) = said
    return None if error is None else error.code()


def test_a_user_may_do_what_was_said_and_nothing_else(cli: Cli) -> None:
    made = cli.ok("user", "create", "shop", "--acl", "WRITE topic:orders")
    assert "Added ALLOW User:shop WRITE TOPIC orders." in made.out
    for ending in ("properties", "librdkafka"):
        file = cli.data / "clients" / f"shop.{ending}"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert error_of_produce(cli, "shop", "orders") is None
    assert error_of_produce(cli, "shop", "payments") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer(settings(cli, "shop") | {"group.id": "g", "log_level": "0"})
    consumer.subscribe(["orders"])
    with pytest.raises(KafkaException) as refused:
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            if message.error() is not None:
                raise KafkaException(message.error())
    consumer.close()
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    listed = {user["name"]: user for user in cli.ok("user", "list", "-o", "json").json}
    assert listed["shop"] == {
        "name": "shop",
        "mechanisms": {"SCRAM-SHA-512": 4096},
        "acls": ["WRITE topic:orders"],
        "isSuperUser": False,
    }
    assert listed.keys() >= {"admin", "shop"}
    assert listed["admin"]["isSuperUser"] is True
    shown = cli.ok("user", "list").out.splitlines()
    (admin,) = (line for line in shown if "admin" in line.split())
    assert admin.rstrip().endswith("everything (a super user)")
    twice = cli("user", "create", "shop")
    assert twice.code == 1 and "already" in twice.err


def test_who_may_read_a_topic_reads_it_without_a_group(cli: Cli) -> None:
    """librdkafka looks for the coordinator of a group that nobody joins, and is refused."""
    cli.ok("user", "create", "lonely", "--acl", "READ,WRITE topic:payments")
    file = ("--client-config", str(cli.data / "clients" / "lonely.librdkafka"))
    cli.ok("produce", "payments", *file, stdin="one\n")
    read = cli.ok("consume", "payments", "--count", "1", "--timeout-ms", "20000", *file)
    assert read.out == "one\n"
    refused = cli("consume", "payments", "--group", "any", "--count", "1", *file)
    assert refused.code == 1
    assert "GROUP_AUTHORIZATION_FAILED" in refused.err


def test_who_may_not_read_settings_sees_the_rest_of_a_topic(cli: Cli) -> None:
    """To read and to write include to describe a topic, and not its settings."""
    cli.ok("user", "create", "narrow", "--acl", "WRITE topic:orders")
    file = ("--client-config", str(cli.data / "clients" / "narrow.librdkafka"))
    shown = cli.ok("topic", "describe", "orders", *file)
    assert "health" in shown.out
    assert "Its settings are not shown" in shown.out
    (described,) = cli.ok("topic", "describe", "orders", "-o", "json", *file).json
    assert described["configs"] is None
    assert described["partitions"][0]["endOffset"] is not None
    refused = cli("topic", "alter", "orders", "--config", "retention.ms=1000", *file)
    assert refused.code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.err


def scram_challenge(cli: Cli, user: str) -> bytes:
    """What anybody is told of a user before the password."""
    file = settings(cli, "admin")
    host, port = file["bootstrap.servers"].split(",")[0].rsplit(":", 1)
    context = ssl.create_default_context(cafile=file["ssl.ca.location"])
    with (
        socket.create_connection((host, int(port)), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):

        def ask(request: SaslHandshakeRequest | SaslAuthenticateRequest, version: int) -> bytes:
            frame = struct.pack(">hhih", request.API_KEY, version, 1, -1)
            frame += b"".join(cast("list[bytes]", request.encode(version)))
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            with connection.makefile("rb") as answers:
                (size,) = struct.unpack(">i", answers.read(4))
                return answers.read(size)

        ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1)
        first = f"n,,n={user},r=fresh".encode()
        reply = ask(SaslAuthenticateRequest(auth_bytes=first), 1)
        answer, _ = SaslAuthenticateResponse.decode(memoryview(reply), 4, 1)
        return bytes(answer.auth_bytes)


def test_a_user_looks_like_one_who_is_not_there(cli: Cli) -> None:
    """R32, with users as this command and `up --secure` make them."""
    cli.ok("user", "create", "looked-at")
    for user in ("looked-at", "admin", "nobody"):
        salt, iterations = re.findall(rb",s=([^,]+),i=(\d+)$", scram_challenge(cli, user))[0]
        assert re.fullmatch(rb"[0-9a-z]{26}", base64.b64decode(salt)), user
        assert iterations == b"4096", user


def test_a_decision_is_explained(cli: Cli) -> None:
    cli.ok("acl", "create", "--user", "bob", "READ topic:or*", "READ group:g")
    asked = ("acl", "test", "--user", "bob", "--topic", "orders", "--operation")
    # Whichever broker is asked hears of a rule in its own time.
    wait_until(lambda: cli(*asked, "DESCRIBE").code == 0)
    allowed = cli(*asked, "DESCRIBE")
    assert "allows it: READ implies DESCRIBE" in allowed.out
    denied = cli(*asked, "WRITE", "-o", "json")
    assert denied.code == 1 and denied.json["allowed"] is False
    root = cli("acl", "test", "--user", "admin", "--operation", "ALTER", "--cluster")
    assert root.code == 0 and "super.users" in root.out
    cli.ok("acl", "delete", "--user", "bob", "READ topic:or*")
    wait_until(lambda: cli(*asked, "DESCRIBE").code == 1)
    again = cli("acl", "delete", "--user", "bob", "READ topic:or*")
    assert again.code == 1 and "There is no rule" in again.err

    def left() -> list[str]:
        rules = cli.ok("acl", "list", "--user", "bob", "-o", "json").json
        return [rule["resource"] for rule in rules]

    wait_until(lambda: left() == ["group:g"])


def test_who_may_not_look_at_rules_is_told_so(cli: Cli) -> None:
    cli.ok("user", "create", "curious")
    file = str(cli.data / "clients" / "curious.librdkafka")
    refused = cli("acl", "list", "--client-config", file)
    assert refused.code == 1 and "CLUSTER_AUTHORIZATION_FAILED" in refused.err
    assert cli.ok("topic", "list", "-o", "json", "--client-config", file).json == []
    for question in (["user", "list"], ["rebalance"], ["broker", "disks", "1"]):
        refused = cli(*question, "--client-config", file)
        # librdkafka's Python client crashes over a refused list of users.
        assert refused.code == 1, refused
        assert " (CLUSTER_AUTHORIZATION_FAILED)" in refused.err


def test_a_wrong_password_is_told_at_once(cli: Cli, tmp_path: Path) -> None:
    right = (cli.data / "clients" / "admin.librdkafka").read_text()
    file = tmp_path / "wrong.librdkafka"
    file.write_text(re.sub("sasl.password=.*", "sasl.password=wrong", right))
    for command in (["topic", "list"], ["status"], ["consume", "orders"]):
        refused = cli(*command, "--client-config", str(file))
        assert refused.code == 1, refused
        assert "refuses the login: Authentication failed" in refused.err
        assert str(file) in refused.err


def test_a_user_who_is_deleted_is_gone_at_once(cli: Cli) -> None:
    made = cli(
        "user", "create", "leaver", "--acl", "ALL topic:*", "--password-stdin", stdin="a b\n"
    )
    assert made.code == 0, made
    assert settings(cli, "leaver")["sasl.password"] == "a b"
    assert error_of_produce(cli, "leaver", "payments") is None
    held = Producer(settings(cli, "leaver") | {"message.timeout.ms": "3000", "log_level": "0"})
    asked = cli("user", "delete", "leaver")
    assert asked.code == 2 and "--yes" in asked.err
    cli.ok("user", "delete", "leaver", "--yes")
    assert not list((cli.data / "clients").glob("leaver.*"))
    wait_until(lambda: cli.ok("acl", "list", "--user", "leaver", "-o", "json").json == [])
    said: list[KafkaError | None] = []
    held.produce("payments", b"v", on_delivery=lambda error, _: said.append(error))
    held.flush(DEADLINE_S)
    (error,) = said
    assert error is not None
    gone = cli("user", "delete", "leaver", "--yes")
    assert gone.code == 1 and "no user" in gone.err
    own = cli("user", "delete", "admin", "--yes")
    assert own.code == 2 and "cut itself off" in own.err


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "", "a b", "x" * 129])
def test_names_that_are_no_names_of_files_are_refused(cli: Cli, name: str) -> None:
    assert cli("user", "create", "--", name).code == 2


def test_files_of_a_user_are_made_where_there_is_no_cluster(cli: Cli, tmp_path: Path) -> None:
    """As on a machine that only knows the address of a cluster, and how to log in."""
    file = ("--client-config", str(cli.data / "clients" / "admin.librdkafka"))
    folder = tmp_path / "not there yet"
    Cli(folder, cli.port, cli.http_port).ok("user", "create", "remote", *file)
    made = read_client_file(folder / "clients" / "remote.librdkafka")
    assert made["sasl.username"] == "remote"
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "clients").touch()
    refused = Cli(taken, cli.port, cli.http_port)("user", "create", "nobody", *file)
    assert (refused.code, "Traceback" in refused.err) == (1, False), refused
    assert f"{taken}/clients cannot hold what clients log in with" in refused.err
    assert "nobody" not in {user["name"] for user in cli.ok("user", "list", "-o", "json").json}


def test_a_user_whose_file_cannot_be_written_is_told_of(cli: Cli) -> None:
    (cli.data / "clients" / "unlucky.properties.tmp").mkdir()
    told = cli("user", "create", "unlucky")
    assert (told.code, "Traceback" in told.err) == (1, False), told
    assert "user 'unlucky' is made, but nobody knows the password" in told.err
    assert "fairlead user delete unlucky --yes" in told.err


def test_a_file_of_a_deleted_user_that_cannot_be_removed_is_told_of(cli: Cli) -> None:
    """Such as where the folder has become read-only; the rights are gone by then."""
    cli.ok("user", "create", "sticky", "--acl", "READ topic:orders")
    file = cli.data / "clients" / "sticky.librdkafka"
    file.unlink()
    file.mkdir()
    told = cli("user", "delete", "sticky", "--yes")
    assert (told.code, "Traceback" in told.err) == (1, False), told
    assert "user sticky has no password and no access rules any more, but a file" in told.err
    assert f"cannot be removed: Is a directory ({file})" in told.err
    assert "sticky" not in {user["name"] for user in cli.ok("user", "list", "-o", "json").json}
    assert not (cli.data / "clients" / "sticky.curl").exists()
    file.rmdir()


def test_a_user_is_made_while_a_broker_is_frozen(cli: Cli) -> None:
    """Nobody could say the password again."""
    cli.ok("broker", "pause", "0")
    try:
        cli.ok("user", "create", "early", "--acl", "WRITE topic:orders")
    finally:
        cli.ok("broker", "resume", "0")
    assert error_of_produce(cli, "early", "orders") is None


@pytest.mark.parametrize("frozen", ["0", "1"])
def test_rules_and_quotas_are_read_and_changed_while_a_broker_is_frozen(
    cli: Cli, frozen: str
) -> None:
    """Commands ask one that answers, whichever that is."""
    cli.ok("broker", "pause", frozen)
    try:
        cli.ok("acl", "create", "--user", "cold", "READ topic:orders")
        assert cli.ok("acl", "list", "--user", "cold", "-o", "json").json
        cli.ok("acl", "test", "--user", "cold", "--operation", "READ", "--topic", "orders")
        cli.ok("quota", "set", "--user", "cold", "producer_byte_rate=1000")
        assert cli.ok("quota", "list", "-o", "json").json
        cli.ok("quota", "remove", "--user", "cold")
        cli.ok("acl", "delete", "--user", "cold", "READ topic:orders")
    finally:
        cli.ok("broker", "resume", frozen)


@pytest.fixture(scope="module")
def tools(cli: Cli) -> JavaTools:
    return JavaTools(ensure_kafka(), f"127.0.0.1:{cli.port + 50}")


@pytest.mark.java
def test_kafka_acls_adds_lists_and_removes(cli: Cli, tools: JavaTools) -> None:
    command = ("--command-config", str(cli.data / "clients/admin.properties"))
    who = ("--allow-principal", "User:eve")
    tools.run("kafka-acls", *command, "--add", *who, "--producer", "--topic", "orders")
    prefix = ("--resource-pattern-type", "prefixed")
    consumer = ("--consumer", "--topic", "pay", "--group", "g", *prefix)
    tools.run("kafka-acls", *command, "--add", *who, *consumer)
    tools.run("kafka-acls", *command, "--add", *who, "--operation", "All", "--cluster")
    listed = tools.run("kafka-acls", *command, "--list", "--principal", "User:eve")
    assert listed.count("principal=User:eve") == 7
    assert "name=pay, patternType=PREFIXED" in listed
    matching = ("--topic", "payments", "--resource-pattern-type", "match")
    assert "name=pay," in tools.run("kafka-acls", *command, "--list", *matching)
    tools.run("kafka-acls", *command, "--remove", *who, *consumer, "--force")
    tools.run(
        "kafka-acls", *command, "--remove", *who, "--cluster", "--force", "--operation", "All"
    )
    left = cli.ok("acl", "list", "--user", "eve", "-o", "json").json
    assert {rule["resource"] for rule in left} == {"topic:orders"}


@pytest.mark.java
def test_kafka_configs_gives_users_passwords_and_shows_none(cli: Cli, tools: JavaTools) -> None:
    command = ("--command-config", str(cli.data / "clients/admin.properties"))
    entity = ("--entity-type", "users", "--entity-name", "mallory")
    for config in ("SCRAM-SHA-256=[iterations=8192,password=secret]", "SCRAM-SHA-512=[password=s]"):
        tools.run("kafka-configs", *command, "--alter", *entity, "--add-config", config)
    shown = tools.run("kafka-configs", *command, "--describe", *entity)
    assert "SCRAM-SHA-256=iterations=8192" in shown
    assert "SCRAM-SHA-512=iterations=4096" in shown
    gone = ("--delete-config", "SCRAM-SHA-256")
    tools.run("kafka-configs", *command, "--alter", *entity, *gone)
    everybody = tools.run("kafka-configs", *command, "--describe", "--entity-type", "users")
    assert "mallory" in everybody
    assert "SCRAM-SHA-256" not in everybody
