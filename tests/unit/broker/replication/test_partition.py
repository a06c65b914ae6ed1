"""One replica: leading, stopping to lead, epochs, marks, and flushes that producers wait for."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from log_batches import batch, patched

from fairlead_broker.log import flush
from fairlead_broker.replication.committable import awaits_flush
from fairlead_broker.replication.follower_state import (
    RETRY_DELAY_MAX_MS,
    RETRY_DELAY_MIN_MS,
    Append,
    FetchedPartition,
    Retry,
)
from fairlead_broker.replication.mark_order import check_mark_order
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode, KafkaError


def test_a_new_leader_enters_its_epoch_before_any_append(stage: Any) -> None:
    """R4."""
    stage.topic("t")
    stage.change("t", leader=-1)
    stage.change("t", leader=1)
    assert stage.partition("t").log.epochs.entries() == [(2, 0)]


def test_the_high_watermark_of_a_sole_replica_is_the_log_end(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b")
    partition = stage.partition("t")
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def test_marks_out_of_order_are_a_violation(stage: Any) -> None:
    """I1."""
    stage.topic("t")
    stage.append("t", b"a")
    partition = stage.partition("t")
    check_mark_order(partition)
    partition.leader.high_watermark = partition.log_end_offset + 1
    with pytest.raises(InvariantViolation, match="high_watermark 2 > log_end_offset 1"):
        check_mark_order(partition)


def test_who_does_not_lead_appends_nothing(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a")
    stage.change("t", leader=-1)
    with pytest.raises(KafkaError) as refusal:
        stage.append("t", b"b")
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert stage.partition("t").log_end_offset == 1


def test_a_follower_begins_anew_where_its_beginning_may_be_missing(stage: Any) -> None:
    """I4. Who has to lead keeps what there is."""
    stage.neighbour(2)
    stage.topic("t", replicas=(1, 2))
    stage.append("t", b"a", b"b")
    partition = stage.partition("t")
    partition.log.start_before_cut = 0
    assert partition.next_fetch() is None
    assert partition.log_end_offset == 2
    stage.change("t", leader=2)

    async def fetch_first() -> None:
        assert partition.next_fetch() is None

    asyncio.run(fetch_first())
    assert (partition.log_end_offset, partition.log.start_before_cut) == (0, None)


def test_the_high_watermark_stays_where_it_was_when_leadership_is_lost(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b")
    stage.change("t", leader=-1)
    assert stage.partition("t").high_watermark == 2
    stage.change("t", leader=1)
    assert stage.partition("t").high_watermark == 2


def test_a_change_within_an_epoch_keeps_what_the_leader_knows(stage: Any) -> None:
    stage.neighbour(2)
    stage.topic("t", replicas=(1, 2))
    leader = stage.partition("t").leader
    stage.change("t", isr=(1, 2))
    assert stage.partition("t").leader is leader
    assert stage.partition("t").isr == (1, 2)


def test_all_in_sync_is_refused_before_the_append_when_too_few_are(stage: Any) -> None:
    """R13."""
    stage.neighbour(2)
    stage.topic("t", replicas=(1, 2))
    stage.change("t", min_insync_replicas=2)
    with pytest.raises(KafkaError) as refusal:
        stage.partition("t").append_as_leader(memoryview(b""), required_acks=-1, now_ms=0)
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_between_the_high_watermark_and_the_log_end_a_reader_gets_nothing(stage: Any) -> None:
    """R18."""
    stage.topic("t")
    stage.append("t", b"a")
    stage.append("t", b"b")
    partition = stage.partition("t")
    partition.leader.high_watermark = 1
    read = {"isolation_level": 0, "minimum_one_batch": True}
    assert partition.read(0, 10_000, **read).records is not None
    assert partition.read(1, 10_000, **read).records is None
    assert partition.read(1, 10_000, replica_id=2, **read).records is not None
    with pytest.raises(KafkaError) as refusal:
        partition.read(3, 10_000, **read)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_flush_messages_holds_the_high_watermark_until_the_log_is_on_the_disk(stage: Any) -> None:
    stage.topic("t", configs={"flush.messages": "2"})
    stage.append("t", b"a")
    partition = stage.partition("t")
    assert (partition.high_watermark, awaits_flush(partition.log)) == (1, False)
    stage.append("t", b"b")
    assert (partition.high_watermark, awaits_flush(partition.log)) == (1, True)

    async def flush_it() -> None:
        job = flush.begin_flush(partition.log)
        assert job is not None
        job.run()
        flush.complete_flush(partition.log, job, stage.clock.now_ms())
        partition.flushed()

    stage.run(flush_it())
    assert (partition.high_watermark, awaits_flush(partition.log)) == (2, False)


def test_a_partition_that_moved_is_reported_once_a_turn(stage: Any) -> None:
    stage.topic("t")
    moved: list[list[str]] = []
    stage.broker.on_moved = lambda partitions: moved.append([str(p) for p in partitions])
    stage.append("t", b"a", b"b")
    assert moved == [["t-0"]]


def test_answers_of_one_check_are_sent_at_its_end(stage: Any) -> None:
    stage.topic("t")
    steps: list[str] = []

    class Parked:
        def try_complete(self) -> bool:
            steps.append("answered")
            return True

        def on_expire(self) -> None:
            steps.append("expired")

    with ExitStack() as answering:
        answering.callback(steps.append, "sent")
        stage.broker.answering = answering
        stage.broker.produce_purgatory.park(Parked(), [("t", 0)], 1_000)
        stage.append("t", b"a")
        assert steps == ["answered", "sent"]


def test_what_cannot_be_taken_in_is_fetched_again_ever_more_slowly(stage: Any) -> None:
    """A leader's damaged batch would else be sent fifty times a second for as long as it stays."""
    stage.neighbour(2)
    stage.topic("t", replicas=(1, 2))
    stage.change("t", leader=2)
    partition = stage.partition("t")
    damaged = bytearray(patched(batch()))
    damaged[-1] ^= 1

    async def fetch(records: bytes) -> Any:
        asked = partition.next_fetch()
        reply = FetchedPartition(asked, high_watermark=0, log_start_offset=0, records=records)
        return partition.take(reply, now_ms=0)

    delays = [asyncio.run(fetch(bytes(damaged))).after_ms for _ in range(9)]
    assert delays[:3] == [20, 40, 80]
    assert delays[-1] == RETRY_DELAY_MAX_MS
    assert isinstance(asyncio.run(fetch(b"")), Append)
    assert asyncio.run(fetch(bytes(damaged))) == Retry(RETRY_DELAY_MIN_MS)
