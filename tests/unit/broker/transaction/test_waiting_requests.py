"""A producer that begins its next transaction early waits for the end of the last, not longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from group_cluster import run
from replica_cluster import ReplicaCluster
from transaction_cluster import TransactionCluster, of_broker

from fairlead_broker.limits import TRANSACTION_REQUESTS_WAITING_MAX
from fairlead_model.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from pathlib import Path

    from group_cluster import Call

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
WAIT = "fairlead_broker.transaction.coordinator.TRANSACTION_REQUEST_WAIT_MS"

Pair = tuple[int, int]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait as long as a test takes, however slow the machine is."""
    monkeypatch.setattr(WAIT, 600_000)


async def ending(transactions: TransactionCluster) -> Pair:
    """Return the producer of a transaction that is decided and has no marker yet."""
    transactions.cluster.create(CONSUMER_OFFSETS)
    await transactions.ready()
    _, producer_id, epoch = await transactions.init()
    pair = (producer_id, epoch)
    assert await transactions.add(pair, 0) is NONE
    assert (await transactions.end(pair, commit=True, version=4))[0] is NONE
    return pair


def adding(transactions: TransactionCluster, pair: Pair, *indexes: int) -> Call:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=pair[0],
        v3_and_below_producer_epoch=pair[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic("t", list(indexes))],
    )
    return transactions.call(request, 3)


def added(call: Call) -> ErrorCode:
    (topic,) = call.reply.results_by_topic_v3_and_below
    return ErrorCode(topic.results_by_partition[0].partition_error_code)


async def reply(transactions: TransactionCluster, call: Call) -> Any:
    await transactions.cluster.until(lambda: call.reply is not None)
    return call.reply


@pytest.mark.usefixtures("patient")
def test_the_next_transaction_begins_when_the_last_one_is_complete(tmp_path: Path) -> None:
    """Also its second request, for which the first one has a record in flight."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            pair = await ending(transactions)
            first = adding(transactions, pair, 1)
            second = transactions.call(AddOffsetsToTxnRequest("x", *pair, "g"), 3)
            assert (first.reply, second.reply) == (None, None)
            assert transactions.state() == "PrepareCommit"
            transactions.markers[1].finish()
            assert (await reply(transactions, second)).error_code == NONE
            assert added(first) is NONE
            described = transactions.describe()
            assert described.transaction_state == "Ongoing"
            assert {each.topic: each.partitions for each in described.topics} == {
                "t": [1],
                CONSUMER_OFFSETS: [0],
            }
            assert (first.replies, second.replies) == (1, 1)

    run(story())


def test_who_has_waited_long_enough_is_told_to_ask_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            pair = await ending(transactions)
            calls = [adding(transactions, pair, 1), adding(transactions, pair, 2)]
            assert [call.reply for call in calls] == [None, None]
            for call in calls:
                await reply(transactions, call)
                assert added(call) is CONCURRENT
            assert transactions.state() == "PrepareCommit"
            # What was told to ask again is not done later.
            transactions.markers[1].finish()
            await transactions.until_state("CompleteCommit")
            assert [call.replies for call in calls] == [1, 1]
            assert await transactions.add(pair, 3) is NONE
            assert [each.partitions for each in transactions.describe().topics] == [[3]]

    run(story())


def test_waiting_does_not_hurry_a_completion_that_could_not_be_written(tmp_path: Path) -> None:
    """It is tried again after its own pause, however many producers ask meanwhile."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster, min_insync_replicas=2)
            pair = await ending(transactions)
            cluster.change(TRANSACTION_STATE, isr=(1,))
            transactions.markers[1].finish()
            machine = transactions.coordinator().transactions["x"].machine
            await cluster.until(lambda: machine.next_deadline_ms() is not None)
            assert machine._retry_ms is not None
            machine._retry_ms += 600_000
            due_ms = machine.next_deadline_ms()
            assert await transactions.add(pair, 1) is CONCURRENT
            assert machine.next_deadline_ms() == due_ms

    run(story())


@pytest.mark.usefixtures("patient")
def test_who_waits_where_another_broker_leads_now_is_told_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            pair = await ending(transactions)
            calls = [adding(transactions, pair, 1), adding(transactions, pair, 2)]
            cluster.change(TRANSACTION_STATE, leader=2)
            for call in calls:
                await reply(transactions, call)
                assert added(call) is ErrorCode.NOT_COORDINATOR
            await transactions.ready(2)
            transactions.markers[2].finish()
            await transactions.until_state("CompleteCommit", broker_id=2)
            assert [call.replies for call in calls] == [1, 1]

    run(story())


@pytest.mark.usefixtures("patient")
def test_who_is_fenced_while_it_waits_is_told_so(tmp_path: Path) -> None:
    """The request that came first is answered first, and counts when the next one is looked at."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            pair = await ending(transactions)
            taking_over = transactions.call(InitProducerIdRequest("x", 60_000), 5)
            late = adding(transactions, pair, 1)
            assert (taking_over.reply, late.reply) == (None, None)
            transactions.markers[1].finish()
            answer = await reply(transactions, taking_over)
            new = (answer.producer_id, answer.producer_epoch)
            assert (answer.error_code, new) == (NONE, (pair[0], pair[1] + 1))
            await reply(transactions, late)
            assert added(late) is ErrorCode.PRODUCER_FENCED
            assert transactions.state() == "Empty"
            assert await transactions.add(new, 1) is NONE

    run(story())


@pytest.mark.usefixtures("patient")
def test_what_has_been_fenced_already_does_not_wait(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            pair = await ending(transactions)
            old = adding(transactions, (pair[0], pair[1] - 1), 1)
            assert added(old) is ErrorCode.PRODUCER_FENCED
            other = adding(transactions, (pair[0] + 1, pair[1]), 1)
            assert added(other) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    run(story())


@pytest.mark.usefixtures("patient")
def test_a_broker_that_asks_for_many_is_answered_at_once(tmp_path: Path) -> None:
    """The other transactions of its request have not to wait for this one."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            pair = await ending(transactions)
            request = AddPartitionsToTxnRequest(transactions=[of_broker("x", pair, 1)])
            call = transactions.call(request, 5, is_internal=True)
            (result,) = call.reply.results_by_transaction
            (topic,) = result.topic_results
            assert topic.results_by_partition[0].partition_error_code == CONCURRENT

    run(story())


@pytest.mark.usefixtures("patient")
def test_so_many_wait_and_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            pair = await ending(transactions)
            calls = [adding(transactions, pair, 1) for _ in range(TRANSACTION_REQUESTS_WAITING_MAX)]
            assert added(adding(transactions, pair, 1)) is CONCURRENT
            transactions.markers[1].finish()
            for call in calls:
                await reply(transactions, call)
                assert added(call) is NONE

    run(story())


@pytest.mark.usefixtures("patient")
def test_an_id_that_is_forgotten_meanwhile_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            await transactions.init()
            coordinator = transactions.coordinator()
            transaction = coordinator.transactions["x"]
            coordinator.expire(transaction, expiration_ms=-1)
            call = transactions.call(InitProducerIdRequest("x", 60_000), 5)
            assert call.reply is None
            assert (await reply(transactions, call)).error_code == CONCURRENT
            assert "x" not in coordinator.transactions
            assert (await transactions.init())[0] is NONE

    run(story())
