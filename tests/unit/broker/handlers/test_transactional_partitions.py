"""What clients are told of a partition with transactions."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from transactional_producer import TransactionalProducer

from fairlead_broker.coordinator import slicing
from fairlead_broker.handlers import in_turns
from fairlead_broker.handlers.transactions import describe_producers
from fairlead_broker.replication.purgatory import Purgatory
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fairlead_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.records import decode_batch, iter_batches

NOW_MS = 1_700_000_000_000
UNCOMMITTED, COMMITTED = 0, 1
LATEST = -1


class Writer:
    """A producer whose appends happen on the broker's loop."""

    def __init__(self, stage: Any, number: int) -> None:
        self.stage = stage
        self.producer = TransactionalProducer(number, now_ms=NOW_MS)

    def put(self, *values: bytes) -> int:
        return self._on_loop(lambda: self.producer.put(self.stage.partition("t"), *values))

    def end(self, **how: Any) -> int:
        return self._on_loop(lambda: self.producer.end(self.stage.partition("t"), **how))

    def _on_loop(self, act: Callable[[], int]) -> int:
        async def acting() -> int:
            return act()

        return int(self.stage.run(acting()))


@pytest.fixture
def one(stage: Any) -> Writer:
    stage.topic("t")
    return Writer(stage, 1)


@pytest.fixture
def two(stage: Any) -> Writer:
    return Writer(stage, 2)


def fetch(stage: Any, offset: int, isolation_level: int, max_bytes: int = 1 << 20) -> Any:
    asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        topics=[FetchTopic("t", partitions=[asked])],
        isolation_level=isolation_level,
        max_wait_ms=0,
        min_bytes=1,
    )
    return stage.ask(request, 12).responses[0].partitions[0]


def aborted(data: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions]


def offsets(data: Any) -> list[int]:
    content = bytes(data.records or b"")
    return [
        record.offset
        for position, _ in iter_batches(content)
        for record in decode_batch(content, position)
    ]


def test_a_fetch_names_what_was_aborted_in_what_it_brings(
    stage: Any, one: Writer, two: Writer
) -> None:
    one.put(b"a")
    two.put(b"b", b"c")
    one.end(commits=False)
    assert offsets(fetch(stage, 0, COMMITTED)) == [0]
    two.end(commits=True)
    one.put(b"d")
    data = fetch(stage, 0, COMMITTED)
    assert (offsets(data), aborted(data)) == ([0, 1, 2, 3, 4], [(1, 0)])
    assert (data.last_stable_offset, data.high_watermark) == (5, 6)
    assert aborted(fetch(stage, 4, COMMITTED)) == []
    assert fetch(stage, 0, UNCOMMITTED).aborted_transactions is None
    assert fetch(stage, 0, UNCOMMITTED).last_stable_offset == 5
    # Where nothing was read there is nothing to leave out.
    assert aborted(fetch(stage, 5, COMMITTED)) == []


def test_a_fetch_of_little_names_what_ends_later(stage: Any, one: Writer) -> None:
    """The marker is not in what is read, its transaction's records are."""
    for number in range(40):
        one.put(b"%d" % number * 100)
    marker = one.end(commits=False)
    data = fetch(stage, 0, COMMITTED, max_bytes=600)
    assert max(offsets(data)) < marker
    assert aborted(data) == [(1, 0)]


def test_latest_is_the_last_stable_offset(stage: Any, one: Writer) -> None:
    stage.append("t", b"x")
    one.put(b"a")

    def latest(isolation_level: int) -> Any:
        asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic("t", [asked])],
        )
        return stage.ask(request, 7).topics[0].partitions[0].offset

    assert (latest(COMMITTED), latest(UNCOMMITTED)) == (1, 2)
    one.end(commits=True)
    assert (latest(COMMITTED), latest(UNCOMMITTED)) == (3, 3)


def test_records_of_an_open_transaction_are_not_deleted(stage: Any, one: Writer) -> None:
    stage.append("t", b"x")
    one.put(b"a", b"b")

    def delete(offset: int) -> tuple[int, int]:
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])]
        )
        answer = stage.ask(request, 2).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    assert delete(2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (0, 1)
    one.end(commits=True)
    assert delete(-1) == (0, 4)


def deletion(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(0, offset)
    return DeleteRecordsRequest([DeleteRecordsTopic("t", [partition])], timeout_ms)


def deleted(answer: Any) -> tuple[int, int]:
    result = answer.topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_deletion_waits_for_the_marker_of_who_has_committed(stage: Any, one: Writer) -> None:
    """EndTxn is answered before its markers are written, and its client may delete at once."""
    one.put(b"a", b"b")
    answer = stage.park(deletion(2, timeout_ms=30_000), 2)
    assert not answer.done()
    one.end(commits=True)
    assert deleted(stage.run(asyncio.wait_for(answer, 5))) == (ErrorCode.NONE, 2)
    assert stage.partition("t").log.log_start_offset == 2


@pytest.mark.parametrize(("timeout_ms", "waits_ms"), [(700, 700), (60_000, 5_000)])
def test_deletion_does_not_wait_for_a_transaction_that_stays_open(
    stage: Any, one: Writer, timeout_ms: int, waits_ms: int
) -> None:
    one.put(b"a", b"b")
    answer = stage.park(deletion(2, timeout_ms), 2)
    purgatory = stage.broker.fetch_purgatory
    begun_ms = stage.broker.clock.monotonic_ms()
    assert purgatory.next_deadline_ms() == begun_ms + waits_ms
    stage.run(expire(purgatory, begun_ms + waits_ms))
    assert deleted(stage.run(asyncio.wait_for(answer, 5))) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert stage.partition("t").log.log_start_offset == 0


def test_deletion_above_the_high_watermark_does_not_wait(stage: Any, one: Writer) -> None:
    one.put(b"a", b"b")
    assert deleted(stage.ask(deletion(3, 30_000), 2)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def expire(purgatory: Purgatory, now_ms: int) -> None:
    purgatory.expire(now_ms)


def test_retention_leaves_what_is_not_stable(stage: Any) -> None:
    stage.topic("t", configs={"retention.ms": "1000", "segment.bytes": "1024"})
    partition = stage.partition("t")
    stage.append("t", b"x" * 600)
    first = Writer(stage, 1).put(b"y" * 600)
    stage.append("t", b"z" * 600)
    log = partition.log
    log.delete_expired_segments(NOW_MS + 10_000, partition.last_stable_offset)
    assert log.log_start_offset == first
    assert len(log.segments) > 1


def test_producers_are_described(stage: Any, one: Writer, two: Writer) -> None:
    one.put(b"a", b"b")
    one.end(commits=False, coordinator_epoch=4)
    begun = two.put(b"c")
    asked = [TopicRequest("t", [0, 9]), TopicRequest("nothing", [0])]
    answer = stage.ask(DescribeProducersRequest(asked), 0)
    (known, missing), (unknown,) = (topic.partitions for topic in answer.topics)
    assert [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in known.active_producers
    ] == [(1, 0, 1, NOW_MS, 4, -1), (2, 0, 0, NOW_MS, -1, begun)]
    for refused in (missing, unknown):
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.active_producers == []


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250])
def test_producers_of_a_topic_that_cannot_be_are_asked_for_in_vain(stage: Any, name: str) -> None:
    """As in Kafka before anything else is looked at, so that a mistyped name shows as one."""
    asked = [TopicRequest(name, [0, 1])]
    (topic,) = stage.ask(DescribeProducersRequest(asked), 0).topics
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 2
    assert all("topic name" in str(each.error_message) for each in topic.partitions)


def test_a_follower_describes_the_producers_that_it_knows(stage: Any, one: Writer) -> None:
    """`kafka-transactions` asks one broker with `--broker-id`, and that may lead nothing."""
    begun = one.put(b"a", b"b")
    stage.change("t", leader=2)
    assert not stage.partition("t").is_leader
    (topic,) = stage.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0).topics
    (answered,) = topic.partitions
    assert answered.error_code == ErrorCode.NONE
    (producer,) = answered.active_producers
    assert (producer.producer_id, producer.current_txn_start_offset) == (1, begun)


def test_a_broker_without_the_replica_describes_no_producers(stage: Any, one: Writer) -> None:
    stage.topic("elsewhere", leader=2, replicas=(2,))
    (topic,) = stage.ask(DescribeProducersRequest([TopicRequest("elsewhere", [0])]), 0).topics
    (answered,) = topic.partitions
    assert answered.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answered.active_producers == []


def test_producers_are_described_once_however_often_their_partition_is_named(
    stage: Any, one: Writer
) -> None:
    one.put(b"a")
    asked = [TopicRequest("t", [0] * 8_000), TopicRequest("t", [0, 9, 0] * 1_000)]
    (topic,) = stage.ask(DescribeProducersRequest(asked), 0).topics
    assert [each.partition_index for each in topic.partitions] == [0, 9]
    assert [len(each.active_producers) for each in topic.partitions] == [1, 0]


def test_very_many_producers_are_described_while_others_are_served(
    stage: Any, one: Writer, two: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.put(b"a")
    two.put(b"b")
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 3)
    later: list[None] = []
    slices = slicing.in_slices

    async def in_slices(*how: Any) -> None:
        later.append(None)
        await slices(*how)

    monkeypatch.setattr(in_turns, "in_slices", in_slices)
    for indexes in ([0], [0, 9]):
        (topic,) = stage.ask(DescribeProducersRequest([TopicRequest("t", indexes)]), 0).topics
        assert [each.partition_index for each in topic.partitions] == indexes
        assert len(topic.partitions[0].active_producers) == 2
    assert len(later) == 1
    monkeypatch.setattr(describe_producers, "DESCRIBED_MAX", 3)
    with pytest.raises(RemoteProtocolError, match="4 partitions and producers"):
        stage.ask(DescribeProducersRequest([TopicRequest("t", [0, 9])]), 0)
