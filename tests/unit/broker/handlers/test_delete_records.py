"""DeleteRecords of partitions that other brokers follow: it is done when all have deleted."""

import asyncio
from typing import Any

import pytest
from transactional_producer import TransactionalProducer

from fairlead_broker.limits import PARKED_WAIT_MAX_MS, UNDECIDED_RECORDS_WAIT_MS
from fairlead_broker.replication.purgatory import Purgatory
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

NOW_MS = 1_700_000_000_000


def wait_for_deletion(
    stage: Any, *partitions: DeleteRecordsPartition, timeout_ms: int = 30_000
) -> asyncio.Future[Any]:
    return stage.park(  # type: ignore[no-any-return]
        DeleteRecordsRequest([DeleteRecordsTopic("t", list(partitions))], timeout_ms), 2
    )


def follow(stage: Any, broker_id: int, offset: int, *, log_start: int, index: int = 0) -> None:
    """A follower fetches."""

    async def act() -> None:
        now_ms = stage.broker.clock.monotonic_ms()
        stage.partition("t", index).record_fetch(
            broker_id, broker_id, offset, now_ms, log_start_offset=log_start
        )

    stage.run(act())


def outcome_of(stage: Any, answer: asyncio.Future[Any]) -> list[tuple[ErrorCode, int]]:
    response = stage.run(asyncio.wait_for(answer, 5))
    (topic,) = response.topics
    return [(ErrorCode(each.error_code), each.low_watermark) for each in topic.partitions]


async def expire(purgatory: Purgatory, now_ms: int) -> None:
    purgatory.expire(now_ms)


@pytest.fixture
def followed(stage: Any) -> Any:
    """Three records on each of two partitions, which brokers 2 and 3 follow."""
    stage.neighbour(2)
    stage.neighbour(3)
    stage.topic("t", partitions=2, replicas=(1, 2, 3))
    for index in (0, 1):
        stage.append("t", b"a", b"b", b"c", index=index)
        stage.change("t", index, isr=(1, 2, 3))
        for broker_id in (2, 3):
            follow(stage, broker_id, 3, log_start=0, index=index)
    return stage


@pytest.mark.parametrize("offset", [2, -1])
def test_deletion_waits_until_each_follower_has_deleted(followed: Any, offset: int) -> None:
    """Who leads next would have the records still."""
    target = 3 if offset < 0 else offset
    answer = wait_for_deletion(followed, DeleteRecordsPartition(0, offset))
    assert followed.partition("t").log_start_offset == target
    follow(followed, 2, 3, log_start=target)
    assert not answer.done()
    follow(followed, 3, 3, log_start=target - 1)
    assert not answer.done()
    follow(followed, 3, 3, log_start=target)
    assert outcome_of(followed, answer) == [(ErrorCode.NONE, target)]


def test_what_followers_have_deleted_already_is_answered_at_once(followed: Any) -> None:
    for broker_id, log_start in ((2, 1), (3, 2)):
        follow(followed, broker_id, 3, log_start=log_start)
    topics = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])]
    result = followed.ask(DeleteRecordsRequest(topics, 30_000), 2).topics[0].partitions[0]
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 1)
    assert not followed.broker.fetch_purgatory.keys_count


@pytest.mark.parametrize("timeout_ms", [0, 700, 2**31 - 1])
def test_deletion_that_is_not_followed_in_time_times_out(followed: Any, timeout_ms: int) -> None:
    follow(followed, 2, 3, log_start=2)
    if timeout_ms:
        purgatory = followed.broker.fetch_purgatory
        begun_ms = followed.broker.clock.monotonic_ms()
        answer = wait_for_deletion(followed, DeleteRecordsPartition(0, 2), timeout_ms=timeout_ms)
        due_ms = begun_ms + min(timeout_ms, PARKED_WAIT_MAX_MS)
        assert purgatory.next_deadline_ms() == due_ms
        followed.run(expire(purgatory, due_ms))
        assert outcome_of(followed, answer) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
    else:
        topics = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 2)])]
        result = followed.ask(DeleteRecordsRequest(topics, 0), 2).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert followed.partition("t").log_start_offset == 2, "here they are gone even so"


def test_a_follower_that_is_not_in_service_is_not_waited_for(followed: Any) -> None:
    answer = wait_for_deletion(followed, DeleteRecordsPartition(0, 2))
    follow(followed, 2, 3, log_start=2)
    assert not answer.done()
    followed.neighbour(3, fenced=True)
    assert outcome_of(followed, answer) == [(ErrorCode.NONE, 2)]


def test_deletion_ends_with_the_leadership(followed: Any) -> None:
    answer = wait_for_deletion(followed, DeleteRecordsPartition(0, 2))
    followed.change("t", leader=2)
    assert outcome_of(followed, answer) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_partitions_wait_for_what_each_of_them_lacks(followed: Any) -> None:
    """Transactions are waited for some seconds only, followers for as long as was asked for."""
    producer = TransactionalProducer(1, now_ms=NOW_MS)

    async def begin() -> None:
        producer.put(followed.partition("t", 1), b"d")

    followed.run(begin())
    for broker_id in (2, 3):
        follow(followed, broker_id, 4, log_start=0, index=1)
    purgatory = followed.broker.fetch_purgatory
    begun_ms = followed.broker.clock.monotonic_ms()
    asked = DeleteRecordsPartition(0, 2), DeleteRecordsPartition(1, 4)
    answer = wait_for_deletion(followed, *asked)
    assert purgatory.next_deadline_ms() == begun_ms + UNDECIDED_RECORDS_WAIT_MS
    followed.run(expire(purgatory, begun_ms + UNDECIDED_RECORDS_WAIT_MS))
    assert not answer.done()
    assert purgatory.next_deadline_ms() == begun_ms + 30_000
    for broker_id in (2, 3):
        follow(followed, broker_id, 3, log_start=2)
    assert outcome_of(followed, answer) == [
        (ErrorCode.NONE, 2),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ]
