"""Candidates and brokers as child processes, on the tests' ZooKeeper ensemble."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from live_candidates import Child
from waiting import wait_until

from fairlead_bench.peers.own_ports import take_ports
from fairlead_zookeeper import znodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.client import KazooClient
    from zookeeper_ensemble import ZooKeeperEnsemble

PARTITION_UA = -1
"""Any partition; the name is librdkafka's."""
SECRET_TEXT = "a secret of tests only, long enough"
SCRIPT = Path(__file__).with_name("zookeeper_candidate.py")
SESSION_TIMEOUT_MS = 2000
ANSWER_S = 30.0
"""On a busy machine a live candidate may answer late; nobody asks one that is paused."""
TOPIC = "t"


class Candidate:
    """One controller process; it keeps its ports and its folder when it is started again."""

    def __init__(self, cluster: ZooKeeperCluster, number: int) -> None:
        self.number = number
        self.identity = f"controller-{znodes.CONTROLLER_ID_MIN + number}"
        self.session_port, self.http_port = take_ports(2)
        self.directory = cluster.directory / f"candidate-{number}"
        self.log = cluster.directory / f"candidate-{number}.log"
        self._cluster = cluster
        self._child: Child | None = None

    def start(self) -> None:
        given = {
            "connect": self._cluster.connect,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "node_id": znodes.CONTROLLER_ID_MIN + self.number,
            "session_port": self.session_port,
            "http_port": self.http_port,
            "secret": SECRET_TEXT,
            "data": str(self.directory),
            **self._cluster.settings,
        }
        self._child = Child([str(SCRIPT), json.dumps(given)], self.log)
        self._child.wait_ready()

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.process.pid

    @property
    def exit_code(self) -> int | None:
        assert self._child is not None, "not started"
        return self._child.process.poll()

    def send(self, number: int) -> None:
        assert self._child is not None, "not started"
        self._child.send(number)

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        self.send(signal.SIGTERM)
        assert self._child is not None
        code = self._child.process.wait(20)
        self._child.end()
        return code

    def kill(self) -> None:
        if self._child is not None:
            self._child.end()

    def page(self, path: str) -> dict[str, Any]:
        """Return a page as JSON; empty if the process does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}{path}", timeout=ANSWER_S
            ) as on:
                found: dict[str, Any] = json.loads(on.read())
                return found
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code}
        except OSError:
            return {}

    def metric(self, name: str) -> float:
        return read_metric(self.http_port, name)

    @property
    def is_active(self) -> bool:
        return self.page("/healthz").get("role") == "active"

    @property
    def epoch(self) -> int:
        return int(self.page("/healthz").get("controllerEpoch", 0))

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def read_metric(http_port: int, name: str) -> float:
    """Return a metric of a process, summed over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/metrics", timeout=ANSWER_S) as on:
        lines = on.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith((f"{name} ", f"{name}{{"))
    )


class ZooKeeperCluster:
    """Some candidates and brokers under a chroot."""

    def __init__(
        self,
        directory: Path,
        ensemble: ZooKeeperEnsemble,
        chroot: str,
        *,
        candidates: int = 2,
        brokers: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.directory = directory
        self.ensemble = ensemble
        self.chroot = chroot
        self.connect = ensemble.connect_string(chroot)
        self.settings = settings or {}
        self.secret = directory / "secret"
        self.secret.write_text(SECRET_TEXT)
        self.secret.chmod(0o600)
        self.candidates = [Candidate(self, number) for number in range(candidates)]
        self.brokers: list[Child] = []
        self._broker_count = brokers
        self._clients = [take_ports(3) for _ in range(brokers)]

    def __enter__(self) -> Self:
        try:
            for candidate in self.candidates:
                candidate.start()
            self.active()
            for number in range(self._broker_count):
                self.brokers.append(self._begin_broker(number))
            for broker in self.brokers:
                broker.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for broker in self.brokers:
            broker.end()
        for candidate in self.candidates:
            candidate.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{ports[0]}" for ports in self._clients)

    @property
    def candidate_pids(self) -> list[int]:
        return [each.pid for each in self.candidates]

    def active(self, *, other_than: Candidate | None = None) -> Candidate:
        """Wait for a candidate that reigns, and return it."""

        def find() -> Candidate | None:
            others = (each for each in self.candidates if each is not other_than)
            return next((each for each in others if each.is_active), None)

        return wait_until(find, self.last_words)

    def wait_heard(self, holder: Candidate) -> None:
        """Wait until all others receive its beats: before that only ZooKeeper reports its death."""
        for each in self.candidates:
            if each is not holder:
                wait_until(lambda each=each: each.page("/healthz").get("hearsController"))  # type: ignore[misc]

    def last_words(self) -> str:
        return "\n".join(
            f"{each.identity}:\n" + "\n".join(each.said().splitlines()[-12:])
            for each in self.candidates
        )

    def create_topic(self, partitions: int = 3, replication_factor: int = 2) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(TOPIC, partitions, replication_factor)
        admin.create_topics([topic])[TOPIC].result(30)

    def wait_until_all_logs_are_open(self) -> None:
        """Wait until each broker has the logs of all its replicas, also of the groups' topic.

        A client with a group, as every consumer of librdkafka has, has that topic made. A broker
        that is killed between hearing of its replicas and making their logs cannot go on without a
        controller: they may have been lost.
        """
        names = (TOPIC, "__consumer_offsets")

        def are_open() -> bool:
            pages = [self.active().page(f"/status/topics/{name}") for name in names]
            parts = [each for page in pages for each in page.get("partitionList", [])]
            wanted = Counter(replica for each in parts for replica in each["replicas"])
            return all(page.get("partitionList") for page in pages) and all(
                read_metric(ports[2], "kafka_server_replicamanager_partitioncount")
                == wanted[number]
                for number, ports in enumerate(self._clients)
            )

        wait_until(are_open, self.last_words)

    def producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def restart_broker(self, number: int) -> None:
        """Kill a broker and restart it with its data, as its supervisor would."""
        self.brokers[number].end()
        self.brokers[number] = self._begin_broker(number)

    def _begin_broker(self, number: int) -> Child:
        client, internal, http = self._clients[number]
        sessions = ",".join(f"ws://127.0.0.1:{each.session_port}" for each in self.candidates)
        settings = {
            "node.id": str(number),
            "log.dirs": str(self.directory / f"broker-{number}"),
            "listeners": f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}",
            "fairlead.http.listener": f"127.0.0.1:{http}",
            "fairlead.controller.sessions": sessions,
            "fairlead.cluster.secret.file": str(self.secret),
        }
        chosen = [f"--set={name}={value}" for name, value in settings.items()]
        return Child(["-m", "fairlead_broker", *chosen], self.directory / f"broker-{number}.log")


class Reader:
    """Reads all partitions of the topic from the beginning, without a group."""

    def __init__(self, cluster: ZooKeeperCluster) -> None:
        self.found: list[str] = []
        """Values in the order in which they came."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
            }
        )
        known = self._consumer.list_topics(TOPIC, 30).topics[TOPIC].partitions
        self._consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in known])

    def read_until(self, text: str) -> None:
        """Read on until a value has come."""
        deadline = time.monotonic() + 30
        while text not in self.found:
            assert time.monotonic() < deadline, f"{text!r} does not come"
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.found.append(message.value().decode())

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()


def produce(producer: Producer, text: str, *, partition: int = PARTITION_UA) -> bool:
    """Write one record; tell whether it was acknowledged in time."""
    done: list[bool] = []
    producer.produce(
        TOPIC, text, partition=partition, on_delivery=lambda error, _: done.append(error is None)
    )
    deadline = time.monotonic() + 30
    while not done and time.monotonic() < deadline:
        producer.poll(0.05)
    return done == [True]


def read_json(client: KazooClient, path: str) -> dict[str, Any]:
    """Return the JSON object in a znode."""
    found: dict[str, Any] = json.loads(client.get(path)[0])
    return found


def is_there(client: KazooClient, path: str) -> bool:
    return client.exists(path) is not None


def eventually(condition: Callable[[], Any], what: str = "it never came true") -> Any:
    """Wait for a condition that may raise errors at first."""

    def ask() -> Any:
        with suppress(Exception):
            return condition()
        return None

    return wait_until(ask, what)
