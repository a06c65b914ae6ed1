"""Batches of transactions: the coordinator is asked before the first one, and order is kept."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker, ScriptedVerification, batch

from fairlead_broker.authorization import Operation, Principal, ResourceType
from fairlead_broker.limits import NEW_LEADER_MS
from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_1, EndMarker
from fairlead_broker.replication.partition import Partition
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fairlead_wire.records import decode_batch, iter_batches

Connect = Callable[..., FrameClient]
NONE = ErrorCode.NONE
PRODUCER_ID = 7
LARGE = 100_000


def transactional(*values: bytes, sequence: int = 0, epoch: int = 0, producer_id: int = 7) -> bytes:
    return batch(
        *values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def request(
    *partitions: tuple[str, int, bytes], acks: int = -1, transactional_id: str | None = "id"
) -> Any:
    return ProduceRequest(
        transactional_id,
        acks,
        5_000,
        [
            TopicProduceData(topic, partition_data=[PartitionProduceData(index, records)])
            for topic, index, records in partitions
        ],
    )


def slots(response: ProduceResponse) -> list[tuple[int, int]]:
    return [
        (slot.error_code, slot.base_offset)
        for topic in response.responses
        for slot in topic.partition_responses
    ]


def values(partition: Partition) -> list[bytes | None]:
    """All that was produced, in order."""
    data = b"".join(Path(segment.path).read_bytes() for segment in partition.log.segments)
    return [
        record.value
        for position, _ in iter_batches(data)
        for record in decode_batch(data, position)
    ]


@pytest.fixture
def verification(live: LiveBroker) -> ScriptedVerification:
    return live.broker.verification


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_the_first_batch_waits_for_the_coordinator_and_the_next_do_not(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification, version: int
) -> None:
    partition = live.add_partition("t")
    client = connect()
    client.send(request(("t", 0, transactional(b"a"))), version)
    live.eventually(lambda: len(verification.waiting) == 1)
    assert verification.asked == [("id", PRODUCER_ID, 0, {("t", 0)}, version >= 12)]
    assert partition.log_end_offset == 0
    live.run(verification.answer)
    assert slots(client.receive(0, version)[1]) == [(0, 0)]
    second = client.call(request(("t", 0, transactional(b"b", sequence=1))), version)
    assert slots(second) == [(0, 1)]
    assert len(verification.asked) == 1
    assert live.run(lambda: live.broker.waiting_produces.bytes) == 0


@pytest.mark.parametrize(
    ("verdict", "codes"),
    [
        (ErrorCode.PRODUCER_FENCED, {9: "INVALID_PRODUCER_EPOCH", 12: "INVALID_PRODUCER_EPOCH"}),
        (ErrorCode.INVALID_PRODUCER_EPOCH, {9: "INVALID_PRODUCER_EPOCH"}),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            {
                9: "INVALID_TXN_STATE",
                10: "INVALID_TXN_STATE",
                11: "TRANSACTION_ABORTABLE",
                12: "TRANSACTION_ABORTABLE",
            },
        ),
        (ErrorCode.NOT_COORDINATOR, {9: "NOT_ENOUGH_REPLICAS", 12: "NOT_ENOUGH_REPLICAS"}),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, {9: "NOT_ENOUGH_REPLICAS"}),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {9: "NOT_ENOUGH_REPLICAS"}),
        (ErrorCode.NETWORK_EXCEPTION, {9: "NOT_ENOUGH_REPLICAS", 12: "NOT_ENOUGH_REPLICAS"}),
        (ErrorCode.REQUEST_TIMED_OUT, {9: "NOT_ENOUGH_REPLICAS"}),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, {12: "NOT_ENOUGH_REPLICAS"}),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            {
                9: "NOT_ENOUGH_REPLICAS",
                11: "NOT_ENOUGH_REPLICAS",
                12: "CONCURRENT_TRANSACTIONS",
            },
        ),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {9: "INVALID_TXN_STATE"}),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, {9: "INVALID_PRODUCER_ID_MAPPING"}),
    ],
)
def test_what_a_producer_is_told(
    live: LiveBroker,
    connect: Connect,
    verification: ScriptedVerification,
    verdict: ErrorCode,
    codes: dict[int, str],
) -> None:
    partition = live.add_partition("t")
    verification.verdict = verdict
    client = connect()
    for version, code in codes.items():
        response = client.call(request(("t", 0, transactional(b"a"))), version)
        assert slots(response) == [(ErrorCode[code], -1)]
        assert response.responses[0].partition_responses[0].error_message
    assert partition.log_end_offset == 0


def test_batches_behind_it_keep_their_order_and_their_bytes(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    """The receive buffer is used again and again while they wait."""
    partition = live.add_partition("t")
    client = connect()
    expected = [bytes([number]) * LARGE for number in range(8)]
    for number, value in enumerate(expected):
        client.send(request(("t", 0, transactional(value, sequence=number))), 11)
    live.eventually(lambda: len(verification.waiting) == 1)
    other = live.add_partition("u")
    with FrameClient(live.port) as noise:
        for _ in range(5):
            noise.call(request(("u", 0, batch(b"\xff" * LARGE)), acks=1, transactional_id=None), 9)
    assert (partition.log_end_offset, other.log_end_offset) == (0, 5)
    live.eventually(lambda: live.broker.waiting_produces.bytes > 8 * LARGE)
    live.run(verification.answer)
    answers = [slots(client.receive(0, 11)[1]) for _ in expected]
    assert answers == [[(0, number)] for number in range(8)]
    assert live.run(lambda: values(partition)) == expected
    assert len(verification.asked) == 1
    assert live.run(lambda: live.broker.waiting_produces.bytes) == 0


def test_who_waits_behind_is_verified_in_turn(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    live.add_partition("t")
    live.add_partition("t", 1)
    client = connect()
    for index, sequence, value in ((0, 0, b"a"), (1, 0, b"b"), (0, 1, b"c")):
        client.send(request(("t", index, transactional(value, sequence=sequence))), 11)
    live.eventually(lambda: len(verification.waiting) == 1)
    live.run(verification.answer)
    live.eventually(lambda: len(verification.waiting) == 1)
    assert [asked[3] for asked in verification.asked] == [{("t", 0)}, {("t", 1)}]
    live.run(verification.answer)
    assert [slots(client.receive(0, 11)[1]) for _ in range(3)] == [[(0, 0)], [(0, 0)], [(0, 1)]]
    assert len(verification.asked) == 2


def test_partitions_of_a_request_have_their_own_answers(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    for index in range(3):
        live.add_partition("t", index)
    verification.verdict = ErrorCode.NONE
    client = connect()
    client.call(request(("t", 0, transactional(b"a"))), 11)
    verification.verdict = None
    client.send(
        request(
            ("t", 0, transactional(b"b", sequence=1)),
            ("t", 1, transactional(b"c")),
            ("u", 0, transactional(b"d")),
            ("t", 2, transactional(b"e", sequence=3)),
        ),
        11,
    )
    live.eventually(lambda: len(verification.waiting) == 1)
    partitions, answer = live.run(verification.waiting.pop)
    assert partitions == {("t", 1), ("t", 2)}
    live.run(lambda: answer({("t", 1): ErrorCode.NONE, ("t", 2): ErrorCode.TRANSACTION_ABORTABLE}))
    assert slots(client.receive(0, 11)[1]) == [
        (0, 1),
        (0, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.TRANSACTION_ABORTABLE, -1),
    ]


def test_a_verified_batch_is_answered_when_it_is_committed(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    partition = live.add_partition("t", isr=(0, 1))
    verification.verdict = ErrorCode.NONE
    client = connect()
    client.send(request(("t", 0, transactional(b"a"))), 11)
    live.eventually(lambda: len(live.broker.produce_purgatory) == 1)
    assert (partition.log_end_offset, partition.high_watermark) == (1, 0)
    live.run(lambda: partition.record_fetch(1, 1, 1, live.broker.clock.monotonic_ms()))
    assert slots(client.receive(0, 11)[1]) == [(0, 0)]


def test_a_transaction_that_ended_while_its_coordinator_was_asked_is_not_opened_again(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    """The answer was about the transaction that the marker has ended."""
    partition = live.add_partition("t")
    client = connect()
    client.send(request(("t", 0, transactional(b"a"))), 11)
    live.eventually(lambda: len(verification.waiting) == 1)
    marker = EndMarker(PRODUCER_ID, 0, 0, False, TRANSACTION_VERSION_1)
    live.run(lambda: partition.append_end_marker(marker, now_ms=live.broker.clock.now_ms()))
    live.run(verification.answer)
    assert slots(client.receive(0, 11)[1]) == [(ErrorCode.INVALID_TXN_STATE, -1)]


@pytest.mark.parametrize("acks", [0, 1])
def test_transactions_need_acks_all(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification, acks: int
) -> None:
    live.add_partition("t")
    client = connect()
    message = request(("t", 0, transactional(b"a")), acks=acks)
    if acks:
        assert slots(client.call(message, 9)) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    else:
        client.send(message, 9)
        assert client.is_closed_by_peer()
    assert verification.asked == []


def test_a_batch_of_a_transaction_needs_the_id(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    live.add_partition("t")
    response = connect().call(request(("t", 0, transactional(b"a")), transactional_id=None), 11)
    assert slots(response) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]
    assert verification.asked == []


def test_other_batches_ask_nobody(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    live.add_partition("t")
    assert slots(connect().call(request(("t", 0, batch(b"a"))), 11)) == [(0, 0)]
    assert verification.asked == []


def test_one_request_speaks_for_one_producer(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    live.add_partition("t")
    live.add_partition("t", 1)
    response = connect().call(
        request(("t", 0, transactional(b"a")), ("t", 1, transactional(b"a", epoch=1))), 11
    )
    assert slots(response) == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
    assert verification.asked == []


@pytest.mark.parametrize("damage", ["short", "old"])
def test_what_is_no_batch_is_refused_without_a_question(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification, damage: str
) -> None:
    live.add_partition("t")
    records = bytearray(transactional(b"a"))
    if damage == "short":
        del records[40:]
    else:
        records[16] = 1
    response = connect().call(request(("t", 0, bytes(records))), 11)
    assert slots(response) == [(ErrorCode.INVALID_RECORD, -1)]
    assert verification.asked == []


def test_a_client_that_leaves_is_forgotten_with_all_that_waits(
    live: LiveBroker, verification: ScriptedVerification
) -> None:
    partition = live.add_partition("t")
    with FrameClient(live.port) as client:
        for sequence in range(3):
            client.send(request(("t", 0, transactional(b"a", sequence=sequence))), 11)
        live.eventually(lambda: live.broker.waiting_produces.bytes > 3_000)
    live.eventually(lambda: not live.server.connections)
    assert live.run(lambda: live.broker.waiting_produces.bytes) == 0
    live.run(verification.answer)
    assert partition.log_end_offset == 0


def test_what_waits_is_bounded(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    partition = live.add_partition("t")
    live.broker.waiting_produces._bytes_max = 3 * LARGE
    client = connect()
    for sequence in range(4):
        client.send(request(("t", 0, transactional(b"a" * LARGE, sequence=sequence))), 11)
    live.eventually(lambda: len(verification.waiting) == 1)
    live.eventually(lambda: live.broker.metrics.requests[ProduceRequest.API_KEY] == 4)
    with FrameClient(live.port) as other:
        message = request(("t", 0, transactional(b"b" * 2 * LARGE, producer_id=8)))
        assert slots(other.call(message, 11)) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    live.run(verification.answer)
    answers = [slots(client.receive(0, 11)[1])[0][0] for _ in range(4)]
    assert answers == [0, 0, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert partition.log_end_offset == 2
    assert live.run(lambda: live.broker.waiting_produces.bytes) == 0


def reign_for_long(live: LiveBroker, partition: Partition) -> None:
    """Where the leader is new, gaps are refused as at a leader of before."""
    leader = partition.leader
    assert leader is not None
    live.run(lambda: setattr(leader, "began_ms", leader.began_ms - NEW_LEADER_MS))


def test_a_gap_where_the_batch_before_could_not_be_verified_comes_again(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification
) -> None:
    """The coordinator moves between two batches: for want of the first, librdkafka would have to
    abort the transaction."""
    partition = live.add_partition("t")
    reign_for_long(live, partition)
    client = connect()

    def ask(*verdicts: ErrorCode) -> list[tuple[int, int]]:
        for sequence in range(2):
            client.send(request(("t", 0, transactional(b"a", sequence=sequence))), 10)
        for verdict in verdicts:
            live.eventually(lambda: len(verification.waiting) == 1)
            live.run(partial(verification.answer, verdict))
        return [slots(client.receive(0, 10)[1])[0] for _ in range(2)]

    assert ask(ErrorCode.NOT_COORDINATOR, NONE) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)] * 2
    assert ask(NONE) == [(NONE, 0), (NONE, 1)]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_gap_where_there_was_no_room_for_the_batch_before_comes_again(
    live: LiveBroker, connect: Connect, verification: ScriptedVerification, is_first: bool
) -> None:
    partition = live.add_partition("t")
    reign_for_long(live, partition)
    live.broker.waiting_produces._bytes_max = LARGE
    client = connect()
    sizes = [LARGE, 1] if is_first else [1, LARGE, 1]
    for sequence, size in enumerate(sizes):
        client.send(request(("t", 0, transactional(b"a" * size, sequence=sequence))), 10)
    live.eventually(lambda: live.broker.metrics.requests[ProduceRequest.API_KEY] == len(sizes))
    live.eventually(lambda: len(verification.waiting) == 1 + is_first)
    for _ in range(1 + is_first):
        live.run(verification.answer)
    answers = [slots(client.receive(0, 10)[1])[0][0] for _ in sizes]
    assert answers == [NONE] * (not is_first) + [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    again = [len(sizes) - 2, len(sizes) - 1]
    verification.verdict = NONE
    for sequence in again:
        answer = client.call(request(("t", 0, transactional(b"a", sequence=sequence))), 10)
        assert slots(answer) == [(NONE, sequence)]


class TopicsOnly:
    """Lets everybody write to topics, and nobody to transactional ids."""

    def __init__(self) -> None:
        self.asked: list[tuple[Operation, ResourceType, str]] = []

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        self.asked.append((operation, resource_type, name))
        return resource_type is ResourceType.TOPIC

    def would_allow(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        return self.is_allowed(principal, host, operation, resource_type, name)

    def is_allowed_for_some(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return resource_type is ResourceType.TOPIC


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[LiveBroker, TopicsOnly]]:
    authorizer = TopicsOnly()
    with LiveBroker(tmp_path, authorizer=authorizer) as broker:
        yield broker, authorizer


def test_a_principal_has_to_be_allowed_the_transactional_id(
    guarded: tuple[LiveBroker, TopicsOnly],
) -> None:
    live, authorizer = guarded
    live.add_partition("t")
    with FrameClient(live.port) as client:
        response = client.call(request(("t", 0, transactional(b"a"))), 11)
    assert slots(response) == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]
    assert (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "id") in authorizer.asked
    assert live.broker.verification.asked == []
