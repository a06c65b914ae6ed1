"""Partitions move while somebody writes and a broker dies: all is there, once, and in order."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from local_cluster import Cli, take_cluster_ports
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]

TOPIC = "load"
PARTITIONS = 8
PADDING = 1000
PRELOADED = 1500
"""Records of each partition before anything moves: copies take a minute at the slow rate."""
RATE_SETTING = "fairlead.reassignment.throttled.rate"
SLOW, FAST = 64 << 10, 4 << 20
"""The copies must not be over before commands on a busy machine have killed a broker."""
FLUSH_S = 60.0


class Load:
    """An idempotent producer that numbers what it sends to each partition."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent: defaultdict[int, int] = defaultdict(int)
        self.acknowledged: defaultdict[int, int] = defaultdict(int)
        self.errors: list[KafkaError] = []

    def preload(self) -> None:
        for _ in range(PRELOADED):
            self._send_round()
        assert self._producer.flush(FLUSH_S) == 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_S) == 0

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._send_round()
            self._producer.poll(0.02)

    def _send_round(self) -> None:
        for partition in range(PARTITIONS):
            value = b"%0*d" % (PADDING, self.sent[partition])
            while True:
                try:
                    self._producer.produce(
                        TOPIC, value, partition=partition, on_delivery=self._on_delivery
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self.sent[partition] += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            partition = message.partition()
            assert partition is not None
            self.acknowledged[partition] += 1


def read_back(bootstrap: str) -> dict[int, list[int]]:
    """Return what each partition holds, in its order."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    ends: dict[int, int] = {}
    for partition in found:
        _, ends[partition] = consumer.get_watermark_offsets(
            TopicPartition(TOPIC, partition), timeout=FLUSH_S
        )
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in found])
    reached = dict.fromkeys(found, 0)

    def read_on() -> bool:
        for message in consumer.consume(1000, timeout=1.0):
            assert message.error() is None, message.error()
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            found[partition].append(int(value or b"-1"))
            reached[partition] = offset + 1
        return reached == ends

    wait_until(read_on)
    consumer.close()
    return found


@pytest.fixture
def four_brokers(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path / "data", *take_cluster_ports())
    try:
        assert cli.up("--brokers", "4", "--set", f"{RATE_SETTING}={SLOW}").code == 0
        yield cli
    finally:
        cli.close()


def copy_faster(bootstrap: str) -> None:
    """Tell it to every broker; the one that was killed is told when it is back."""
    entry = ConfigEntry(RATE_SETTING, str(FAST), incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for broker_id in range(4):
        resource = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])
        changed = admin.incremental_alter_configs([resource], request_timeout=FLUSH_S)
        changed[resource].result(FLUSH_S)


def moving(cli: Cli) -> list[dict[str, Any]]:
    rows = cli("topic", "reassign", TOPIC, "-o", "json").json
    return [row for row in rows if row["adding"] or row["removing"]]


def test_a_broker_dies_while_partitions_move_at_load(four_brokers: Cli) -> None:
    cli = four_brokers
    shape = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
    cli.ok("topic", "create", TOPIC, *shape, "--config", "min.insync.replicas=2")
    load = Load(cli.status()["bootstrap"])
    load.preload()
    (described,) = cli.ok("topic", "describe", TOPIC, "-o", "json").json
    left = described["partitions"][0]["leader"]
    staying = [str(each) for each in range(4) if each != left]
    load.start()
    try:
        to = [word for each in staying for word in ("--to", each)]
        begun = cli.ok("topic", "reassign", TOPIC, *to, "-o", "json").json
        assert len([row for row in begun if row["adding"]]) >= PARTITIONS // 2, begun
        cli.ok("broker", "kill", staying[0], "--no-wait")
        assert moving(cli), "it died in the midst"
        copy_faster(cli.status()["bootstrap"])
        wait_until(lambda: not moving(cli), deadline_s=120)
        at_the_end = dict(load.acknowledged)
        wait_until(lambda: all(load.acknowledged[each] > at_the_end[each] for each in at_the_end))
    finally:
        load.stop()
    assert load.errors == []
    assert load.acknowledged == load.sent
    for partition, numbers in read_back(cli.status()["bootstrap"]).items():
        assert numbers == list(range(load.sent[partition])), f"of partition {partition}"
    wait_until(lambda: not list(cli.data.glob(f"broker-{left}/{TOPIC}-*")))
    assert not list(cli.data.glob("broker-*/*-stray"))
