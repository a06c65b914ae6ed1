"""The transaction APIs in all their versions, as clients and brokers ask them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from group_cluster import LaterCall, run
from replica_cluster import ReplicaCluster
from transaction_cluster import TransactionCluster, of_broker

from fairlead_broker.api_registry import HANDLERS
from fairlead_broker.coordinator import slicing
from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_broker.handlers import in_turns
from fairlead_broker.handlers.transactions import describe_transactions, list_transactions
from fairlead_broker.limits import (
    PARTITIONS_PER_REQUEST_MAX,
    TRANSACTION_PATTERN_LENGTH_MAX,
    TRANSACTIONAL_ID_BYTES_MAX,
)
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from fairlead_wire.messages.describe_transactions import DescribeTransactionsRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.list_transactions import ListTransactionsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

NONE = ErrorCode.NONE
OLD = ErrorCode.INVALID_PRODUCER_EPOCH
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def told(
    tmp_path: Path, story: Callable[[TransactionCluster], Awaitable[None]], **settings: Any
) -> None:
    """One broker that coordinates."""

    async def begin() -> None:
        async with ReplicaCluster(tmp_path, size=1, **settings) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            await story(transactions)

    run(begin())


@pytest.mark.parametrize(
    ("init_version", "add_version", "end_version"),
    [(0, 0, 0), (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 3, 4)],
)
def test_a_client_of_version_1_commits_and_aborts_under_one_epoch(
    tmp_path: Path, init_version: int, add_version: int, end_version: int
) -> None:
    async def story(transactions: TransactionCluster) -> None:
        code, *rest = await transactions.init(version=init_version)
        pair = (rest[0], rest[1])
        assert code is NONE
        for commit in (True, False):
            assert await transactions.add(pair, 0, 1, version=add_version) is NONE
            end = await transactions.end(pair, commit=commit, version=end_version)
            assert end == (NONE, -1, -1)
            (ending,) = transactions.markers[1].endings
            assert ending.marker[:2] == pair
            assert (ending.marker.is_commit, ending.marker.transaction_version) == (commit, 0)
            transactions.markers[1].finish()
            await transactions.until_state("CompleteCommit" if commit else "CompleteAbort")

    told(tmp_path, story)


def test_a_client_of_version_2_gets_a_new_epoch_with_each_end(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        _, producer_id, epoch = await transactions.init()
        for commit in (True, False):
            # Brokers add what it produces to.
            request = AddPartitionsToTxnRequest([of_broker("x", (producer_id, epoch), 0)])
            await transactions.ask(request, 5, is_internal=True)
            end = await transactions.end((producer_id, epoch), commit=commit)
            assert end == (NONE, producer_id, epoch + 1)
            epoch += 1
            (ending,) = transactions.markers[1].endings
            assert ending.marker[:2] == (producer_id, epoch)
            assert ending.marker.transaction_version == 2
            transactions.markers[1].finish()
            await transactions.until_state("CompleteCommit" if commit else "CompleteAbort")

    told(tmp_path, story)


def test_what_is_fenced_is_called_so_where_the_version_knows_it(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        transactions.cluster.create(CONSUMER_OFFSETS)
        _, producer_id, _ = await transactions.init()
        await transactions.init()
        old = (producer_id, 0)
        for version in range(3, 6):
            code, *_ = await transactions.init(
                version=version, producer_id=producer_id + 1, producer_epoch=0
            )
            assert code is (OLD if version < 4 else FENCED)
        for version in range(4):
            expected = OLD if version < 2 else FENCED
            assert await transactions.add(old, 0, version=version) is expected
        for version in range(5):
            expected = OLD if version < 2 else FENCED
            assert await transactions.add_offsets(old, "g", version=version) is expected
        for version in range(6):
            expected = OLD if version < 2 else FENCED
            pair = (producer_id, 7)
            assert (await transactions.end(pair, commit=True, version=version))[0] is expected

    told(tmp_path, story)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "y" * (TRANSACTIONAL_ID_BYTES_MAX + 1)}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_000}, NONE),
    ],
)
def test_what_a_producer_may_ask_for(
    tmp_path: Path, fields: dict[str, Any], code: ErrorCode
) -> None:
    async def story(transactions: TransactionCluster) -> None:
        request = InitProducerIdRequest("x", 60_000)
        for name, value in fields.items():
            setattr(request, name, value)
        reply = await transactions.ask(request, 4)
        assert reply.error_code == code
        assert (reply.producer_id == -1) == (code is not NONE)

    told(tmp_path, story)


def test_the_longest_time_out_is_a_setting(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        assert (await transactions.init(timeout_ms=5_000))[0] is NONE
        code, *_ = await transactions.init(timeout_ms=5_001)
        assert code is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    told(tmp_path, story, transaction_max_timeout_ms="5000")


def test_an_id_that_nobody_has_initialized_is_unknown(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        transactions.cluster.create(CONSUMER_OFFSETS)
        assert await transactions.add((1, 0), 0) is MAPPING
        assert await transactions.add_offsets((1, 0), "g") is MAPPING
        assert (await transactions.end((1, 0), commit=True))[0] is MAPPING
        assert transactions.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    told(tmp_path, story)


def codes_of(topics: list[Any]) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in topics
        for each in topic.results_by_partition
    }


def test_partitions_are_added_all_or_none(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        _, *pair = await transactions.init()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=pair[0],
            v3_and_below_producer_epoch=pair[1],
            v3_and_below_topics=[
                AddPartitionsToTxnTopic("t", [0, 4]),
                AddPartitionsToTxnTopic("absent", [0]),
                AddPartitionsToTxnTopic(CONSUMER_OFFSETS, [0]),
            ],
        )
        reply = await transactions.ask(request, 3)
        assert codes_of(reply.results_by_topic_v3_and_below) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("t", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            # Only a group's coordinator adds those.
            (CONSUMER_OFFSETS, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert transactions.state() == "Empty"
        request.v3_and_below_topics = []
        reply = await transactions.ask(request, 3)
        assert (reply.results_by_topic_v3_and_below, transactions.state()) == ([], "Empty")

    told(tmp_path, story)


def test_the_partition_of_a_group_joins_a_transaction(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        _, *rest = await transactions.init()
        pair = (rest[0], rest[1])
        made: list[str] = []
        broker = transactions.cluster.members[1].broker
        broker.topic_creator.begin = made.append  # type: ignore[method-assign, assignment]
        code = await transactions.add_offsets(pair, "g")
        assert (code, made) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [CONSUMER_OFFSETS])
        transactions.cluster.create(CONSUMER_OFFSETS, partitions=5)
        assert await transactions.add_offsets(pair, "g") is NONE
        (topic,) = transactions.describe().topics
        assert (topic.topic, topic.partitions) == (
            CONSUMER_OFFSETS,
            [coordinator_partition("g", 5)],
        )

    told(tmp_path, story)


def test_brokers_ask_about_many_transactions_at_once(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        _, *rest = await transactions.init()
        x = (rest[0], rest[1])
        await transactions.add(x, 0)
        _, *rest = await transactions.init("y")
        y = (rest[0], rest[1])
        request = AddPartitionsToTxnRequest(
            [
                of_broker("x", x, 0, 1, verify_only=True),
                of_broker("y", y, 2),
                of_broker("z", y, 0),
                of_broker("x", (x[0], 9), 0, verify_only=True),
                of_broker("y", y, 9),
            ]
        )
        reply = await transactions.ask(request, 5, is_internal=True)
        assert reply.error_code == NONE
        answers = [
            (each.transactional_id, codes_of(each.topic_results))
            for each in reply.results_by_transaction
        ]
        # Sent when all is known; what needs a record comes last.
        assert answers == [
            ("x", {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}),
            ("z", {("t", 0): MAPPING}),
            ("x", {("t", 0): FENCED}),
            ("y", {("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
            ("y", {("t", 2): NONE}),
        ]
        assert transactions.state("y") == "Ongoing"
        old = await transactions.ask(
            AddPartitionsToTxnRequest([of_broker("x", x, 1, verify_only=True)]),
            4,
            is_internal=True,
        )
        (result,) = old.results_by_transaction
        assert codes_of(result.topic_results) == {("t", 1): ErrorCode.INVALID_TXN_STATE}
        nothing = await transactions.ask(AddPartitionsToTxnRequest(), 5, is_internal=True)
        assert nothing.results_by_transaction == []

    told(tmp_path, story)


@pytest.mark.parametrize("version", [4, 5])
def test_clients_may_ask_what_brokers_ask_where_nobody_authorizes(
    tmp_path: Path, version: int
) -> None:
    """As Kafka; @platformatic/kafka 1.35 does, with the newest version that it is told of."""

    async def story(transactions: TransactionCluster) -> None:
        assert HANDLERS[ApiKey.ADD_PARTITIONS_TO_TXN].advertised == (0, 5)
        _, *rest = await transactions.init()
        pair = (rest[0], rest[1])
        asked = of_broker("x", pair, 0)
        asked.topics.append(AddPartitionsToTxnTopic(CONSUMER_OFFSETS, [0]))
        reply = await transactions.ask(AddPartitionsToTxnRequest([asked]), version)
        assert codes_of(reply.results_by_transaction[0].topic_results) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            (CONSUMER_OFFSETS, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert transactions.state() == "Empty"
        request = AddPartitionsToTxnRequest([of_broker("x", pair, 0, 1)])
        reply = await transactions.ask(request, version)
        (result,) = reply.results_by_transaction
        assert codes_of(result.topic_results) == {("t", 0): NONE, ("t", 1): NONE}
        assert transactions.state() == "Ongoing"
        code, *after = await transactions.end(pair, commit=True)
        assert (code, after) == (NONE, [pair[0], pair[1] + 1])

    told(tmp_path, story)


def test_a_client_may_not_ask_about_more_than_a_request_has_room_for(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        asked = of_broker("x", (1, 0), *range(PARTITIONS_PER_REQUEST_MAX))
        with pytest.raises(RemoteProtocolError, match="too many transactions and partitions"):
            transactions.call(AddPartitionsToTxnRequest([asked]), 5)

    told(tmp_path, story)


def test_a_transaction_is_described_with_the_partitions_that_have_no_marker(
    tmp_path: Path,
) -> None:
    """KIP-664: a producer is hanging where its partition is not among them."""

    async def story(transactions: TransactionCluster) -> None:
        _, *rest = await transactions.init(timeout_ms=7_000)
        pair = (rest[0], rest[1])
        empty = transactions.describe()
        assert (empty.transaction_state, empty.transaction_start_time_ms) == ("Empty", -1)
        await transactions.add(pair, 2, 0)
        described = transactions.describe()
        assert (described.producer_id, described.producer_epoch) == pair
        assert described.transaction_timeout_ms == 7_000
        assert described.transaction_start_time_ms > 0
        assert [(each.topic, each.partitions) for each in described.topics] == [("t", [0, 2])]
        await transactions.end(pair, commit=False, version=4)
        (ending,) = transactions.markers[1].endings
        transactions.coordinator().partitions_ended(ending, [("t", 0)])
        described = transactions.describe()
        assert described.transaction_state == "PrepareAbort"
        assert [(each.topic, each.partitions) for each in described.topics] == [("t", [2])]
        assert transactions.describe("").error_code == ErrorCode.INVALID_REQUEST
        request = DescribeTransactionsRequest(["x", "y", "x"] * 5_000)
        found = transactions.call(request, 0).reply.transaction_states
        assert [each.transactional_id for each in found] == ["x", "y"], "each once"

    told(tmp_path, story)


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (0, {}, ["empty", "open", "ended"]),
        (0, {"state_filters": ["Ongoing", "Empty"]}, ["empty", "open"]),
        (0, {"state_filters": ["Dead", "PrepareEpochFence"]}, []),
        (0, {"producer_id_filters": [1001, 5]}, ["open"]),
        (0, {"producer_id_filters": [1001], "state_filters": ["Empty"]}, []),
        (1, {"duration_filter": -1}, ["empty", "open", "ended"]),
        (1, {"duration_filter": 3_600_000}, ["empty"]),
        (2, {"transactional_id_pattern": "e.*"}, ["empty", "ended"]),
        (2, {"transactional_id_pattern": "pt"}, []),
        (2, {"transactional_id_pattern": ""}, ["empty", "open", "ended"]),
    ],
)
def test_transactional_ids_are_listed_by_filters(
    tmp_path: Path, version: int, fields: dict[str, Any], expected: list[str]
) -> None:
    """One that never had a transaction counts as very old, as in Kafka."""

    async def story(transactions: TransactionCluster) -> None:
        for number, name in enumerate(("empty", "open", "ended")):
            _, producer_id, epoch = await transactions.init(name)
            assert producer_id == 1000 + number
            if name != "empty":
                await transactions.add((producer_id, epoch), 0, transactional_id=name)
        await transactions.end((1002, 0), commit=True, transactional_id="ended")
        request = ListTransactionsRequest()
        for name, value in fields.items():
            setattr(request, name, value)
        reply = await transactions.ask(request, version)
        assert (reply.error_code, reply.unknown_state_filters) == (NONE, [])
        states = {"empty": "Empty", "open": "Ongoing", "ended": "PrepareCommit"}
        assert [
            (each.transactional_id, each.transaction_state) for each in reply.transaction_states
        ] == [(name, states[name]) for name in expected]

    told(tmp_path, story)


def test_states_that_there_are_not_match_nothing_and_come_back(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        await transactions.init()
        request = ListTransactionsRequest(["Empty", "empty", "Open"])
        reply = await transactions.ask(request, 2)
        assert reply.unknown_state_filters == ["empty", "Open"]
        assert len(reply.transaction_states) == 1
        assert (await transactions.ask(ListTransactionsRequest(["Open"]), 2)).error_code == NONE
        assert not (await transactions.ask(ListTransactionsRequest(["Open"]), 2)).transaction_states

    told(tmp_path, story)


@pytest.mark.parametrize("pattern", ["(", "a" * (TRANSACTION_PATTERN_LENGTH_MAX + 1), "a{1001}"])
def test_what_is_no_pattern_is_refused(tmp_path: Path, pattern: str) -> None:
    async def story(transactions: TransactionCluster) -> None:
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        reply = await transactions.ask(request, 2)
        assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    told(tmp_path, story)


def test_a_pattern_that_would_backtrack_for_ever_takes_no_time(tmp_path: Path) -> None:
    async def story(transactions: TransactionCluster) -> None:
        await transactions.init("a" * 4_000)
        request = ListTransactionsRequest(transactional_id_pattern="(a|a|aa)*b")
        assert not (await transactions.ask(request, 2)).transaction_states

    told(tmp_path, story)


def test_very_many_ids_and_partitions_are_told_of_while_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 3)
    monkeypatch.setattr(slicing, "HOUSEKEEPING_SLICE_MS", 0)
    monkeypatch.setattr(list_transactions, "_IDS_PER_STEP", 1)
    names = ["a", "b", "c", "d"]

    async def story(transactions: TransactionCluster) -> None:
        broker = transactions.cluster.members[1].broker
        for number, name in enumerate(names):
            _, *pair = await transactions.init(name)
            if number:
                await transactions.add((pair[0], pair[1]), *range(number), transactional_id=name)

        async def ask(request: Any, version: int, *, is_unloaded: bool = False) -> Any:
            call = LaterCall(broker, request, version)
            turns: list[None] = []
            asyncio.get_running_loop().call_soon(turns.append, None)
            if is_unloaded:
                asyncio.get_running_loop().call_soon(transactions.coordinator().runtime.stop)
            reply = await call.answer()
            assert turns, "nobody else was served meanwhile"
            return reply

        described = DescribeTransactionsRequest(names)
        states = (await ask(described, 0)).transaction_states
        assert [sum(len(topic.partitions) for topic in each.topics) for each in states] == [
            0,
            1,
            2,
            3,
        ]
        listed = (await ask(ListTransactionsRequest(), 2)).transaction_states
        assert [each.transactional_id for each in listed] == names
        with monkeypatch.context() as patch:
            patch.setattr(describe_transactions, "DESCRIBED_MAX", 9)
            with pytest.raises(RemoteProtocolError, match="10 ids and partitions"):
                transactions.call(described, 0)
        states = (await ask(described, 0, is_unloaded=True)).transaction_states
        assert states[-1].error_code == ErrorCode.NOT_COORDINATOR

    told(tmp_path, story)
