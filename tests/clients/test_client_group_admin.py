"""Groups administered as Kafka UI and its like do: listed, described, their offsets moved."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from client_adapters import Confluent, Rec
from group_member import Membership
from member_processes import LibraryProcess
from waiting import wait_until

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

DEADLINE_S = 60


@pytest.fixture
def group() -> str:
    return f"administered-{time.monotonic_ns()}"


@pytest.fixture
def member(bootstrap: str, group: str, make_topic: Callable[..., str]) -> Any:
    """One live member of a group that has committed offset 3 of its only partition."""
    topic = make_topic("administered")
    Confluent(bootstrap).produce(topic, [Rec(b"%d" % index) for index in range(5)])
    started = LibraryProcess("confluent-kafka", bootstrap, Membership(group, (topic,)))
    started.start()
    try:
        wait_until(lambda: len(started.found) == 5, lambda: f"never read: {started.errors}")
        started.commit({(topic, 0): 3}, "a note")
        yield started
    finally:
        started.close()


def test_confluent_kafka_administers_groups(
    bootstrap: str, group: str, member: LibraryProcess
) -> None:
    from confluent_kafka import (
        ConsumerGroupState,
        ConsumerGroupTopicPartitions,
        ConsumerGroupType,
        KafkaError,
        KafkaException,
        TopicPartition,
    )
    from confluent_kafka.admin import AclOperation, AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topic = member.membership.topics[0]

    def listed(**filters: Any) -> dict[str, Any]:
        answer = admin.list_consumer_groups(**filters).result(DEADLINE_S)
        assert not answer.errors
        return {each.group_id: each for each in answer.valid}

    assert listed()[group].state == ConsumerGroupState.STABLE
    assert not listed()[group].is_simple_consumer_group
    assert group in listed(states={ConsumerGroupState.STABLE})
    assert group not in listed(states={ConsumerGroupState.EMPTY})
    assert group in listed(types={ConsumerGroupType.CLASSIC})
    assert group not in listed(types={ConsumerGroupType.CONSUMER})

    described = admin.describe_consumer_groups([group], include_authorized_operations=True)
    description = described[group].result(DEADLINE_S)
    assert description.state == ConsumerGroupState.STABLE
    assert description.partition_assignor == "range"
    assert description.coordinator.port == int(bootstrap.rpartition(":")[2])
    # Without an authorizer everything is allowed.
    assert set(description.authorized_operations) == {
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }
    (seen,) = description.members
    assert seen.client_id == "rdkafka"
    assert seen.host == "/127.0.0.1"
    assert [(each.topic, each.partition) for each in seen.assignment.topic_partitions] == [
        (topic, 0)
    ]

    def offset(*partitions: TopicPartition) -> list[tuple[int, str | None]]:
        asked = ConsumerGroupTopicPartitions(group, list(partitions) or None)
        answer = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
        return [(each.offset, each.metadata) for each in answer.topic_partitions]

    def is_moved(to: int) -> bool:
        """A refusal is the group's or the partition's."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, to)])
        try:
            answer = admin.alter_consumer_group_offsets([asked])[group].result(DEADLINE_S)
        except KafkaException:
            return False
        return not any(each.error for each in answer.topic_partitions)

    def delete() -> None:
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)

    assert offset() == offset(TopicPartition(topic, 0)) == [(3, "a note")]
    with pytest.raises(KafkaException) as refusal:
        delete()
    assert refusal.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    assert not is_moved(1)
    assert offset() == [(3, "a note")]

    member.close()
    wait_until(lambda: listed()[group].state == ConsumerGroupState.EMPTY, lambda: "never empty")
    assert is_moved(1)
    assert [at for at, _ in offset()] == [1]
    delete()
    assert group not in listed()
    assert [at for at, _ in offset(TopicPartition(topic, 0))] == [-1001]
    with pytest.raises(KafkaException) as refusal:
        delete()
    assert refusal.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_kafka_python_administers_groups(
    bootstrap: str, group: str, member: LibraryProcess
) -> None:
    from kafka import KafkaAdminClient, OffsetAndMetadata
    from kafka import TopicPartition as Partition
    from kafka.admin import MemberToRemove, OffsetSpec
    from kafka.errors import GroupSubscribedToTopicError

    partition = Partition(member.membership.topics[0], 0)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        assert group in str(admin.list_groups(states_filter=["Stable"]))
        assert group not in str(admin.list_groups(states_filter=["Empty", "Dead"]))
        described = str(admin.describe_groups([group], include_authorized_operations=True))
        assert "Stable" in described
        assert partition.topic in described
        assert admin.list_group_offsets([group])[group][partition].offset == 3
        assert admin.list_group_offsets({group: [partition]})[group][partition].offset == 3
        subscribed = admin.delete_group_offsets(group, [partition])
        assert GroupSubscribedToTopicError in (subscribed[partition], type(subscribed[partition]))
        # An administrator puts a member out; it would join again, were it not ended first.
        member.stall()
        (seen,) = admin.describe_groups([group])[group]["members"]
        admin.remove_group_members(group, [MemberToRemove(member_id=seen["member_id"])])
        member.close()
        wait_until(
            lambda: group in str(admin.list_groups(states_filter=["Empty"])),
            lambda: f"never empty: {admin.describe_groups([group])}",
        )
        admin.alter_group_offsets(group, {partition: OffsetAndMetadata(1, "", -1)})
        assert admin.list_group_offsets([group])[group][partition].offset == 1
        admin.reset_group_offsets(group, {partition: OffsetSpec.LATEST})
        assert admin.list_group_offsets([group])[group][partition].offset == 5
        admin.delete_group_offsets(group, [partition])
        left = admin.list_group_offsets({group: [partition]})[group]
        assert partition not in left or left[partition].offset == -1
        admin.alter_group_offsets(group, {partition: OffsetAndMetadata(2, "", -1)})
        admin.delete_groups([group])
        assert group not in str(admin.list_groups())
    finally:
        admin.close()


def test_aiokafka_looks_at_groups(bootstrap: str, group: str, member: LibraryProcess) -> None:
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient

    async def look() -> tuple[Any, Any, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            return (
                await admin.list_consumer_groups(),
                await admin.describe_consumer_groups([group]),
                await admin.list_consumer_group_offsets(group),
            )
        finally:
            await admin.close()

    listed, described, offsets = asyncio.run(asyncio.wait_for(look(), DEADLINE_S))
    assert (group, "consumer") in listed
    assert "Stable" in str(described[0])
    assert offsets[TopicPartition(member.membership.topics[0], 0)].offset == 3
