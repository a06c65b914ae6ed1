"""Applications that mount the Secrets of Users: a broker's process lets them do what they may.

The operator's part and the controller run here, before an API server in memory.
"""

from __future__ import annotations

import asyncio
import base64
import random
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from controller_bench import CLUSTER
from fake_resource_server import FakeResourceServer
from live_candidates import Child
from needed_tools import is_on_the_path
from secure_listener import Certificates
from topic_bench import eventually
from user_bench import InProcessController, allow, encoded, user
from waiting import until

from fairlead_bench.peers.own_ports import take_ports
from fairlead_controller.controller import open_controller
from fairlead_controller.decisions.events import CreateTopics, DeclareTopics, ElectLeaders
from fairlead_controller.local.server import ControllerServer
from fairlead_controller.startup_topics import Declarations
from fairlead_controller.stores.file import open_file_store
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.kinds import LOG_CLUSTER, SECRET, USER
from fairlead_operator.certificates.rotation import Authorities, write_authorities
from fairlead_operator.events import EventWriter
from fairlead_operator.specs.client_access import MOUNT_FOLDER
from fairlead_operator.specs.names import (
    CLUSTER_LABEL,
    REST_PORT,
    authority_secret_name,
    trust_secret_name,
)
from fairlead_operator.users.sync import UserSync
from fairlead_spark.cluster import Cluster
from fairlead_spark.errors import SourceError
from fairlead_spark.offsets import LATEST, TopicPartition
from fairlead_spark.options import parse_source_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECRET_TEXT = b"a secret of tests only, long enough"
NAMESPACE = "shop"
TIMEOUT_S = 60.0
REFUSED_S = 15.0
START_S = 90.0
"""A broker starts in less than two seconds where it has a core."""


def listener(login: str, port: int) -> dict[str, Any]:
    return {
        "name": login.partition("-")[0],
        "type": "Internal",
        "port": port,
        "tls": {},
        "authentication": {"type": login},
    }


class Ports(NamedTuple):
    """Where the broker listens."""

    scram: int
    tls: int
    rest: int


class World:
    """A cluster of one broker, and the operator of its Users."""

    def __init__(self, kube: KubeClient, controller: Any, folder: Path, ports: Ports) -> None:
        self.kube = kube
        self.controller = controller
        self._folder = folder
        self._ports = ports

    async def mount(self, name: str) -> dict[str, str]:
        """Wait for a User; return its client's settings, as its pod has them."""

        async def is_ready() -> bool:
            held = await self.kube.get(USER, NAMESPACE, name)
            conditions = (held.get("status") or {}).get("conditions") or [{}]
            return bool(conditions[0].get("status") == "True")

        await eventually(is_ready, lambda: f"{name} to be ready")
        secret = await self.kube.get(SECRET, NAMESPACE, name)
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        for key, text in secret["data"].items():
            (folder / key).write_bytes(base64.b64decode(text))
        self._bring_here(folder / "curl.config", folder / "rest.url", folder / "librdkafka.config")
        text = (folder / "librdkafka.config").read_text()
        return dict(line.split("=", 1) for line in text.splitlines())

    def _bring_here(self, *files: Path) -> None:
        """Name this machine and the folder, where a pod finds a Service and its mount."""
        service = f"{CLUSTER}-bootstrap.{NAMESPACE}.svc"
        for file in files:
            text = file.read_text().replace(
                f"{service}:{REST_PORT}", f"{service}:{self._ports.rest}"
            )
            text = text.replace(service, "127.0.0.1")
            file.write_text(text.replace(MOUNT_FOLDER, str(file.parent)))


@asynccontextmanager
async def world(directory: Path, http_login: str) -> AsyncIterator[World]:
    certificates = Certificates(directory / "tls")
    (directory / "secret").write_bytes(SECRET_TEXT)
    (directory / "secret").chmod(0o600)
    session, *taken = take_ports(4)
    ports = Ports(*taken)
    async with AsyncExitStack() as stack:
        store = await open_file_store(directory / "store")
        stack.push_async_callback(store.close)
        controller = await open_controller(store, now_ms=lambda: 0, random_source=random.Random(1))
        await stack.enter_async_context(running(controller.run()))
        await controller.submit(ElectLeaders())
        declarations = Declarations(controller, DeclareTopics(()), expected_brokers=1)
        server = ControllerServer(controller, declarations, secret=SECRET_TEXT)
        stack.push_async_callback(server.stop)
        await server.start(host="127.0.0.1", session_port=session, http_port=0)
        await stack.enter_async_context(running(server.sessions.watch()))
        broker = start_broker(directory, certificates, session, ports, http_login)
        stack.callback(broker.end)
        await until(lambda: controller.committed.image.is_live(0), deadline_s=START_S)

        api = FakeResourceServer()
        await api.start()
        stack.push_async_callback(api.stop)
        kube = KubeClient(Credentials(api.url, None), request_timeout_s=10.0, connect_timeout_s=5.0)
        stack.push_async_callback(kube.close)
        key = write_authorities(Authorities(current=certificates.authority))
        trusted = {"ca.crt": encoded(certificates.authority.certificate.decode())}
        for name, data in (
            (authority_secret_name(CLUSTER), key),
            (trust_secret_name(CLUSTER), trusted),
        ):
            metadata = {"name": name, "labels": {CLUSTER_LABEL: CLUSTER}}
            await kube.create(SECRET, NAMESPACE, {"metadata": metadata, "data": data})
        listeners = [listener("scram-sha-512", ports.scram), listener("tls", ports.tls)]
        rest = {"enabled": True, "tls": {}, "authentication": {"type": http_login}}
        spec = {"listeners": listeners, "rest": rest}
        manifest = {"metadata": {"name": CLUSTER}, "spec": spec}
        await kube.create(LOG_CLUSTER, NAMESPACE, manifest)
        remote = InProcessController(controller, f"{NAMESPACE}/{CLUSTER}")
        remote.sessions = server.sessions  # type: ignore[assignment]
        sync = UserSync(kube, remote, EventWriter(kube), namespaces=[NAMESPACE])
        await stack.enter_async_context(running(sync.run()))
        yield World(kube, controller, directory, ports)


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


MAPPING_RULES = "RULE:^CN=([^,+]+)$/$1/,DEFAULT"
HTTP_LOGINS = {
    "scram-sha-512": {"fairlead.rest.authentication": "BASIC"},
    "tls": {
        "listener.name.rest.ssl.client.auth": "required",
        "listener.name.rest.ssl.principal.mapping.rules": MAPPING_RULES,
    },
}


def start_broker(
    directory: Path, certificates: Certificates, session: int, ports: Ports, http_login: str
) -> Child:
    values = {
        "node.id": "0",
        "log.dirs": str(directory / "broker"),
        "listeners": f"SCRAM://127.0.0.1:{ports.scram},TLS://127.0.0.1:{ports.tls},INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "SCRAM:SASL_SSL,TLS:SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.location": str(certificates.issue("server")),
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.principal.mapping.rules": MAPPING_RULES,
        "fairlead.rest.listener": f"https://127.0.0.1:{ports.rest}",
        "fairlead.http.listener": "127.0.0.1:0",
        "fairlead.controller.sessions": f"ws://127.0.0.1:{session}",
        "fairlead.cluster.secret.file": str(directory / "secret"),
        **HTTP_LOGINS[http_login],
    }
    chosen = [f"--set={name}={value}" for name, value in values.items()]
    return Child(["-m", "fairlead_broker", *chosen], directory / "broker.log")


def produce(settings: dict[str, str], topic: str, timeout_s: float = TIMEOUT_S) -> int:
    """Write a record; Kafka's code of the outcome."""
    codes: list[int] = []
    timeout_ms = str(round(1000 * timeout_s))
    producer = Producer(settings | {"message.timeout.ms": timeout_ms, "log_level": "0"})
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: codes.append(error.code() if error else 0)
    )
    producer.flush(2 * TIMEOUT_S)
    return codes[0]


def consume(settings: dict[str, str], topic: str) -> bytes | None:
    """Read a record as a member of a group."""
    consumer = Consumer(
        settings | {"group.id": "orders-1", "auto.offset.reset": "earliest", "log_level": "0"}
    )
    try:
        consumer.subscribe([topic])
        record = consumer.poll(TIMEOUT_S)
        return None if record is None else record.value()
    finally:
        consumer.close()


def look(settings: dict[str, str], topic: str) -> int:
    """Ask for a topic; Kafka's code of the answer."""
    consumer = Consumer(settings | {"group.id": "orders-1", "log_level": "0"})
    try:
        error = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].error
        return 0 if error is None else int(error.code())
    finally:
        consumer.close()


def read_by_http(folder: Path, topic: str) -> int:
    """Read the topic's first record with curl; the status of the answer."""
    url = f"{(folder / 'rest.url').read_text()}/topics/{topic}/partitions/0/records?timeout=0"
    command = ["curl", "-s", "-K", str(folder / "curl.config"), "--noproxy", "*"]
    asked = [*command, "-o", str(folder / "answer"), "-w", "%{http_code}", url]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    return int(said.stdout)


def look_from_spark(folder: Path, topic: str) -> int:
    """Return the end of a topic, as a task of Spark sees it that has the Secret mounted."""
    options = {"clientConfig": str(folder / "librdkafka.config"), "subscribe": topic}
    cluster = Cluster(parse_source_options(options, is_stream=False).client)
    try:
        where = TopicPartition(topic, 0)
        return cluster.list_offsets({where: LATEST})[where]
    finally:
        cluster.close()


async def create_topics(controller: Any, *names: str) -> None:
    topics = [
        {"name": name, "partitions": 1, "replication_factor": 1, "assignments": {}, "configs": {}}
        for name in names
    ]
    call = {
        "topics": topics,
        "validate_only": False,
        "default_partitions": 1,
        "default_replication_factor": 1,
    }
    reply = await controller.submit(CreateTopics(call))  # type: ignore[arg-type]
    assert not any(each["error_code"] for each in reply["topics"])


@pytest.mark.parametrize("login", ["scram-sha-512", "tls"])
def test_an_application_does_what_its_user_may_and_nothing_else(tmp_path: Path, login: str) -> None:
    async def story(of: World) -> None:
        await create_topics(of.controller, "orders", "payments")
        spec: dict[str, Any] = {
            "authentication": {"type": login},
            "acls": [
                allow("Read", "Write"),
                {
                    "resource": {"type": "group", "name": "orders-", "patternType": "prefixed"},
                    "operations": ["Read"],
                },
            ],
        }
        await of.kube.create(USER, NAMESPACE, user("app", **spec))
        settings = await of.mount("app")
        ask = asyncio.to_thread
        assert await ask(produce, settings, "orders") == 0
        assert await ask(consume, settings, "orders") == b"x"
        denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert await ask(produce, settings, "payments") == denied
        assert await ask(look, settings, "payments") == denied
        assert await ask(look_from_spark, tmp_path / "app", "orders") == 1
        with pytest.raises(SourceError, match="TOPIC_AUTHORIZATION_FAILED"):
            await ask(look_from_spark, tmp_path / "app", "payments")
        if is_on_the_path("curl"):
            assert await ask(read_by_http, tmp_path / "app", "orders") == HTTPStatus.OK
            assert await ask(read_by_http, tmp_path / "app", "payments") == HTTPStatus.FORBIDDEN

        reading = {"spec": {"acls": [allow("Read"), spec["acls"][1]]}}
        await of.kube.patch(USER, NAMESPACE, "app", reading)
        await eventually(lambda: is_denied(settings), lambda: "writing to be denied")
        assert await ask(look, settings, "orders") == 0

        await of.kube.delete(USER, NAMESPACE, "app")
        await eventually(lambda: is_gone(of, "app"), lambda: "app to be gone")
        # The User is gone only once brokers go by that. A password that nobody knows any more is
        # tried again and again.
        code = await ask(produce, settings, "orders", REFUSED_S)
        assert code == denied if login == "tls" else code != 0

    async def played() -> None:
        async with world(tmp_path, login) as of:
            await story(of)

    asyncio.run(played())


async def is_denied(settings: dict[str, str]) -> bool:
    code = await asyncio.to_thread(produce, settings, "orders")
    return bool(code == KafkaError.TOPIC_AUTHORIZATION_FAILED)


async def is_gone(of: World, name: str) -> bool:
    held = (await of.kube.list(USER, NAMESPACE)).items
    return all(each["metadata"]["name"] != name for each in held)
