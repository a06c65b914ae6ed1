"""Topic administration by real clients: confluent-kafka and kafka-python against one broker."""

import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from waiting import wait_until

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def admin(live_cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": live_cluster.bootstrap, "log_level": 2})


@pytest.fixture(scope="module")
def python_admin(live_cluster: Any) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=live_cluster.bootstrap)
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(DEADLINE_S)


def produce(admin: AdminClient, cluster: Any, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def refusal(ask: Callable[[], Any]) -> str:
    with pytest.raises(KafkaException) as caught:
        ask()
    return str(caught.value.args[0].name())


def offset(admin: AdminClient, name: str, spec: OffsetSpec) -> int:
    partition = TopicPartition(name, 0)
    return int(admin.list_offsets({partition: spec})[partition].result(DEADLINE_S).offset)


def configs(admin: AdminClient, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    described = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return dict(described)


def test_a_created_topic_is_visible_at_once(admin: AdminClient, name: str) -> None:
    create(admin, name, partitions=3)
    topic = admin.list_topics(name, timeout=DEADLINE_S).topics[name]
    assert topic.error is None
    assert {index: each.leader for index, each in topic.partitions.items()} == dict.fromkeys(
        range(3), 0
    )


def test_creation_is_refused_with_kafkas_errors(admin: AdminClient, name: str) -> None:
    create(admin, name)
    for topic, code in (
        (NewTopic(name, 1, 1), "TOPIC_ALREADY_EXISTS"),
        (NewTopic("no spaces", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic(f"{name}-rf", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (NewTopic(f"{name}-no", 0, 1), "INVALID_PARTITIONS"),
        (NewTopic(f"{name}-x", 1, 1, config={"no.such": "1"}), "INVALID_CONFIG"),
        (NewTopic(f"{name}-y", 1, 1, config={"retention.ms": "x"}), "INVALID_CONFIG"),
    ):
        outcome = admin.create_topics([topic])[topic.topic]
        assert refusal(partial(outcome.result, DEADLINE_S)) == code


def test_validating_creates_nothing(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(DEADLINE_S)
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics


def test_a_deleted_topic_is_gone_and_its_name_free(
    admin: AdminClient, live_cluster: Any, name: str
) -> None:
    create(admin, name)
    produce(admin, live_cluster, name, 10)
    admin.delete_topics([name])[name].result(DEADLINE_S)
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics
    assert refusal(lambda: admin.delete_topics([name])[name].result(DEADLINE_S)) in (
        "UNKNOWN_TOPIC_OR_PART"
    )
    create(admin, name)
    assert offset(admin, name, OffsetSpec.latest()) == 0


def test_partitions_only_grow(admin: AdminClient, name: str) -> None:
    create(admin, name, partitions=2)
    admin.create_partitions([NewPartitions(name, 5)])[name].result(DEADLINE_S)
    assert len(admin.list_topics(name, timeout=DEADLINE_S).topics[name].partitions) == 5
    fewer = admin.create_partitions([NewPartitions(name, 3)])[name]
    assert refusal(lambda: fewer.result(DEADLINE_S)) == "INVALID_PARTITIONS"


def test_configs_of_a_topic_are_changed_one_by_one(admin: AdminClient, name: str) -> None:
    create(admin, name, retention_ms="60000")
    change = ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    drop = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change, drop])
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    described = configs(admin, ResourceType.TOPIC, name)
    assert described["segment.bytes"].value == "1048576"
    assert described["retention.ms"].value == "604800000"
    assert described["retention.ms"].is_default


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_configs_of_a_topic_are_replaced_as_a_whole(admin: AdminClient, name: str) -> None:
    create(admin, name, retention_ms="60000")
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"segment.bytes": "1048576"})
    admin.alter_configs([resource])[resource].result(DEADLINE_S)
    described = configs(admin, ResourceType.TOPIC, name)
    assert described["segment.bytes"].value == "1048576"
    assert described["retention.ms"].value == "604800000"


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_a_brokers_configs_are_shown_and_not_altered(admin: AdminClient) -> None:
    described = configs(admin, ResourceType.BROKER, "0")
    assert described["inter.broker.protocol.version"].value == "3.9-IV0"
    assert described["node.id"].is_read_only
    resource = ConfigResource(ResourceType.BROKER, "0", set_config={"num.partitions": "5"})
    outcome = admin.alter_configs([resource])[resource]
    assert refusal(lambda: outcome.result(DEADLINE_S)) == "INVALID_REQUEST"


def test_offsets_and_deleted_records(admin: AdminClient, live_cluster: Any, name: str) -> None:
    create(admin, name)
    before_ms = int(time.time() * 1000)
    produce(admin, live_cluster, name, 10)
    assert offset(admin, name, OffsetSpec.earliest()) == 0
    assert offset(admin, name, OffsetSpec.latest()) == 10
    assert offset(admin, name, OffsetSpec.for_timestamp(before_ms)) == 0
    assert offset(admin, name, OffsetSpec.max_timestamp()) >= 0
    asked = TopicPartition(name, 0, 4)
    assert admin.delete_records([asked])[asked].result(DEADLINE_S).low_watermark == 4
    assert offset(admin, name, OffsetSpec.earliest()) == 4
    beyond = TopicPartition(name, 0, 11)
    outcome = admin.delete_records([beyond])[beyond]
    assert refusal(lambda: outcome.result(DEADLINE_S)) == "OFFSET_OUT_OF_RANGE"


def test_the_cluster_is_described(admin: AdminClient, live_cluster: Any) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_S)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == live_cluster.bootstrap
    assert cluster.controller.id == node.id == 0
    assert cluster.cluster_id


def test_kafka_python_administers_too(
    python_admin: KafkaAdminClient, admin: AdminClient, name: str
) -> None:
    from kafka.admin import NewTopic as PythonTopic

    python_admin.create_topics([PythonTopic(name, 2, 1)])
    assert name in python_admin.list_topics()
    described = python_admin.describe_cluster()
    assert [broker["broker_id"] for broker in described["brokers"]] == [0]
    (topic,) = python_admin.describe_topics([name])
    assert [partition["partition_index"] for partition in topic["partitions"]] == [0, 1]
    python_admin.delete_topics([name])
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics


def test_an_address_gets_a_limit_of_its_own_while_the_broker_runs(
    admin: AdminClient, live_cluster: Any
) -> None:
    host, port = live_cluster.bootstrap.split(":")
    broker = ConfigResource(ConfigResource.Type.BROKER, "0")

    def limit(operation: AlterConfigOpType, value: str) -> None:
        name = "max.connections.per.ip.overrides"
        entry = ConfigEntry(name, value, incremental_operation=operation)
        broker.incremental_configs = [entry]
        (altered,) = admin.incremental_alter_configs([broker]).values()
        altered.result(DEADLINE_S)

    def is_let_in() -> bool:
        with socket.create_connection((host, int(port)), DEADLINE_S, ("127.0.0.2", 0)) as client:
            try:
                client.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))  # ApiVersions
                return bool(client.recv(1))
            except ConnectionError:
                return False

    assert is_let_in()
    limit(AlterConfigOpType.SET, "127.0.0.2:0")
    wait_until(lambda: not is_let_in())
    assert admin.list_topics(timeout=DEADLINE_S).brokers, "others have the limit that they had"
    limit(AlterConfigOpType.DELETE, "")
    wait_until(is_let_in)
    with pytest.raises(KafkaException, match="neither an IP address nor localhost"):
        limit(AlterConfigOpType.SET, "proxy.example.com:7")
