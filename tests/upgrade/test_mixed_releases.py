"""An earlier build and this one in the same cluster, while a producer writes."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from live_candidates import Child
from stored_release import environment_of, unpack_predecessor
from waiting import wait_until

from fairlead_bench.peers.own_ports import take_ports
from fairlead_cli.client.features import survey_features, update_levels
from fairlead_model.features import FAIRLEAD_VERSION
from fairlead_model.session.calls import FeatureUpgradeType

pytestmark = [pytest.mark.slow]

TOPIC = "written-throughout"
PARTITIONS = 6
BROKERS = range(3)
STOP_DEADLINE_S = 60


class MixedCluster:
    """A controller and three brokers, each started with either build."""

    def __init__(self, directory: Path, earlier: Path) -> None:
        self.directory = directory
        self._environments = {True: environment_of(earlier), False: environment_of(None)}
        self._session, self._http = take_ports(2)
        self._ports = [take_ports(3) for _ in BROKERS]
        self._secret = directory / "secret"
        self._secret.write_text("a secret of tests only, long enough")
        self._secret.chmod(0o600)
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.end()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{ports[0]}" for ports in self._ports)

    def start_controller(self, *, earlier: bool) -> None:
        self._start("controller", self._controller_command(), earlier=earlier).wait_ready()

    def begin_broker(self, number: int, *, earlier: bool) -> None:
        """Start a broker without waiting until it serves."""
        self._start(f"broker-{number}", self._broker_command(number), earlier=earlier)

    def wait_ready(self, number: int) -> None:
        self._children[f"broker-{number}"].wait_ready()

    def stop(self, name: str) -> None:
        child = self._children[name]
        child.send(signal.SIGTERM)
        assert child.process.wait(STOP_DEADLINE_S) == 0, child.last_words()
        child.end()

    def kill(self, name: str) -> None:
        self._children[name].end()

    def replace_controller(self, *, earlier: bool) -> None:
        self.stop("controller")
        self.start_controller(earlier=earlier)

    def replace_broker(self, number: int, *, earlier: bool) -> None:
        """Stop a broker, start it with a build, and wait until all its replicas are in sync."""
        self.stop(f"broker-{number}")
        self.begin_broker(number, earlier=earlier)
        self.wait_ready(number)
        wait_until(self.is_in_sync, lambda: self.log(f"broker-{number}")[-2000:], deadline_s=60)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def is_in_sync(self) -> bool:
        topics = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(TOPIC, timeout=60)
        partitions = topics.topics[TOPIC].partitions
        return len(partitions) == PARTITIONS and all(
            len(each.isrs) == len(BROKERS) for each in partitions.values()
        )

    def _start(self, name: str, command: list[str], *, earlier: bool) -> Child:
        log = self.directory / f"{name}.log"
        child = self._children[name] = Child(command, log, **self._environments[earlier])
        return child

    def _controller_command(self) -> list[str]:
        return [
            *("-m", "fairlead_controller", "--data", str(self.directory / "metadata")),
            *("--port", str(self._session), "--http-port", str(self._http)),
            *("--cluster-secret-file", str(self._secret)),
        ]

    def _broker_command(self, number: int) -> list[str]:
        client, internal, http = self._ports[number]
        settings = {
            "node.id": str(number),
            "log.dirs": str(self.directory / f"broker-{number}"),
            "listeners": f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}",
            "fairlead.http.listener": f"127.0.0.1:{http}",
            "fairlead.controller.sessions": f"ws://127.0.0.1:{self._session}",
            "fairlead.cluster.secret.file": str(self._secret),
        }
        return [
            "-m",
            "fairlead_broker",
            *(f"--set={name}={each}" for name, each in settings.items()),
        ]


class Writer:
    """Writes numbered records with acks=all until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings | {"delivery.timeout.ms": 120_000})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(TOPIC, str(number), on_delivery=self._delivered(number))
            number += 1
            self._producer.poll(0.005)
        if left := self._producer.flush(120):
            self.errors.append(f"{left} records were never answered")

    def _delivered(self, number: int) -> Any:
        def on_delivery(error: KafkaError | None, _message: object) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.errors.append(str(error))

        return on_delivery


def read_all(bootstrap: str) -> Counter[int]:
    """Read the topic to its end: a record that is there twice may be the last one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    ends = {
        each: consumer.get_watermark_offsets(TopicPartition(TOPIC, each), timeout=30)[1]
        for each in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in ends])
    found: Counter[int] = Counter()

    def has_read() -> bool:
        for message in consumer.consume(500, timeout=1):
            assert message.error() is None, message.error()
            found[int(message.value() or b"")] += 1
        return bool(found.total() >= sum(ends.values()))

    try:
        wait_until(has_read, lambda: f"{found.total()} of {ends}", deadline_s=60)
    finally:
        consumer.close()
    return found


@pytest.fixture
def cluster(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Start a cluster of the earlier build, with a topic."""
    earlier = unpack_predecessor(tmp_path_factory.getbasetemp() / "predecessor")
    with MixedCluster(tmp_path, earlier) as made:
        made.start_controller(earlier=True)
        for number in BROKERS:
            made.begin_broker(number, earlier=True)
        for number in BROKERS:
            made.wait_ready(number)
        configs = {"min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, PARTITIONS, len(BROKERS), config=configs)
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        admin.create_topics([topic])[TOPIC].result(30)
        yield made


def test_a_cluster_is_upgraded_and_goes_back_and_is_upgraded_while_somebody_writes(
    cluster: MixedCluster,
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    levels, upgrade = {FAIRLEAD_VERSION: 2}, FeatureUpgradeType.UPGRADE
    with Writer(cluster.bootstrap) as writer:
        # The documented order: first the controller, then one broker after the other.
        cluster.replace_controller(earlier=False)
        for number in BROKERS:
            cluster.replace_broker(number, earlier=False)
            why_not = update_levels(admin, levels, upgrade, validate_only=True)
            behind = [each for each in BROKERS if f"broker {each} (fairlead.version 1" in why_not]
            assert behind == list(BROKERS)[number + 1 :], why_not

        # Downgrade, and upgrade in the other order: brokers are newer than their controller.
        for number in BROKERS:
            cluster.replace_broker(number, earlier=True)
        cluster.replace_controller(earlier=True)
        for number in BROKERS:
            cluster.replace_broker(number, earlier=False)
        cluster.replace_controller(earlier=False)
        # The newer controller hears what the brokers support, without their restart.
        wait_until(lambda: not update_levels(admin, levels, upgrade, validate_only=True))

        # A stopped broker was last seen with its earlier build, so the upgrade is refused.
        cluster.replace_broker(2, earlier=True)
        cluster.stop("broker-2")
        assert "broker 2 (fairlead.version 1 to 1" in update_levels(admin, levels, upgrade)
        assert survey_features(admin).levels[FAIRLEAD_VERSION] == 1
        cluster.begin_broker(2, earlier=False)
        cluster.wait_ready(2)
        assert update_levels(admin, levels, upgrade) == ""
        # Whichever broker is asked hears of it in its own time.
        wait_until(lambda: survey_features(admin).levels[FAIRLEAD_VERSION] == 2)

        # Now a downgrade is impossible: the earlier build is refused, and does no harm.
        cluster.stop("broker-2")
        cluster.begin_broker(2, earlier=True)
        wait_until(lambda: "fairlead.version is at level 2, supp" in cluster.log("broker-2"))
        cluster.kill("broker-2")
        cluster.begin_broker(2, earlier=False)
        cluster.wait_ready(2)
        cluster.replace_controller(earlier=False)
        wait_until(cluster.is_in_sync, deadline_s=60)
    assert writer.errors == []
    read = read_all(cluster.bootstrap)
    assert writer.acknowledged == read.keys()
    assert set(read.values()) == {1}
