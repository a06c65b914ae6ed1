"""A query as a member of its group: who is fenced, who comes back, and what tools read of it.

Drivers are instances of their own within this process; two real ones are in `test_two_drivers`.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaAdminClient
from spark_source import Topics
from waiting import wait_until

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import Cluster, PassingError
from fairlead_spark.errors import FencedError
from fairlead_spark.group.group_member import GroupMember
from fairlead_spark.group.group_membership import Instance, read_instance
from fairlead_spark.group.group_progress import GroupProgress
from fairlead_spark.group.group_transaction import GroupTransaction, name_transactions
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.options import Subscription
from fairlead_spark.transactions import TransactionClient
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fairlead_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

OLD_TEXT = '{"source": "fairlead", "run": 1700000000000, "commit": 3}'
TOPIC = "orders"
READ = Subscription(topics=(TOPIC,))
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
LATE = 2**62
NOBODY = 2**22 + 1
"""A process id that Linux never gives (pid_max)."""


@pytest.fixture(scope="module")
def live_settings() -> dict[str, str]:
    """No wait for further members: these tests are about who they are."""
    return {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module", autouse=True)
def _orders(topics: Topics) -> None:
    topics.fill(topics.create(TOPIC), 0, 100)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No member is gone because the machine is slow."""
    monkeypatch.setattr(limits, "GROUP_FIRST_JOIN_S", 60.0)
    monkeypatch.setattr(limits, "GROUP_TIMEOUT_S", 60.0)
    monkeypatch.setattr(limits, "GROUP_SESSION_S", 60.0)
    monkeypatch.setattr(limits, "GROUP_JOIN_S", 60.0)


class Drivers:
    """Drivers of queries with one group."""

    def __init__(self, topics: Topics, group: str) -> None:
        self.topics = topics
        self.group = group
        self.settings = ClientSettings(topics.bootstrap, group_id=group)
        self._begun: list[GroupProgress] = []

    def begin(self, name: str, process: int | None = None) -> GroupProgress:
        instance = Instance(name, process or os.getpid())
        progress = GroupProgress(self.settings, instance, READ)
        self._begun.append(progress)
        return progress

    def close(self) -> None:
        for each in self._begun:
            each.close()

    def offsets(self) -> dict[TopicPartition, int]:
        consumer = Consumer({"bootstrap.servers": self.topics.bootstrap, "group.id": self.group})
        try:
            wanted = [ConfluentPartition(*each) for each in (FIRST, SECOND)]
            found = consumer.committed(wanted, timeout=60)
        finally:
            consumer.close()
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}

    def describe(self) -> Any:
        (future,) = self.topics.admin.describe_consumer_groups([self.group]).values()
        return future.result(60)

    def drivers(self) -> set[str]:
        """Which drivers the group has as members."""
        read = (read_instance(each.group_instance_id) for each in self.describe().members)
        return {each.driver for each in read if each is not None}

    def remove_members(self) -> None:
        """As the coordinator does when their sessions end."""
        reader = GroupMember(self.settings, Instance("administrator", NOBODY), READ, since_ms=LATE)
        try:
            others, gone = reader._find_others()
            reader._remove(others + gone)
        finally:
            reader.leave()

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Connections of a process that is no member."""
        cluster = Cluster(self.settings)
        try:
            yield cluster
        finally:
            cluster.close()

    def commit_from_outside(self, offset: int, text: str | None) -> int:
        """What a driver of an earlier version sent; the error code."""
        writer = GroupMember(self.settings, Instance("earlier", NOBODY), READ, since_ms=0)
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=each.partition, committed_offset=offset, committed_metadata=text
            )
            for each in (FIRST, SECOND)
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        try:
            reply = writer._cluster.retry(lambda: writer._ask(request, 8), "the group")
        finally:
            writer.leave()
        return int(reply.topics[0].partitions[0].error_code)

    def texts(self) -> set[bool]:
        reader = GroupMember(self.settings, Instance("reader", NOBODY), READ, since_ms=0)
        try:
            return {each.has_text for each in reader._read_offsets({FIRST: 0, SECOND: 0}).values()}
        finally:
            reader.leave()


@pytest.fixture
def make_drivers(topics: Topics) -> Iterator[Callable[[str], Drivers]]:
    made: list[Drivers] = []

    def make(group: str) -> Drivers:
        made.append(Drivers(topics, group))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_no_text_stands_beside_an_offset_and_every_tool_reads_it(
    make_drivers: Callable[[str], Drivers],
) -> None:
    drivers = make_drivers("read-by-tools")
    assert drivers.begin("one").maybe_commit({FIRST: 20, SECOND: 30})
    assert drivers.texts() == {False}
    for _ in range(20):
        # librdkafka's binding failed now and then: at what lay behind a text in memory.
        assert drivers.offsets() == {FIRST: 20, SECOND: 30}
    asked = [ConsumerGroupTopicPartitions(drivers.group)]
    (future,) = drivers.topics.admin.list_consumer_group_offsets(asked).values()
    listed = {
        (each.topic, each.partition): each.offset for each in future.result(60).topic_partitions
    }
    assert listed == {FIRST: 20, SECOND: 30}

    described = drivers.describe()
    assert described.state == ConsumerGroupState.STABLE
    (member,) = described.members
    read = {(each.topic, each.partition) for each in member.assignment.topic_partitions}
    assert read == {FIRST, SECOND}

    admin = KafkaAdminClient(bootstrap_servers=drivers.topics.bootstrap)
    try:
        held = admin.list_group_offsets([drivers.group])[drivers.group]
        (seen,) = admin.describe_groups([drivers.group])[drivers.group]["members"]
    finally:
        admin.close()
    assert {tuple(where): each.offset for where, each in held.items()} == {FIRST: 20, SECOND: 30}
    assert seen["member_metadata"]["topics"] == [TOPIC]
    given = [{"topic": TOPIC, "partitions": [0, 1]}]
    assert seen["member_assignment"]["assigned_partitions"] == given
    assert asyncio.run(read_with_aiokafka(drivers)) == {FIRST: 20, SECOND: 30}


async def read_with_aiokafka(drivers: Drivers) -> dict[tuple[str, int], int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=drivers.topics.bootstrap)
    await admin.start()
    try:
        held = await admin.list_consumer_group_offsets(drivers.group)
    finally:
        await admin.close()
    return {(where.topic, where.partition): each.offset for where, each in held.items()}


def test_a_group_of_an_earlier_version_is_taken_over_and_loses_its_text(
    make_drivers: Callable[[str], Drivers],
) -> None:
    drivers = make_drivers("of-an-earlier-version")
    assert drivers.commit_from_outside(20, OLD_TEXT) == ErrorCode.NONE
    assert drivers.texts() == {True}
    newer = drivers.begin("newer")
    # The offsets are those that are there.
    assert newer.maybe_commit({FIRST: 20, SECOND: 20})
    assert drivers.texts() == {False}
    # A driver of the earlier version that still lives is no member.
    assert drivers.commit_from_outside(40, OLD_TEXT) == ErrorCode.UNKNOWN_MEMBER_ID
    assert drivers.offsets() == {FIRST: 20, SECOND: 20}


def test_a_query_that_was_started_over_sets_the_group_back(
    make_drivers: Callable[[str], Drivers],
) -> None:
    drivers = make_drivers("started-over")
    assert drivers.begin("one").maybe_commit({FIRST: 20, SECOND: 30})
    again = drivers.begin("two")
    assert again.maybe_commit({FIRST: 5, SECOND: 40})
    assert drivers.offsets() == {FIRST: 5, SECOND: 40}
    # Its own offsets only go forward: Spark tells of some batches twice.
    assert again.maybe_commit({FIRST: 4, SECOND: 41})
    assert drivers.offsets() == {FIRST: 5, SECOND: 41}


def test_a_driver_is_replaced_by_one_that_reads_other_topics(
    make_drivers: Callable[[str], Drivers],
) -> None:
    drivers = make_drivers("other-topics")
    older = drivers.begin("older")
    assert older.maybe_commit({FIRST: 20, SECOND: 20})
    newer = drivers.begin("newer")
    assert newer.maybe_commit({FIRST: 10})
    with pytest.raises(FencedError, match="group other-topics: another driver has started"):
        older.maybe_commit({FIRST: 30, SECOND: 30})
    assert drivers.offsets() == {FIRST: 10, SECOND: 20}
    assert drivers.drivers() == {"newer"}


def test_a_driver_that_slept_before_its_first_commit_is_fenced(
    make_drivers: Callable[[str], Drivers],
) -> None:
    """It comes to the group last, and began first."""
    drivers = make_drivers("slept-before-its-first-commit")
    older = drivers.begin("older")
    begun = time.time_ns() // 1_000_000
    wait_until(lambda: time.time_ns() // 1_000_000 > begun, "the clock stands still")
    newer = drivers.begin("newer")
    assert newer.maybe_commit({FIRST: 20, SECOND: 20})
    with pytest.raises(FencedError, match="another driver has started with this group"):
        older.maybe_commit({FIRST: 10, SECOND: 10})
    assert drivers.drivers() == {"newer"}
    assert newer.maybe_commit({FIRST: 30, SECOND: 30})
    assert drivers.offsets() == {FIRST: 30, SECOND: 30}


def test_a_driver_that_was_away_for_too_long_comes_back_where_nobody_else_was(
    make_drivers: Callable[[str], Drivers],
) -> None:
    drivers = make_drivers("away")
    only = drivers.begin("only")
    assert only.maybe_commit({FIRST: 20, SECOND: 20})
    drivers.remove_members()
    only.maybe_commit({FIRST: 30, SECOND: 30})
    wait_until(lambda: drivers.offsets() == {FIRST: 30, SECOND: 30})
    assert drivers.drivers() == {"only"}


def test_a_driver_that_slept_while_another_one_came_and_went_ends(
    make_drivers: Callable[[str], Drivers],
) -> None:
    drivers = make_drivers("came-and-went")
    older = GroupMember(drivers.settings, Instance("older", os.getpid()), READ, since_ms=0)
    until_done(older, {FIRST: 20, SECOND: 20})
    newer = drivers.begin("newer")
    assert newer.maybe_commit({FIRST: 25, SECOND: 20})
    newer.close()
    assert drivers.drivers() == set()
    with pytest.raises(FencedError):
        until_done(older, {FIRST: 30, SECOND: 30})
    older.leave()
    assert drivers.offsets() == {FIRST: 25, SECOND: 20}


def test_a_driver_that_slept_while_another_one_came_and_committed_nothing_new_ends(
    make_drivers: Callable[[str], Drivers],
) -> None:
    """The group looks as it left it; the query's transactional id does not."""
    drivers = make_drivers("came-and-committed-nothing")
    older = GroupMember(drivers.settings, Instance("older", os.getpid()), READ, since_ms=0)
    until_done(older, {FIRST: 20, SECOND: 20})
    newer = drivers.begin("newer")
    assert newer.maybe_commit({FIRST: 20, SECOND: 20})
    newer.close()
    assert drivers.drivers() == set()
    with pytest.raises(FencedError, match="another driver has started with this group"):
        until_done(older, {FIRST: 30, SECOND: 30})
    older.leave()
    assert drivers.offsets() == {FIRST: 20, SECOND: 20}


def test_brokers_refuse_a_zombie_by_the_epoch_of_the_querys_id_alone(
    make_drivers: Callable[[str], Drivers],
) -> None:
    drivers = make_drivers("fenced-by-its-epoch")
    with drivers.cluster() as cluster:
        client = TransactionClient(cluster)
        zombie = client.begin(name_transactions(drivers.group, READ), 60)
        client.add_group(zombie, drivers.group)
        newer = drivers.begin("newer")
        assert newer.maybe_commit({FIRST: 20, SECOND: 20})
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=30)
        # As no member: a group asks such a commit for nothing.
        request = TxnOffsetCommitRequest(
            transactional_id=zombie.transactional_id,
            group_id=drivers.group,
            producer_id=zombie.producer_id,
            producer_epoch=zombie.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        reply = cluster.call_any(request, 3)
        (told,) = reply.topics[0].partitions
        assert told.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.end([zombie], is_commit=True) == [zombie]
    assert drivers.offsets() == {FIRST: 20, SECOND: 20}


def test_an_id_that_a_zombie_took_is_taken_back_by_who_is_a_member(
    make_drivers: Callable[[str], Drivers],
) -> None:
    """The zombie was about to take it when it fell asleep."""
    drivers = make_drivers("taken-back")
    newer = drivers.begin("newer")
    assert newer.maybe_commit({FIRST: 20, SECOND: 20})
    with drivers.cluster() as cluster:
        zombie = GroupTransaction(cluster, drivers.group, READ)
        wait_until(lambda: succeeds(zombie.take))
        assert newer.maybe_commit({FIRST: 30, SECOND: 30})
        assert newer.maybe_commit({FIRST: 40, SECOND: 40})
    assert drivers.offsets() == {FIRST: 40, SECOND: 40}


def test_a_driver_whose_commit_took_too_long_goes_on_where_nobody_else_was(
    make_drivers: Callable[[str], Drivers],
) -> None:
    """It slept in the middle: its transaction is aborted, and its place in the group is gone."""
    drivers = make_drivers("slept-in-a-commit")
    only = GroupMember(drivers.settings, Instance("only", os.getpid()), READ, since_ms=0)
    until_done(only, {FIRST: 20, SECOND: 20})
    held = only._transaction._producer
    assert held is not None
    with drivers.cluster() as cluster:
        # What the coordinator does, too, when a transaction's time is over: the next epoch, and
        # the last one stays known.
        client = TransactionClient(cluster)
        client.add_group(held, drivers.group)
        assert client.begin(held.transactional_id, 60, held).producer_epoch > held.producer_epoch
    drivers.remove_members()
    until_done(only, {FIRST: 30, SECOND: 30})
    assert drivers.offsets() == {FIRST: 30, SECOND: 30}
    only.leave()


def test_a_client_file_that_is_away_while_the_coordinator_is_called_anew_ends_no_query(
    make_drivers: Callable[[str], Drivers], tmp_path: Path
) -> None:
    """It is being replaced, with another password, and not in one step."""
    drivers = make_drivers("file-away")
    file = tmp_path / "client.librdkafka"
    file.write_text("security.protocol=plaintext\n")
    drivers.settings = replace(drivers.settings, config_file=str(file))
    progress = drivers.begin("one")
    assert progress.maybe_commit({FIRST: 20, SECOND: 20})
    file.rename(tmp_path / "aside")
    for each in progress._member._cluster._connections.values():
        each._socket.shutdown(socket.SHUT_RDWR)
    assert not progress.maybe_commit({FIRST: 30, SECOND: 30})
    (tmp_path / "aside").rename(file)

    def is_shown() -> bool:
        progress.maybe_commit({FIRST: 30, SECOND: 30})
        return drivers.offsets() == {FIRST: 30, SECOND: 30}

    wait_until(is_shown)


def test_sources_of_one_query_share_a_group(make_drivers: Callable[[str], Drivers]) -> None:
    drivers = make_drivers("two-sources")
    one, other = drivers.begin("driver"), drivers.begin("driver", os.getppid())
    one.maybe_commit({FIRST: 20})
    other.maybe_commit({SECOND: 7})
    wait_until(lambda: drivers.offsets() == {FIRST: 20, SECOND: 7})
    one.maybe_commit({FIRST: 30})
    other.maybe_commit({SECOND: 8})
    wait_until(lambda: drivers.offsets() == {FIRST: 30, SECOND: 8})
    assert len(drivers.describe().members) == 2


def test_of_two_queries_of_a_program_the_later_one_shows_its_progress(
    make_drivers: Callable[[str], Drivers], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither ends: they are no drivers of one query."""
    drivers = make_drivers("two-queries")
    one = drivers.begin("driver")
    one.maybe_commit({FIRST: 20, SECOND: 20})
    later = drivers.begin("driver", os.getppid())
    later.maybe_commit({FIRST: 3, SECOND: 20})
    wait_until(lambda: drivers.offsets() == {FIRST: 3, SECOND: 20})
    one.maybe_commit({FIRST: 40, SECOND: 40})
    wait_until(lambda: "give each query a kafka.group.id of its own" in caplog.text)
    assert drivers.offsets() == {FIRST: 3, SECOND: 20}


def test_a_process_of_the_driver_that_is_gone_holds_nobody_up(
    make_drivers: Callable[[str], Drivers],
) -> None:
    """Spark ends a query's process without a word; its session would last for ten seconds."""
    drivers = make_drivers("gone")
    dead = GroupMember(drivers.settings, Instance("driver", NOBODY), READ, since_ms=0)
    until_done(dead, {FIRST: 20, SECOND: 20})
    assert drivers.begin("driver").maybe_commit({FIRST: 30, SECOND: 30})
    assert len(drivers.describe().members) == 1


def until_done(member: GroupMember, positions: dict[TopicPartition, int]) -> None:
    wait_until(lambda: commits(member, positions))


def commits(member: GroupMember, positions: dict[TopicPartition, int]) -> bool:
    return succeeds(lambda: member.commit(positions))


def succeeds(act: Callable[[], None]) -> bool:
    try:
        act()
    except PassingError:
        return False
    return True
