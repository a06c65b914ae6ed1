"""Fetches of many partitions that wait: what a partition that moves costs, and what ends the wait.

Whoever asks for thousands of partitions at once, and for many bytes, would else have all of them
read again at each append to any of them, on the loop that all others wait for.
"""

import asyncio
from typing import Any

import pytest

from fairlead_broker.replication.partition import Partition
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

VERSION = 12
PARTITIONS = 200
WAIT_MS = 10_000


class Reads:
    """How often a partition was read."""

    count = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted, read = Reads(), Partition.read

    def count(partition: Partition, *arguments: Any, **named: Any) -> Any:
        counted.count += 1
        return read(partition, *arguments, **named)

    monkeypatch.setattr(Partition, "read", count)
    return counted


@pytest.fixture
def answer(stage: Any) -> asyncio.Future[Any]:
    """Of a fetch that waits for 1,000 bytes of any of the partitions."""
    stage.topic("t", partitions=PARTITIONS)
    partitions = [
        FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    ]
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1_000,
        max_bytes=1 << 20,
        topics=[FetchTopic("t", partitions=partitions)],
    )
    waiting: asyncio.Future[Any] = stage.park(request, VERSION)
    return waiting


def told(answer: asyncio.Future[Any]) -> dict[int, tuple[int, int]]:
    """Error code and bytes of records by partition, of those that have any."""
    (topic,) = answer.result().responses
    return {
        data.partition_index: (data.error_code, len(data.records or b""))
        for data in topic.partitions
        if data.error_code or data.records
    }


def settle(stage: Any) -> None:
    stage.publish()


def test_only_what_has_moved_is_read_until_there_is_enough(
    stage: Any, answer: asyncio.Future[Any], reads: Reads
) -> None:
    for index in range(5):
        stage.append("t", b"x" * 100, index=index)
        settle(stage)
    assert not answer.done()
    assert reads.count == 5
    stage.append("t", b"x" * 1_000, index=7)
    settle(stage)
    having = [0, 1, 2, 3, 4, 7]
    assert sorted(told(answer)) == having
    assert reads.count == 5 + 1 + len(having), "then all, but those that have nothing new"


def test_what_one_partition_gets_bit_by_bit_counts_once(
    stage: Any, answer: asyncio.Future[Any]
) -> None:
    for _ in range(5):
        stage.append("t", b"x" * 50, index=3)
        settle(stage)
    assert not answer.done()
    stage.append("t", b"x" * 500, index=3)
    settle(stage)
    ((code, size),) = told(answer).values()
    assert code == 0
    assert size >= 1_000


def test_an_error_of_one_partition_ends_the_wait(stage: Any, answer: asyncio.Future[Any]) -> None:
    stage.append("t", b"x", index=9)
    stage.change("t", 4, leader=-1)
    settle(stage)
    assert told(answer)[4] == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert told(answer)[9][1] > 0


def test_what_is_there_is_told_when_the_time_is_over(
    stage: Any, answer: asyncio.Future[Any]
) -> None:
    stage.append("t", b"x", index=9)
    settle(stage)
    stage.clock.advance(WAIT_MS)

    async def expire() -> None:
        stage.broker.fetch_purgatory.expire(stage.clock.monotonic_ms())

    stage.run(expire())
    assert list(told(answer)) == [9]


def test_who_looks_at_all_that_waits_has_all_of_it_read(
    stage: Any, answer: asyncio.Future[Any], reads: Reads
) -> None:
    """The rules have changed, say: what was allowed may not be any more."""

    async def check() -> None:
        stage.broker.fetch_purgatory.check_all()

    stage.run(check())
    assert not answer.done()
    assert reads.count == PARTITIONS
