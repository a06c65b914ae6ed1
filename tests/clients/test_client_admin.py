"""Topics, settings and records administered by each client that can."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from client_adapters import Confluent, Kcat, Rec, without_time
from waiting import until, wait_until

DEADLINE_S = 60


def new_name(purpose: str) -> str:
    return f"{purpose}-{time.monotonic_ns()}"


def wait_until_gone(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    wait_until(lambda: topic not in admin.list_topics(timeout=60).topics, f"{topic} is still there")


def test_confluent_kafka_administers_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    name = new_name("admin-confluent")

    def settings() -> dict[str, Any]:
        future = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)])
        entries: dict[str, Any] = next(iter(future.values())).result(DEADLINE_S)
        return entries

    topic = NewTopic(name, 2, 1, config={"retention.ms": "3600000"})
    admin.create_topics([topic], validate_only=True)[name].result(DEADLINE_S)
    assert name not in admin.list_topics(timeout=60).topics
    admin.create_topics([topic])[name].result(DEADLINE_S)
    wait_until(lambda: name in admin.list_topics(timeout=60).topics, "the topic does not show")
    assert settings()["retention.ms"].value == "3600000"
    assert len(settings()) >= 25
    assert settings()["segment.bytes"].value == "1073741824"

    admin.create_partitions([NewPartitions(name, 5)])[name].result(DEADLINE_S)
    wait_until(
        lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == 5, "grow"
    )
    change = ConfigEntry(
        "max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
    next(iter(admin.incremental_alter_configs([resource]).values())).result(DEADLINE_S)
    wait_until(lambda: settings()["max.message.bytes"].value == "2000000", "not changed")
    assert settings()["retention.ms"].value == "3600000"

    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert cluster.nodes
    assert cluster.controller is not None
    admin.delete_topics([name])[name].result(DEADLINE_S)
    wait_until_gone(bootstrap, name)


def test_a_topic_may_have_no_cleanup_policy(bootstrap: str, make_topic: Callable[..., str]) -> None:
    """Records stay until DeleteRecords (KIP-1161)."""
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topic = make_topic("no-policy", cleanup_policy="")

    def policy() -> tuple[str, bool]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = admin.describe_configs([resource]).values()
        entry = future.result(60)["cleanup.policy"]
        return entry.value, entry.is_default

    def change(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(60)

    assert policy() == ("", False)
    change(AlterConfigOpType.APPEND)
    wait_until(lambda: policy() == ("delete", False), "the policy is not delete")
    change(AlterConfigOpType.SUBTRACT)
    wait_until(lambda: policy() == ("", False), "the policy is not empty")


def test_mistakes_in_admin_requests_get_kafkas_errors(bootstrap: str) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    taken = new_name("admin-taken")
    admin.create_topics([NewTopic(taken, 2, 1)])[taken].result(DEADLINE_S)
    wait_until(lambda: taken in admin.list_topics(timeout=60).topics, "the topic does not show")

    def refused_with(futures: dict[str, Any]) -> int:
        with pytest.raises(KafkaException) as refusal:
            next(iter(futures.values())).result(DEADLINE_S)
        return int(refusal.value.args[0].code())

    def creating(
        name: str,
        partitions: int = 1,
        replicas: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> int:
        topic = NewTopic(name, partitions, replicas, config=dict(config or {}))
        return refused_with(admin.create_topics([topic]))

    assert creating(taken) == KafkaError.TOPIC_ALREADY_EXISTS
    assert creating("not/a/name") == KafkaError.TOPIC_EXCEPTION
    assert creating(new_name("rf"), replicas=9) == KafkaError.INVALID_REPLICATION_FACTOR
    assert creating(new_name("none"), partitions=0) == KafkaError.INVALID_PARTITIONS
    assert creating(new_name("config"), config={"no.such": "1"}) == KafkaError.INVALID_CONFIG
    assert creating(new_name("value"), config={"segment.bytes": "few"}) == KafkaError.INVALID_CONFIG
    shrink = admin.create_partitions([NewPartitions(taken, 1)])
    assert refused_with(shrink) == KafkaError.INVALID_PARTITIONS
    unknown = admin.delete_topics([new_name("unknown")])
    assert refused_with(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_kafka_deletes_records(bootstrap: str, make_topic: Callable[..., str]) -> None:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = make_topic("admin-delete-records")
    client = Confluent(bootstrap)
    client.produce(topic, [Rec(b"%d" % index) for index in range(10)])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    future = next(iter(admin.delete_records([TopicPartition(topic, 0, 4)]).values()))
    assert future.result(DEADLINE_S).low_watermark == 4
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 2})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (4, 10)
    consumer.close()
    assert without_time(client.consume(topic, 6))[0] == Rec(b"4")


def test_kafka_python_administers_topics(bootstrap: str) -> None:
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as Partition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    name = new_name("admin-kafka-python")
    try:
        admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "3600000"})])
        wait_until(lambda: name in admin.list_topics(), "the topic does not show")
        assert len(admin.describe_topics([name])[0]["partitions"]) == 2
        admin.create_partitions({name: NewPartitions(4)})
        wait_until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 4, "grow")
        change = ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": "2000000"})
        admin.alter_configs([change])
        asked = ConfigResource(ConfigResourceType.TOPIC, name)
        wait_until(lambda: "2000000" in str(admin.describe_configs([asked])), "not changed")
        Confluent(bootstrap).produce(name, [Rec(b"%d" % index) for index in range(5)])
        deleted = admin.delete_records({Partition(name, 0): 3})
        assert deleted[Partition(name, 0)]["low_watermark"] == 3
        assert admin.describe_cluster()["brokers"]
        assert admin.describe_log_dirs()
        admin.delete_topics([name])
    finally:
        admin.close()
    wait_until_gone(bootstrap, name)


def test_aiokafka_administers_topics(bootstrap: str) -> None:
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    name = new_name("admin-aiokafka")

    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "9"})])

            async def partitions() -> int:
                return len((await admin.describe_topics([name]))[0]["partitions"])

            async def is_listed() -> bool:
                return name in await admin.list_topics() and await partitions() == 2

            await until(is_listed)
            await admin.create_partitions({name: NewPartitions(4)})

            async def has_grown() -> bool:
                return await partitions() == 4

            await until(has_grown)
            change = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "7200000"})
            await admin.alter_configs([change])
            asked = ConfigResource(ConfigResourceType.TOPIC, name)

            async def is_changed() -> bool:
                return "7200000" in str(await admin.describe_configs([asked]))

            await until(is_changed)
            await asyncio.to_thread(
                Confluent(bootstrap).produce, name, [Rec(b"%d" % index) for index in range(5)]
            )
            partition = TopicPartition(name, 0)
            deleted = await admin.delete_records({partition: RecordsToDelete(3)})
            assert deleted[partition] == 3
            await admin.delete_topics([name])
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(administer(), DEADLINE_S))
    wait_until_gone(bootstrap, name)


def test_kcat_lists_the_cluster(kcat: Kcat, make_topic: Callable[..., str]) -> None:
    name = make_topic("kcat-list", partitions=3)
    document = kcat.metadata()
    assert document["brokers"]
    (topic,) = [topic for topic in document["topics"] if topic["topic"] == name]
    assert [partition["partition"] for partition in topic["partitions"]] == [0, 1, 2]
    assert all(partition["leader"] >= 0 for partition in topic["partitions"])
