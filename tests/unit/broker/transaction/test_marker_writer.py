"""Markers on real brokers: to the leader of now of each partition, until it has one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from linked_transactions import (
    COORDINATOR,
    VERSION_2,
    LinkedTransactions,
    Marker,
    Producer,
)
from replica_cluster import DEADLINE_S, ReplicaCluster

from fairlead_model.cluster import TopicChanged, TopicHeader
from fairlead_model.ids import CONSUMER_OFFSETS, NO_LEADER, TRANSACTION_STATE
from fairlead_model.topic import TopicState
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

EVERYWHERE = (0, 1, 2)
"""Partitions of `t` that brokers 1, 2 and 3 lead."""
Tell = Callable[[LinkedTransactions], Awaitable[None]]


def run(directory: Path, tell: Tell, **settings: Any) -> None:
    async def story() -> None:
        async with ReplicaCluster(directory, **settings) as cluster:
            transactions = LinkedTransactions(cluster)
            await transactions.ready()
            await tell(transactions)

    asyncio.run(story())


async def open_transaction(
    transactions: LinkedTransactions, *indexes: int, transactional_id: str = "id"
) -> Producer:
    """A producer of version 1 with a batch in each partition."""
    producer = await transactions.begin(transactional_id)
    assert await transactions.add(producer, *indexes) is ErrorCode.NONE
    for index in indexes:
        assert await transactions.produced(producer, index) is ErrorCode.NONE
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_each_partition_gets_a_marker_on_all_its_replicas(tmp_path: Path, commit: bool) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        producer = await open_transaction(transactions, *EVERYWHERE)
        assert await transactions.end(producer, commit=commit) is ErrorCode.NONE
        await transactions.until_state("CompleteCommit" if commit else "CompleteAbort")
        marker = Marker(producer.producer_id, producer.epoch, commit)
        for broker_id in (1, 2, 3):
            for index in EVERYWHERE:
                await transactions.cluster.until(
                    lambda broker_id=broker_id, index=index: (
                        transactions.markers(broker_id, index)  # type: ignore[misc]
                        == [marker]
                    )
                )
        assert transactions.markers(COORDINATOR, 3) == []

    run(tmp_path, tell)


def test_with_an_epoch_for_each_transaction_markers_carry_the_next(tmp_path: Path) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        for epoch in range(3):
            for index in EVERYWHERE:
                code = await transactions.produced(producer, index, version=VERSION_2)
                assert code is ErrorCode.NONE
            assert await transactions.end(producer, version=5) is ErrorCode.NONE
            assert producer.epoch == epoch + 1
            # A leader waits only so long for the markers of the transaction before.
            await transactions.until_state("CompleteCommit")
        for broker_id, index in ((1, 0), (2, 1), (3, 2)):
            assert transactions.markers(broker_id, index) == [
                Marker(producer.producer_id, epoch, True) for epoch in (1, 2, 3)
            ]

    run(tmp_path, tell)


def test_a_leader_that_dies_is_replaced_and_the_new_one_writes_the_marker(tmp_path: Path) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producer = await open_transaction(transactions, *EVERYWHERE)
        await cluster.until(
            lambda: (
                cluster.partition(3, "t", 1).log_end_offset
                == cluster.partition(2, "t", 1).log_end_offset
            )
        )
        await cluster.stop(2)
        cluster.change(TRANSACTION_STATE, isr=(1, 3))
        assert await transactions.end(producer) is ErrorCode.NONE
        assert await transactions.state() == "PrepareCommit"
        cluster.fence(2)
        for index in EVERYWHERE:
            leader = {0: 1, 1: 3, 2: 3}[index]
            cluster.change("t", index, leader=leader, isr=(1, 3))
        await transactions.until_state("CompleteCommit")
        marker = Marker(producer.producer_id, producer.epoch, True)
        assert marker in transactions.markers(3, 1)
        assert marker in transactions.markers(3, 2)

    run(tmp_path, tell)


def test_a_partition_without_a_leader_holds_up_its_own_transaction_only(tmp_path: Path) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        stuck = await open_transaction(transactions, 0, 1, transactional_id="stuck")
        free = await open_transaction(transactions, 0, 2, transactional_id="free")
        cluster.change("t", 1, leader=NO_LEADER)
        assert await transactions.end(stuck) is ErrorCode.NONE
        assert await transactions.end(free) is ErrorCode.NONE
        await transactions.until_state("CompleteCommit", "free")
        assert await transactions.state("stuck") == "PrepareCommit"
        assert transactions.broker(COORDINATOR).metrics.leaderless_markers == 1
        cluster.change("t", 1, leader=3)
        await transactions.until_state("CompleteCommit", "stuck")
        assert transactions.markers(3, 1) == [Marker(stuck.producer_id, stuck.epoch, True)]
        assert transactions.broker(COORDINATOR).metrics.leaderless_markers == 0

    run(tmp_path, tell)


@pytest.mark.parametrize("index", [0, 1], ids=["here", "elsewhere"])
def test_a_marker_counts_when_it_is_committed_and_is_sent_until_then(
    tmp_path: Path, index: int
) -> None:
    """A replica that is in sync and does not answer: the marker is in the log, and waits."""

    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        stuck = await open_transaction(transactions, index, transactional_id="stuck")
        await cluster.stop(3)
        # All but one partition notice it.
        cluster.change(TRANSACTION_STATE, isr=(1, 2))
        cluster.change("t", 2, leader=2, isr=(1, 2))
        free = await open_transaction(transactions, 2, transactional_id="free")
        assert await transactions.end(stuck) is ErrorCode.NONE
        leader = index + 1
        await cluster.until(lambda: transactions.markers_count(leader, index) >= 2)
        assert await transactions.state("stuck") == "PrepareCommit"
        assert await transactions.end(free) is ErrorCode.NONE
        await transactions.until_state("CompleteCommit", "free")
        assert await transactions.state("stuck") == "PrepareCommit"
        cluster.change("t", index, isr=(1, 2))
        await transactions.until_state("CompleteCommit", "stuck")

    run(tmp_path, tell, replica_lag_time_max_ms="60000")


def test_too_few_replicas_in_sync_are_waited_for(tmp_path: Path) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producer = await open_transaction(transactions, 1)
        cluster.change("t", 1, isr=(2,), min_insync_replicas=2)
        assert await transactions.end(producer) is ErrorCode.NONE
        # Until the followers are in sync again nothing can be written.
        await cluster.until(lambda: len(cluster.isr("t", 1)) >= 2)
        await transactions.until_state("CompleteCommit")
        assert transactions.markers(2, 1) == [Marker(producer.producer_id, producer.epoch, True)]

    run(tmp_path, tell)


def test_a_deleted_topic_needs_no_marker(tmp_path: Path) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producer = await open_transaction(transactions, 0, 1)
        cluster.change("t", 1, leader=NO_LEADER)
        assert await transactions.end(producer) is ErrorCode.NONE
        assert await transactions.state() == "PrepareCommit"
        topic = cluster.image.topic("t")
        assert topic is not None
        header = TopicHeader("t", topic.topic_id, len(topic.partitions), state=TopicState.DELETING)
        cluster.publish(TopicChanged(header))
        await transactions.until_state("CompleteCommit")

    run(tmp_path, tell)


def test_the_next_coordinator_sends_all_markers_again_and_the_one_before_none(
    tmp_path: Path,
) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producer = await open_transaction(transactions, *EVERYWHERE)
        cluster.change("t", 1, leader=NO_LEADER)
        assert await transactions.end(producer) is ErrorCode.NONE
        marker = Marker(producer.producer_id, producer.epoch, True)
        await cluster.until(
            lambda: transactions.markers(1, 0) == transactions.markers(3, 2) == [marker]
        )
        before = transactions.markers_count(1, 0)
        cluster.change(TRANSACTION_STATE, leader=3)
        await transactions.ready(3)
        await cluster.until(lambda: transactions.markers_count(1, 0) > before)
        # The marker for the partition without a leader waits at one broker only.
        await cluster.until(
            lambda: (
                [transactions.broker(each).metrics.leaderless_markers for each in (1, 2, 3)]
                == [0, 0, 1]
            )
        )
        cluster.change("t", 1, leader=2)
        await transactions.until_state("CompleteCommit", broker_id=3)
        assert transactions.markers(2, 1) == [marker]

    run(tmp_path, tell)


@pytest.mark.parametrize("commit", [True, False])
def test_markers_of_the_offsets_topic_go_through_the_group_coordinator(
    tmp_path: Path, commit: bool
) -> None:
    """It counts what the transaction has staged, or forgets it."""

    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        cluster.create(CONSUMER_OFFSETS, configs={"cleanup.policy": "compact"}, leader=2)
        producer = await transactions.begin()

        async def stage(offset: int) -> ErrorCode:
            reply = await transactions.ask(
                TxnOffsetCommitRequest(
                    producer.transactional_id,
                    "g",
                    producer.producer_id,
                    producer.epoch,
                    topics=[
                        TxnOffsetCommitRequestTopic(
                            "t", [TxnOffsetCommitRequestPartition(0, offset)]
                        )
                    ],
                ),
                5,
                broker_id=2,
            )
            return ErrorCode(reply.topics[0].partitions[0].error_code)

        async with asyncio.timeout(DEADLINE_S):
            while (code := await stage(17)) is not ErrorCode.NONE:
                assert code.retriable, code
        assert await transactions.end(producer, commit=commit, version=5) is ErrorCode.NONE
        await transactions.until_state("CompleteCommit" if commit else "CompleteAbort")
        marker = Marker(producer.producer_id, producer.epoch, commit)
        assert transactions.markers(2, 0, CONSUMER_OFFSETS) == [marker]
        group = transactions.broker(2).group_coordinator.groups.get("g")
        value = None if group is None else group.offsets.find("t", 0)
        assert (None if value is None else value.offset) == (17 if commit else None)

    run(tmp_path, tell)
