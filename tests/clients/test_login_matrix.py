"""Every client logs in by every mechanism it has, over TLS 1.3 and 1.2: the table of the docs.

A record written and read in a group shows more than a connection: the rights of who came in hold
for him, whichever way he came.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from compiled_programs import MissingError, build
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from login_clients import (
    IN_PYTHON,
    Login,
    by_confluent,
    by_kafkas_tools,
    by_kcat,
    by_program,
    by_python,
)
from needed_tools import missing, need
from secure_listener import Certificates
from tokens import TokenIssuer, oauth_settings

from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka
from fairlead_bench.peers.own_ports import take_ports
from fairlead_bench.peers.peer import wait_until_ready
from fairlead_bench.project import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Exchange = Callable[[Login, str, str, bytes], None]

pytestmark = pytest.mark.slow

USER: Final = "alice"
PASSWORD: Final = "a pass;word = of hers"
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "")
CLIENTS: Final = (
    "confluent-kafka", "kafka-python", "aiokafka", "Kafka's tools", "franz-go", "kcat", "KafkaJS",
    "@platformatic/kafka",
)  # fmt: skip
# Debian's kcat has no way to show a signed token.
WAYS: Final = [
    (client, mechanism)
    for client in CLIENTS
    for mechanism in MECHANISMS
    if (client, mechanism) != ("kcat", "OAUTHBEARER")
]
BY_PASSWORD: Final = MECHANISMS[:3]
ISSUER: Final = TokenIssuer()
GO_PROGRAM: Final = PROJECT / "tests/clients/franz_login"
NODE_PROGRAMS: Final = {
    "KafkaJS": "login_kafkajs.mjs",
    "@platformatic/kafka": "login_platformatic.mjs",
}
TLS_VERSIONS: Final = ("TLSv1.3", "TLSv1.2")


class SecureBroker:
    """A broker with a listener for each way in and each version of TLS, and one in clear."""

    def __init__(self, folder: Path) -> None:
        self.certificates = Certificates(folder / "certificates")
        self.certificates.issue("server")
        self.client_certificate = self.certificates.issue(USER, is_client=True)
        names = [f"{way}{version[-1]}" for way in ("LOGIN", "SHOW") for version in TLS_VERSIONS]
        self._ports = dict(zip(names, take_ports(len(names)), strict=True))
        protocols = {"LOGIN": "SASL_SSL", "SHOW": "SSL"}
        settings = {
            "listener.security.protocol.map": ",".join(
                ["CLIENT:PLAINTEXT", *(f"{each}:{protocols[each[:-1]]}" for each in names)]
            ),
            "ssl.keystore.location": str(self.certificates.directory / "server.pem"),
            "ssl.truststore.location": str(self.certificates.ca),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
            "sasl.enabled.mechanisms": ",".join(each for each in MECHANISMS if each),
            "super.users": "User:ANONYMOUS",
            "group.initial.rebalance.delay.ms": "0",
            **oauth_settings(ISSUER.write(folder / "jwks.json")),
        }
        for name in names:
            of_listener = f"listener.name.{name.lower()}"
            version = f"TLSv1.{name[-1]}"
            settings[f"{of_listener}.ssl.enabled.protocols"] = version
            if name.startswith("SHOW"):
                settings[f"{of_listener}.ssl.client.auth"] = "required"
        self.peer = FairleadPeer(folder / "cluster", settings)
        self.peer.add_listeners(self._ports)

    def login(self, mechanism: str, version: str) -> Login:
        way = "LOGIN" if mechanism else "SHOW"
        return Login(
            mechanism,
            f"127.0.0.1:{self._ports[way + version[-1]]}",
            self.certificates.ca,
            self.client_certificate,
            USER,
            PASSWORD,
            ISSUER.sign(sub=USER),
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    made = SecureBroker(tmp_path_factory.mktemp("logins"))
    with made.peer as peer:
        peer.start()
        wait_until_ready(peer)
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
        let_in(admin)
        yield made


def let_in(admin: AdminClient) -> None:
    """Give the user passwords, and the rights to what is named like this file's topics."""
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(60)
    rights = [
        AclBinding(
            kind, "login-", ResourcePatternType.PREFIXED, f"User:{USER}", "*", operation,
            AclPermissionType.ALLOW,
        )
        for kind, operation in (
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.GROUP, AclOperation.READ),
        )
    ]  # fmt: skip
    for future in admin.create_acls(rights).values():
        future.result(60)


@pytest.fixture
def topic(broker: SecureBroker) -> str:
    name = f"login-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": broker.peer.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Exchange:
    program = tmp_path_factory.mktemp("franz") / "login"
    try:
        build(["go", "build", "-o", str(program), "."], GO_PROGRAM)
    except MissingError as error:
        pytest.skip(str(error))
    return by_program(str(program))


@pytest.fixture
def exchange_by(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Login], Exchange]:
    """Give a client; one that this machine lacks skips the test."""

    def give(client: str, login: Login) -> Exchange:
        if client in IN_PYTHON:
            return by_python(client)
        if client == "franz-go":
            exchange: Exchange = request.getfixturevalue("franz_go")
            return exchange
        if client == "kcat":
            need("kcat")
            return by_kcat
        if client in NODE_PROGRAMS:
            folder: Path = request.getfixturevalue("node_programs")
            return by_program("node", str(folder / NODE_PROGRAMS[client]))
        try:
            tools = JavaTools(ensure_kafka(), login.bootstrap)
        except KafkaUnavailableError as error:
            missing(str(error))
        # The Java client reads tokens from files that its machine's owner has allowed.
        allowed = (tmp_path / "token").as_uri()
        monkeypatch.setenv(
            "JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}"
        )
        return by_kafkas_tools(tools, tmp_path)

    return give


def name_of(name: str) -> str:
    """No mechanism is the name of coming in by a certificate."""
    return name or "certificate"


@pytest.mark.parametrize("version", TLS_VERSIONS)
@pytest.mark.parametrize(("client", "mechanism"), WAYS, ids=name_of)
def test_a_client_logs_in_writes_and_reads(
    broker: SecureBroker,
    topic: str,
    exchange_by: Callable[[str, Login], Exchange],
    client: str,
    mechanism: str,
    version: str,
) -> None:
    login = broker.login(mechanism, version)
    exchange_by(client, login)(login, topic, f"{topic}-group", b"a record")


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_password_is_told_as_such(
    broker: SecureBroker,
    topic: str,
    exchange_by: Callable[[str, Login], Exchange],
    client: str,
    mechanism: str,
) -> None:
    login = replace(broker.login(mechanism, "TLSv1.3"), password="a guess")
    exchange = exchange_by(client, login)
    with pytest.raises(Exception, match=r".") as refused:
        exchange(login, topic, f"{topic}-group", b"a record")
    assert "authentication failed" in str(refused.value).lower(), refused.value


def test_rights_end_at_their_prefix(broker: SecureBroker) -> None:
    """The tests above would pass, too, if nobody asked for rights."""
    login = broker.login("", "TLSv1.3")
    admin = AdminClient({"bootstrap.servers": broker.peer.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("of-others", 1, 1)])["of-others"].result(60)
    with pytest.raises(AssertionError, match="TOPIC_AUTHORIZATION_FAILED"):
        by_confluent(login, "of-others", "login-group", b"a record")
