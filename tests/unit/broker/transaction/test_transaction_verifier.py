"""Leaders ask a transaction's coordinator, here or elsewhere, before they take a first batch."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from linked_transactions import COORDINATOR, VERSION_1, VERSION_2, LinkedTransactions, code_of
from replica_cluster import ReplicaCluster

from fairlead_broker.limits import TRANSACTIONAL_ID_BYTES_MAX, UNDERSTOOD_FRAME_BYTES_MAX
from fairlead_broker.tasks import transaction_verifier
from fairlead_model.ids import NO_LEADER, TRANSACTION_STATE
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode

HERE, ELSEWHERE = 0, 1
"""Partitions of `t`: led by the coordinator's broker, and by another one."""
Tell = Callable[[LinkedTransactions], Awaitable[None]]
both = pytest.mark.parametrize("index", [HERE, ELSEWHERE], ids=["here", "elsewhere"])


def run(directory: Path, tell: Tell, **settings: Any) -> None:
    async def story() -> None:
        async with ReplicaCluster(directory, **settings) as cluster:
            transactions = LinkedTransactions(cluster)
            await transactions.ready()
            await tell(transactions)

    asyncio.run(story())


@both
def test_a_partition_of_the_transaction_takes_the_batch(tmp_path: Path, index: int) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        await transactions.add(producer, index)
        assert await transactions.produced(producer, index) is ErrorCode.NONE
        # The transaction is open there now: the coordinator need not be there.
        transactions.cluster.change(TRANSACTION_STATE, leader=NO_LEADER)
        assert await transactions.produced(producer, index) is ErrorCode.NONE

    run(tmp_path, tell)


@both
@pytest.mark.parametrize(
    ("version", "code"),
    [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_late_batch_opens_no_transaction(
    tmp_path: Path, index: int, version: int, code: ErrorCode
) -> None:
    """A client of version 1 whose AddPartitionsToTxn has not come, or came for one that is over."""

    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        await transactions.add(producer, 3)
        assert await transactions.produced(producer, index, version=version) is code
        await transactions.end(producer)
        await transactions.until_state("CompleteCommit")
        assert await transactions.produced(producer, index, version=version) is code
        leader = transactions.cluster.partition(index + 1, "t", index)
        assert leader.log_end_offset == 0

    run(tmp_path, tell)


@both
def test_who_coordinated_before_is_not_asked(tmp_path: Path, index: int) -> None:
    """It may not have heard yet that another broker has ended the transaction."""

    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        await transactions.add(producer, index)
        assert await transactions.produced(producer, index) is ErrorCode.NONE
        await transactions.end(producer)
        await transactions.until_state("CompleteCommit")
        await transactions.add(producer, index)
        leader = transactions.cluster.partition(index + 1, "t", index)
        entry = leader.log.producers.get(producer.producer_id)
        assert entry is not None
        # As by a marker of the coordinator after the next, of which nobody here has heard.
        entry.coordinator_epoch += 2
        for version in (VERSION_1, VERSION_2):
            code = await transactions.produced(producer, index, version=version)
            assert code is ErrorCode.NOT_ENOUGH_REPLICAS
            assert leader.log.producers.transaction_of(producer.producer_id) is None
            producer.sequences[index] -= 1
        for elected in (NO_LEADER, COORDINATOR):
            transactions.cluster.change(TRANSACTION_STATE, leader=elected)
        await transactions.ready()
        assert await transactions.produced(producer, index) is ErrorCode.NONE

    run(tmp_path, tell)


@both
def test_without_verification_only_clients_of_version_2_wait_for_the_coordinator(
    tmp_path: Path, index: int
) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        transactions.cluster.change(TRANSACTION_STATE, leader=NO_LEADER)
        assert await transactions.produced(producer, index, version=10) is ErrorCode.NONE
        code = await transactions.produced(producer, 1 - index, version=VERSION_2)
        assert code is ErrorCode.NOT_ENOUGH_REPLICAS
        leader = transactions.cluster.partition(index + 1, "t", index)
        assert leader.log.producers.transaction_of(producer.producer_id) == 0

    run(tmp_path, tell, transaction_partition_verification_enable="false")


@both
def test_an_older_epoch_is_fenced(tmp_path: Path, index: int) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        zombie = await transactions.begin()
        await transactions.begin()
        for version in (VERSION_1, VERSION_2):
            code = await transactions.produced(zombie, index, version=version)
            assert code is ErrorCode.INVALID_PRODUCER_EPOCH
        zombie.producer_id += 1
        code = await transactions.produced(zombie, index)
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    run(tmp_path, tell)


@both
def test_clients_of_version_2_add_the_partition_by_producing(tmp_path: Path, index: int) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        code = await transactions.produced(producer, index, version=VERSION_2)
        assert code is ErrorCode.NONE
        machine = (
            transactions.broker(COORDINATOR).transaction_coordinator.transactions["id"].machine
        )
        assert set(machine.partitions) == {("t", index)}
        assert await transactions.state() == "Ongoing"

    run(tmp_path, tell)


@both
def test_the_end_of_the_transaction_before_is_waited_for(tmp_path: Path, index: int) -> None:
    """A client of version 2 is answered before the markers are written, and goes on at once."""

    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        await transactions.produced(producer, 2, version=VERSION_2)
        transactions.cluster.change("t", 2, leader=NO_LEADER)
        assert await transactions.end(producer, version=5) is ErrorCode.NONE
        call = transactions.produce(producer, index, b"b", VERSION_2)
        await transactions.cluster.until(lambda: call.reply is not None)
        assert code_of(call) is ErrorCode.CONCURRENT_TRANSACTIONS
        producer.sequences.clear()
        call = transactions.produce(producer, index, b"b", VERSION_2)
        transactions.cluster.change("t", 2, leader=3)
        await transactions.cluster.until(lambda: call.reply is not None)
        while code_of(call) is ErrorCode.CONCURRENT_TRANSACTIONS:
            # On a busy machine the marker may take longer than a leader waits for it.
            producer.sequences.clear()
            call = transactions.produce(producer, index, b"b", VERSION_2)
            await transactions.cluster.until(partial(lambda call: call.reply is not None, call))
        assert code_of(call) is ErrorCode.NONE

    run(tmp_path, tell)


def test_a_coordinator_that_was_stopped_says_nothing_before_it_knows_that_it_still_is_one(
    tmp_path: Path,
) -> None:
    """Also of partitions that its own broker leads: the transaction may be over."""

    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producer = await transactions.begin()
        await transactions.add(producer, HERE)
        cluster.is_controller_away = True
        transactions.broker(COORDINATOR).wake_check.go_on()
        call = transactions.produce(producer, HERE, b"value", VERSION_1)
        cluster.change(TRANSACTION_STATE, leader=NO_LEADER)
        cluster.is_controller_away = False
        await cluster.until(lambda: call.reply is not None)
        assert code_of(call) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.partition(COORDINATOR, "t", HERE).log_end_offset == 0

    run(tmp_path, tell)


def test_without_a_coordinator_the_client_comes_back(tmp_path: Path) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producer = await transactions.begin()
        await transactions.add(producer, HERE, ELSEWHERE)
        cluster.change(TRANSACTION_STATE, leader=NO_LEADER)
        for index in (HERE, ELSEWHERE):
            code = await transactions.produced(producer, index)
            assert code is ErrorCode.NOT_ENOUGH_REPLICAS
        producer.sequences.clear()
        cluster.change(TRANSACTION_STATE, leader=3)
        await transactions.ready(3)
        for index in (HERE, ELSEWHERE):
            assert await transactions.produced(producer, index) is ErrorCode.NONE

    run(tmp_path, tell)


@pytest.mark.parametrize("how", ["killed", "fenced"])
def test_a_coordinator_that_does_not_answer_is_not_waited_for(tmp_path: Path, how: str) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producer = await transactions.begin()
        await transactions.add(producer, ELSEWHERE)
        handlers = transactions.broker(COORDINATOR).transaction_coordinator
        unanswered: list[object] = []
        handlers.add_partitions = lambda *_, **named: unanswered.append(named["answer"])  # type: ignore[method-assign]
        call = transactions.produce(producer, ELSEWHERE, b"a", VERSION_1)
        await cluster.until(lambda: len(unanswered) == 1)
        if how == "killed":
            await cluster.stop(COORDINATOR)
        else:
            cluster.fence(COORDINATOR)
        await cluster.until(lambda: call.reply is not None)
        assert code_of(call) is ErrorCode.NOT_ENOUGH_REPLICAS

    run(tmp_path, tell)


def test_one_request_is_under_way_with_one_question_of_each_transaction(tmp_path: Path) -> None:
    count = 40

    async def tell(transactions: LinkedTransactions) -> None:
        cluster = transactions.cluster
        producers = [await transactions.begin(f"id-{number}") for number in range(count)]
        for producer in producers:
            await transactions.add(producer, ELSEWHERE)
        requests = transactions.broker(COORDINATOR).metrics.requests
        before = requests[ApiKey.ADD_PARTITIONS_TO_TXN]
        calls = [transactions.produce(each, ELSEWHERE, b"a", VERSION_1) for each in producers]
        await cluster.until(lambda: all(call.reply is not None for call in calls))
        assert {code_of(call) for call in calls} == {ErrorCode.NONE}
        assert requests[ApiKey.ADD_PARTITIONS_TO_TXN] - before == 2, "the first, and all others"
        metrics = transactions.broker(2).metrics
        assert (metrics.verification_times.count, metrics.verification_failures) == (count, 0)

    run(tmp_path, tell)


def test_long_ids_of_others_keep_nobody_from_an_answer(tmp_path: Path) -> None:
    """All in one request they would be more than a broker takes, again and again."""
    size = TRANSACTIONAL_ID_BYTES_MAX
    count = UNDERSTOOD_FRAME_BYTES_MAX // size + 10

    async def tell(transactions: LinkedTransactions) -> None:
        producer = await transactions.begin()
        await transactions.add(producer, ELSEWHERE)
        verification = transactions.broker(2).verification
        told: list[ErrorCode] = []

        def ask(number: int) -> None:
            verification.verify(
                f"{number:0{size}}",
                1,
                0,
                [("t", 1)],
                supports_epoch_bump=False,
                answer=lambda verdicts: take(number, *verdicts.values()),
            )

        def take(number: int, verdict: ErrorCode) -> None:
            if verdict is ErrorCode.NETWORK_EXCEPTION:
                ask(number)  # As clients do: on a busy machine an answer may come too late.
            else:
                told.append(verdict)

        for number in range(count):
            ask(number)
        assert await transactions.produced(producer, ELSEWHERE) is ErrorCode.NONE
        await transactions.cluster.until(lambda: len(told) == count)
        assert set(told) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}

    run(tmp_path, tell)


def test_an_id_that_no_coordinator_takes_costs_nobody_a_question(tmp_path: Path) -> None:
    async def tell(transactions: LinkedTransactions) -> None:
        told: list[Mapping[tuple[str, int], ErrorCode]] = []
        transactions.broker(2).verification.verify(
            "ä" * (TRANSACTIONAL_ID_BYTES_MAX // 2 + 1),
            1,
            0,
            [("t", 1)],
            supports_epoch_bump=True,
            answer=told.append,
        )
        assert told == [{("t", 1): ErrorCode.INVALID_REQUEST}]

    run(tmp_path, tell)


def test_questions_without_an_answer_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_verifier, "VERIFICATIONS_MAX", 2)

    async def tell(transactions: LinkedTransactions) -> None:
        verification = transactions.broker(2).verification
        told: list[tuple[str, Mapping[tuple[str, int], ErrorCode]]] = []
        for number in range(4):
            name = f"id-{number}"
            verification.verify(
                name,
                1,
                0,
                [("t", 1)],
                supports_epoch_bump=False,
                answer=lambda verdicts, name=name: told.append((name, verdicts)),  # type: ignore[misc]
            )
        busy = {("t", 1): ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert told == [("id-2", busy), ("id-3", busy)]
        await transactions.cluster.until(lambda: len(told) == 4)
        unknown = {("t", 1): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert dict(told[2:]) == {"id-0": unknown, "id-1": unknown}
        assert transactions.broker(2).metrics.verification_failures == 2

    run(tmp_path, tell)
