"""A cluster as the chart makes it: it encrypts, and asks everybody who they are.

Clients, certificates, and whatever of our own speaks Kafka.
"""

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from kubernetes_commands import CommandError, Kubectl, fresh_namespace, wait_until
from kubernetes_installation import (
    ROOT,
    SPARK_IMAGE,
    Installation,
    Summary,
    client_pod,
    user_pod,
)

from fairlead_operator.certificates.authority import KeyPair, issue_client, make_authority
from fairlead_tls.peer_names import PeerName, read_peer_names

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(420)]

NAMESPACE, CLUSTER = "fairlead-secured", "safe"
JOBS_NAMESPACE = "fairlead-secured-jobs"
NODE_PORT_BASE = 31190
BROKERS = 3
PASSWORD = "a password of a test"
INSIDE = """
import json, os, sys, time
from confluent_kafka import Consumer, Producer
settings = json.load(sys.stdin)
awaited, deadline = settings.pop("awaited"), time.monotonic() + 60
failures, values = set(), set()
settings["error_cb"] = lambda error: failures.add(error.name())
producer = Producer(settings | {"message.timeout.ms": 90000})
for number in range(100):
    producer.produce("orders", str(number))
# A busy machine takes its time over a handshake: wait until all is sent, or a refusal is told.
while len(producer) and awaited not in failures and time.monotonic() < deadline:
    producer.poll(0.1)
left = len(producer)
if not left:
    consumer = Consumer(settings | {"group.id": "shop", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    while len(values) < 100:
        values |= {each.value() for each in consumer.consume(100, 0.5) if each.value().isdigit()}
    consumer.close()
print(json.dumps({"left": left, "read": len(values), "failures": sorted(failures)}), flush=True)
os._exit(0)
"""

AS_A_PEER = """
import socket, ssl, sys
host, port, server_name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.load_verify_locations("/etc/fairlead-tls/ca.crt")
context.load_cert_chain("/etc/fairlead-tls/broker-0.pem")
raw = socket.create_connection((host, port), 30)
tls = context.wrap_socket(raw, server_hostname=server_name)
print(ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)))
"""
IN_CLEAR = """
import socket, sys
with socket.create_connection((sys.argv[1], 9094), 30) as plain:
    # ApiVersions, which a listener in clear answers.
    plain.sendall(bytes.fromhex("0000000d 0012 0000 00000001 0003 616263"))
    print("answer", plain.recv(100).hex() or "none")
"""


WITH_CERTIFICATES = {"tls": {"enabled": True}, "authentication": {"type": "tls"}}
OUTSIDE = {"name": "certs", "type": "NodePort", "port": 9095, "nodePortBase": NODE_PORT_BASE}
VALUES: dict[str, Any] = {
    "keep": False,
    "cluster.config": {"offsets.topic.num.partitions": 4},
    "cluster.listeners": [
        {"name": "inside", "type": "Internal", "port": 9097, **WITH_CERTIFICATES},
        {**OUTSIDE, **WITH_CERTIFICATES},
    ],
    "cluster.authorization": {"superUsers": ["admin"]},
    "cluster.reclaimPolicy": "Delete",
    "pools": {
        "brokers": None,
        "main": {
            "replicas": BROKERS,
            "storage": {"size": "1Gi"},
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
        },
    },
    "topics": {"orders": {"partitions": 3}},
    "users": {
        name: {
            "authentication": {"type": login},
            "acls": [
                {"resource": {"type": "topic", "name": "orders"}, "operations": ["Read", "Write"]}
            ],
        }
        for name, login in (("mutual", "tls"), ("password", "scram-sha-512"))
    },
}


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


class Secured:
    """The cluster, and its super user outside of Kubernetes."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        nodes = kubectl.items("nodes")
        self.node = nodes[0]["status"]["addresses"][0]["address"]

    def secret(self, name: str, key: str) -> bytes:
        return base64.b64decode(self.kubectl.get("secret", name)["data"][key])

    @property
    def ca(self) -> bytes:
        return self.secret(f"{CLUSTER}-ca", "ca.crt")

    @property
    def authority(self) -> KeyPair:
        name = f"{CLUSTER}-ca-key"
        return KeyPair(self.secret(name, "ca.crt"), self.secret(name, "ca.key"))

    def outside(self, **more: Any) -> dict[str, Any]:
        """Settings of the super user, who shows a certificate."""
        pair = issue_client(self.authority, "admin", datetime.now(UTC))
        return {
            "bootstrap.servers": f"{self.node}:{NODE_PORT_BASE}",
            "security.protocol": "ssl",
            "ssl.ca.pem": self.ca.decode(),
            "ssl.certificate.pem": pair.certificate.decode(),
            "ssl.key.pem": pair.key.decode(),
            **more,
        }

    def inside(self, ca: bytes, *, password: str = PASSWORD, awaited: str = "") -> dict[str, Any]:
        """What a client in a pod says after it has produced and consumed, or met an error."""
        settings = {
            "bootstrap.servers": f"{CLUSTER}-bootstrap.{NAMESPACE}.svc:9093",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "shop",
            "sasl.password": password,
            "ssl.ca.pem": ca.decode(),
            "awaited": awaited,
        }
        out = self.kubectl.exec("client", "python", "-c", INSIDE, stdin=json.dumps(settings))
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
        return told

    def shown(self) -> str:
        """The certificate that a broker shows now; CommandError if it shows none in time."""
        try:
            return ssl.get_server_certificate((self.node, NODE_PORT_BASE + 1), timeout=30)
        except OSError as error:
            raise CommandError(f"no certificate is shown: {error}") from error

    def pods(self) -> dict[str, tuple[str, int]]:
        pods = self.kubectl.items("pods", "-l", f"fairlead.io/cluster={CLUSTER}")
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                pod["status"]["containerStatuses"][0]["restartCount"],
            )
            for pod in pods
        }

    def is_ready(self) -> bool:
        status = self.kubectl.get("logcluster", CLUSTER).get("status") or {}
        ready = self.kubectl.condition("logcluster", CLUSTER, "Ready").get("status")
        return ready == "True" and status.get("brokersReady") == BROKERS


@pytest.fixture(scope="module")
def secured(installation: Installation, summary: Summary) -> Iterator[Secured]:
    installation.uninstall_operator()
    with fresh_namespace(NAMESPACE) as kubectl:
        place = Secured(kubectl)
        pod = client_pod()
        pod["metadata"]["namespace"] = NAMESPACE
        started = time.monotonic()
        installation.install_operator()
        installation.install_chart_cluster(CLUSTER, NAMESPACE, VALUES)
        try:
            kubectl.apply(user_pod("mutual", NAMESPACE, "mutual"))
            kubectl("wait", "--for=condition=Ready", "topic/orders", "--timeout=180s")
            kubectl("wait", "--for=condition=Ready", "pod/mutual")
            kubectl.exec("mutual", "fairlead", "produce", "orders", stdin="first\n")
            read = kubectl.exec("mutual", "fairlead", "consume", "orders", "--count", "1")
            assert read == "first\n"
            seconds = time.monotonic() - started
            summary.time("helm install to the first record over mTLS", seconds, 75)
            kubectl.apply(pod)
            patch = '{"spec":{"certificateAuthority":{"overlapDays":0}}}'
            kubectl("patch", "logcluster", CLUSTER, "--type=merge", "-p", patch)
            wait_until(place.is_ready, "the cluster is not Ready", 150)
            yield place
        finally:
            for kind in (
                "failoverdrills",
                "consumergroups",
                "streamjobs",
                "topics",
                "users",
                "logclusters",
                "brokerpools",
            ):
                with suppress(CommandError):
                    kubectl("delete", f"{kind}.fairlead.io", "--all", "--timeout=60s")


def test_a_user_with_a_password_reads_what_the_other_wrote(secured: Secured) -> None:
    secured.kubectl.apply(user_pod("password", NAMESPACE, "password"))
    secured.kubectl("wait", "--for=condition=Ready", "pod/password")
    secured.kubectl.exec("password", "fairlead", "produce", "orders", stdin="second\n")
    read = secured.kubectl.exec("password", "fairlead", "consume", "orders", "--count", "2")
    assert sorted(read.split()) == ["first", "second"]
    # Who has no Secret, such as who opens a shell in a broker's pod, gets in nowhere.
    with pytest.raises(CommandError):
        bootstrap = ("--bootstrap", f"{CLUSTER}-bootstrap:9093")
        secured.kubectl.exec(f"{CLUSTER}-main-0", "fairlead", "topic", "list", *bootstrap)


def test_a_super_user_outside_makes_a_user_by_its_certificate(secured: Secured) -> None:
    admin = AdminClient(secured.outside())
    user = UserScramCredentialUpsertion(
        "shop", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
    )
    rules = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:shop",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind, name in ((ResourceType.TOPIC, "orders"), (ResourceType.GROUP, "shop"))
    ]
    asked = [
        *admin.alter_user_scram_credentials([user]).values(),
        *admin.create_acls(rules).values(),
    ]
    for future in asked:
        future.result(60)


def test_a_client_inside_logs_in_with_the_ca_of_the_secret(secured: Secured) -> None:
    secured.kubectl("wait", "--for=condition=Ready", "pod/client")
    assert secured.inside(secured.ca) == {"left": 0, "read": 100, "failures": []}


def test_who_has_another_ca_or_password_is_refused(secured: Secured) -> None:
    other = make_authority("another", datetime.now(UTC)).certificate
    told = secured.inside(other, awaited="_SSL")
    assert told["read"] == 0
    assert "_SSL" in told["failures"]
    told = secured.inside(secured.ca, password="wrong", awaited="_AUTHENTICATION")
    assert told["read"] == 0
    assert "_AUTHENTICATION" in told["failures"]
    # A certificate of somebody else's authority, at the listener that asks for one.
    stranger = make_authority("stranger", datetime.now(UTC))
    pair = issue_client(stranger, "admin", datetime.now(UTC))
    admin = AdminClient(
        secured.outside()
        | {
            "ssl.certificate.pem": pair.certificate.decode(),
            "ssl.key.pem": pair.key.decode(),
        }
    )
    with pytest.raises(KafkaException, match=r"_TRANSPORT"):
        admin.list_topics(timeout=5)


def test_a_certificate_is_renewed_without_a_restart(secured: Secured, summary: Summary) -> None:
    pods, before = secured.pods(), secured.shown()
    live = Producer(secured.outside(acks="all"))
    # Without its certificate a listener gets a new one, as when that is about to end.
    patch = json.dumps([{"op": "remove", "path": "/data/certs.pem"}])
    secured.kubectl("patch", "secret", f"{CLUSTER}-main-tls", "--type=json", "-p", patch)
    seconds = wait_until(lambda: secured.shown() != before, "no new certificate is shown", 100)
    summary.time("a new certificate is served", seconds, 15)
    assert secured.pods() == pods
    told: list[KafkaError | None] = []
    live.produce("orders", "after", on_delivery=lambda error, _: told.append(error))
    assert live.flush(60) == 0
    assert told == [None]


def test_brokers_and_the_controller_show_each_other_who_they_are(secured: Secured) -> None:
    def in_a_broker(*command: str) -> str:
        return secured.kubectl.exec(f"{CLUSTER}-main-0", *command)

    def names(host: str, port: int) -> list[PeerName]:
        server_name = f"{CLUSTER}.{NAMESPACE}"
        pem = in_a_broker("python", "-c", AS_A_PEER, host, str(port), server_name)
        return list(read_peer_names(x509.load_pem_x509_certificate(pem.encode())))

    for broker_id in range(BROKERS):
        address = secured.kubectl.get("pod", f"{CLUSTER}-main-{broker_id}")["status"]["podIP"]
        assert names(address, 9094) == [PeerName(f"{NAMESPACE}/{CLUSTER}", broker_id)]
        assert in_a_broker("python", "-c", IN_CLEAR, address).split() == ["answer", "none"]
    settings = in_a_broker("grep", "controller.sessions", "/tmp/server.properties")
    _, _, urls = settings.strip().partition("=")
    for url in map(urlsplit, urls.split(",")):
        assert url.scheme == "wss"
        assert names(url.hostname or "", url.port or 0) == [PeerName(f"{NAMESPACE}/{CLUSTER}")]


def test_groups_are_followed_and_drills_run_where_everybody_is_asked(
    secured: Secured, summary: Summary
) -> None:
    secured.kubectl.apply(resource("ConsumerGroup", "shop", {"clusterName": CLUSTER}))
    drill = {
        "clusterName": CLUSTER,
        "target": {"type": "Leader", "topic": "orders", "partition": 0},
        "fault": {"type": "Kill"},
        "limits": {"recoveryMs": 20_000},
    }
    secured.kubectl.apply(resource("FailoverDrill", "leader", drill))
    wait_until(
        lambda: (
            (secured.kubectl.get("consumergroup", "shop").get("status") or {}).get("lag")
            is not None
        ),
        "the group is not followed",
        60,
    )
    wait = ("wait", "--for=condition=Complete", "failoverdrill/leader", "--timeout=180s")
    secured.kubectl(*wait)
    status = secured.kubectl.get("failoverdrill", "leader")["status"]
    passed = secured.kubectl.condition("failoverdrill", "leader", "Passed")
    assert passed["status"] == "True", status
    assert (status["lost"], status["duplicates"]) == (0, 0)
    summary.add("a drill of a secured cluster", passed["message"])


def wait_for_late_flights(secured: Secured, jobs: Kubectl, offset: int) -> None:
    """Wait until the sink holds what is late, from an offset; the job is one of `jobs`."""
    consumer = Consumer(secured.outside(**{"group.id": "admin"}))
    consumer.assign([TopicPartition("late-flights", 0, offset)])
    found: set[int] = set()

    def has_all() -> bool:
        found.update(
            json.loads(each.value() or b"")["flight"] for each in consumer.consume(100, 1.0)
        )
        return found == set(range(0, 300, 3))

    try:
        wait_until(has_all, "the sink does not hold what is late", 240)
    except AssertionError as error:
        said = jobs("get", "streamjob", "late-flights", "-o", "yaml")
        raise AssertionError(f"{error}: {sorted(found)}\n{said}") from error
    finally:
        consumer.close()


def test_a_stream_job_connects_as_the_user_that_it_names(
    secured: Secured, summary: Summary
) -> None:
    """The examples as they are, but for the cluster's name: one executor is enough."""
    if not SPARK_IMAGE:
        pytest.fail("no image of Spark: run `make e2e`")
    for name, partitions in (("flights", 2), ("late-flights", 1)):
        spec = {"clusterName": CLUSTER, "partitions": partitions, "reclaimPolicy": "Delete"}
        secured.kubectl.apply(resource("Topic", name, spec))
    secured.kubectl("wait", "--for=condition=Ready", "topic", "--all")
    producer = Producer(secured.outside())
    for number in range(300):
        flight = {"carrier": "UA", "flight": number, "origin": "JFK", "dest": "LAX"}
        delay = {"dep_delay": 61.0 if number % 3 == 0 else 5.0}
        producer.produce("flights", json.dumps(flight | delay), partition=number % 2)
    assert producer.flush(60) == 0
    started = time.monotonic()
    for file in ("late_flights_user.yaml", "late_flights.yaml"):
        manifest = yaml.safe_load((ROOT / "examples" / "spark" / file).read_text())
        manifest["spec"]["clusterName"] = CLUSTER
        if manifest["kind"] == "StreamJob":
            manifest["spec"] |= {"user": "late-flights", "checkpoint": {"ephemeral": True}}
            manifest["spec"]["executors"]["instances"] = 1
        secured.kubectl.apply(manifest)
    wait_for_late_flights(secured, secured.kubectl, 0)
    summary.add(
        "a StreamJob as a User, until its rows are there", f"{time.monotonic() - started:.0f} s"
    )
    secured.kubectl("delete", "streamjob", "late-flights", "--timeout=60s")


def test_a_stream_job_elsewhere_connects_by_a_secret_of_its_own_namespace(
    secured: Secured, summary: Summary
) -> None:
    """The example as it is, but for names: its Secret comes after it. The User is there already."""
    consumer = Consumer(secured.outside(**{"group.id": "admin"}))
    _, offset = consumer.get_watermark_offsets(TopicPartition("late-flights", 0), 60)
    consumer.close()
    allowed = json.dumps({"spec": {"spark": {"namespaces": [JOBS_NAMESPACE]}}})
    secured.kubectl("patch", "logcluster", CLUSTER, "--type=merge", "-p", allowed)
    started = time.monotonic()
    with fresh_namespace(JOBS_NAMESPACE) as jobs:
        text = (ROOT / "examples" / "kubernetes" / "stream-job.yaml").read_text()
        text = text.replace("demo", CLUSTER).replace(
            "namespace: jobs", f"namespace: {JOBS_NAMESPACE}"
        )
        for manifest in yaml.safe_load_all(text):
            if manifest["kind"] == "StreamJob":
                manifest["spec"] |= {
                    "clusterName": CLUSTER,
                    "clusterNamespace": NAMESPACE,
                    "checkpoint": {"ephemeral": True},
                    "executors": {"instances": 1},
                }
            jobs.apply(manifest)
        wait_until(
            lambda: (
                jobs.condition("streamjob", "late-flights", "Ready").get("reason")
                == "SecretNotFound"
            ),
            "the job says nothing of its Secret",
            60,
        )
        held = secured.kubectl.get("secret", "late-flights")
        copied = {key: held[key] for key in ("apiVersion", "kind", "type", "data")}
        jobs.apply(copied | {"metadata": {"name": "late-flights"}})
        wait_for_late_flights(secured, jobs, offset)
        summary.add(
            "a StreamJob of another namespace, by a copied Secret",
            f"{time.monotonic() - started:.0f} s",
        )
        jobs("delete", "streamjob", "late-flights", "--timeout=60s")


def test_another_authority_takes_over_without_a_restart(secured: Secured, summary: Summary) -> None:
    pods, first = secured.pods(), secured.authority.certificate
    secured.kubectl("annotate", "logcluster", CLUSTER, "fairlead.io/rotate-authority=1")

    def is_rotated() -> bool:
        ca = secured.ca
        return first not in ca and ca == secured.authority.certificate

    seconds = wait_until(is_rotated, "the authority is the old one", 120)
    summary.add("another authority", f"{seconds:.0f} s")
    assert secured.pods() == pods
    consumer = Consumer(secured.outside(**{"group.id": "admin"}))
    consumer.assign([TopicPartition("orders", number, 0) for number in range(3)])
    found: list[Any] = []

    def consume() -> bool:
        found.extend(consumer.consume(10, 1.0))
        return bool(found)

    wait_until(consume, "no records", 60)
    consumer.close()
