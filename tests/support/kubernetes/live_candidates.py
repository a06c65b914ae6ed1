"""Two controller candidates and some brokers as child processes, on a real API server."""

from __future__ import annotations

import base64
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

from fairlead_bench.peers.own_ports import take_ports
from fairlead_kube.kinds import LOG_CLUSTER, POD, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fairlead_kube.client import KubeClient

CLUSTER = "c"
SECRET_TEXT = b"a secret of tests only, long enough"
READY_DEADLINE_S = 60.0

T = TypeVar("T")


class Child:
    """A process that prints `ready name=value …` on its standard output."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PYTHONSAFEPATH": "1"} | environment,
            )
        self.ready: dict[str, str] = {}

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        output = self.process.stdout
        deadline = time.monotonic() + READY_DEADLINE_S
        line = b""
        while not line.endswith(b"\n"):
            left = max(deadline - time.monotonic(), 0)
            readable, _, _ = select.select([output], [], [], left)
            chunk = os.read(output.fileno(), 4096) if readable else b""
            assert chunk, self.last_words()
            line += chunk
        self.ready = dict(word.split("=", 1) for word in line.decode().split() if "=" in word)

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Candidate(Child):
    """One controller process; it keeps its ports when it is started again."""

    def __init__(
        self,
        directory: Path,
        namespace: str,
        number: int,
        ports: tuple[int, int],
        *,
        watched: str,
        **environment: str,
    ) -> None:
        self.name = f"operator-{number}"
        self.ports = ports
        self.socket = directory / f"{self.name}.sock"
        super().__init__(
            [
                *("-m", "fairlead_controller.kubernetes", "--host", "127.0.0.1"),
                *("--session-port", str(ports[0]), "--http-port", str(ports[1])),
                *("--socket", str(self.socket)),
            ],
            directory / f"{self.name}.log",
            POD_NAME=self.name,
            POD_NAMESPACE=namespace,
            FAIRLEAD_WATCH_NAMESPACE=watched,
            **environment,
        )
        self.wait_ready()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page."""
        url = f"http://127.0.0.1:{self.ports[1]}{path}"
        try:
            with urllib.request.urlopen(url, timeout=READY_DEADLINE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask the admin API on the unix socket."""
        connection = _UnixConnection(str(self.socket))
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"null")
        finally:
            connection.close()

    @property
    def role(self) -> str:
        try:
            return str(json.loads(self.get("/readyz")[1])["role"])
        except OSError:
            return "gone"

    @property
    def epoch(self) -> int:
        """Return the controller epoch of the cluster; 0 if this process is not active."""
        try:
            clusters = self.ask("GET", "/v1/state")[1]["clusters"]
        except OSError:
            return 0
        return max((int(each["controllerEpoch"]) for each in clusters.values()), default=0)

    def metric(self, name: str) -> float:
        text = self.get("/metrics")[1]
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith((f"{name} ", f"{name}{{"))
        )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("controller", timeout=READY_DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class CandidateCluster:
    """A namespace with a LogCluster, two candidates, and brokers that know both."""

    def __init__(self, directory: Path, namespace: str) -> None:
        self.directory = directory
        self.namespace = namespace
        self.home = self.watched = namespace
        """Namespace of the candidates and their Lease; namespaces that they watch, with commas."""
        self.secret = directory / "secret"
        self.secret.write_bytes(SECRET_TEXT)
        self.secret.chmod(0o600)
        self.ports = [(first, second) for first, second in (take_ports(2), take_ports(2))]
        self.candidates: list[Candidate] = []
        self.environment: dict[str, str] = {}
        """Environment of candidates that are started from now on."""
        self.brokers: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in [*self.brokers, *self.candidates]:
            child.end()

    @property
    def path(self) -> str:
        return f"/v1/clusters/{self.namespace}/{CLUSTER}"

    def partitions(self, candidate: Candidate, topic: str) -> list[dict[str, Any]]:
        """The partitions of a topic as a candidate sees them."""
        status, page = candidate.ask("GET", f"{self.path}/topics/{topic}")
        assert status == 200, page
        found: list[dict[str, Any]] = page["partitionList"]
        return found

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.ready["kafka"] for broker in self.brokers)

    async def declare(self, kube: KubeClient, **spec: Any) -> None:
        """Make the LogCluster and its Secret, as the operator's other process would."""
        await skip_beside_an_operator(kube)
        labels = {"fairlead.io/cluster": CLUSTER}
        await kube.create(
            SECRET,
            self.namespace,
            {
                "metadata": {"name": f"{CLUSTER}-session", "labels": labels},
                "data": {"secret": base64.b64encode(SECRET_TEXT).decode()},
            },
        )
        await kube.create(
            LOG_CLUSTER,
            self.namespace,
            {
                "apiVersion": LOG_CLUSTER.api_version,
                "kind": LOG_CLUSTER.kind,
                "metadata": {"name": CLUSTER},
                "spec": spec,
            },
        )

    def start_candidate(self, number: int) -> Candidate:
        candidate = Candidate(
            self.directory,
            self.home,
            number,
            self.ports[number],
            watched=self.watched,
            **self.environment,
        )
        self.candidates.append(candidate)
        return candidate

    def start_broker(self, node_id: int, *, pod_uid: str = "", **settings: str) -> Child:
        """Start a broker; `settings` have their dots as underscores."""
        urls = [f"ws://127.0.0.1:{port}/{self.namespace}/{CLUSTER}" for port, _ in self.ports]
        values = {
            "node.id": str(node_id),
            "log.dirs": str(self.directory / f"broker-{node_id}"),
            "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            "fairlead.http.listener": "127.0.0.1:0",
            "fairlead.controller.sessions": ",".join(urls),
            "fairlead.cluster.secret.file": str(self.secret),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        chosen = [f"--set={name}={value}" for name, value in values.items()]
        broker = Child(
            ["-m", "fairlead_broker", *chosen],
            self.directory / f"broker-{node_id}.log",
            POD_UID=pod_uid,
        )
        self.brokers.append(broker)
        return broker

    def active(self) -> Candidate:
        """Wait for the active candidate and return it."""
        return wait_for(
            lambda: next(
                (each for each in self.candidates if each.process.poll() is None and each.epoch),
                None,
            )
        )


async def skip_beside_an_operator(kube: KubeClient) -> None:
    """Skip the test if an installed operator serves all namespaces: it would take the cluster."""
    selector = "app.kubernetes.io/name=fairlead,app.kubernetes.io/component=operator"
    for pod in (await kube.list(POD, label_selector=selector)).items:
        entries = pod["spec"]["containers"][0].get("env") or []
        if not {each["name"]: each.get("value") for each in entries}.get(
            "FAIRLEAD_WATCH_NAMESPACE"
        ):
            reason = "an operator serves all namespaces of this cluster: uninstall it"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)


def create_topic(bootstrap: str, name: str, partitions: int = 6, replicas: int = 3) -> None:
    """Create a topic over Kafka's protocol."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(60)


def produce(bootstrap: str, topic: str, partitions: int = 6) -> None:
    """Have a record acknowledged by the in-sync replicas of every partition."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(partitions):
        producer.produce(
            topic,
            b"x",
            partition=number,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []


def wait_for(condition: Callable[[], T | None], timeout_s: float = 60.0) -> T:
    """Wait until a condition is true; return its value."""
    return wait_until(condition, deadline_s=timeout_s)
