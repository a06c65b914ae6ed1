"""When a record may be acknowledged."""

from typing import Any

import pytest

from fairlead_broker.replication.acknowledgement import acknowledgement, time_out_code
from fairlead_wire.errors import ErrorCode


@pytest.fixture
def partition(stage: Any) -> Any:
    """One of two replicas, of which only this one is in sync; two records."""
    stage.neighbour(2)
    stage.topic("t", replicas=(1, 2))
    stage.append("t", b"a", b"b")
    return stage.partition("t")


def outcome(partition: Any, end_offset: int = 2, *, acks: int = -1, leader_epoch: int = 0) -> Any:
    return acknowledgement(partition, acks, leader_epoch, end_offset)


def test_all_in_sync_waits_for_the_high_watermark(stage: Any, partition: Any) -> None:
    assert outcome(partition) is ErrorCode.NONE
    stage.change("t", isr=(1, 2))
    stage.append("t", b"c")
    assert (outcome(partition, 2), outcome(partition, 3)) == (ErrorCode.NONE, None)
    assert outcome(partition, 3, acks=1) is ErrorCode.NONE


def test_what_is_committed_is_refused_where_too_few_are_left(stage: Any, partition: Any) -> None:
    stage.change("t", min_insync_replicas=2)
    assert outcome(partition, 2) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert outcome(partition, 2, acks=1) is ErrorCode.NONE
    stage.append("t", b"c")
    assert outcome(partition, 3) is None, "it may be committed yet"
    assert time_out_code(partition, -1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert time_out_code(partition, 1) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("acks", [-1, 1])
def test_another_reign_never_answers_for_this_one(stage: Any, partition: Any, acks: int) -> None:
    """The high watermark has passed it, but perhaps over another leader's records."""
    stage.change("t", leader=-1)
    assert outcome(partition, acks=acks) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    stage.change("t", leader=1)
    assert partition.high_watermark == 2
    assert outcome(partition, acks=acks) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome(partition, acks=acks, leader_epoch=2) is ErrorCode.NONE


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_failed_disk_acknowledges_nothing(partition: Any, acks: int) -> None:
    partition.log.is_offline = True
    assert outcome(partition, acks=acks) is ErrorCode.KAFKA_STORAGE_ERROR


def test_where_a_flush_is_due_it_is_waited_for(stage: Any, partition: Any) -> None:
    stage.topic("flushed", configs={"flush.messages": "1"})
    stage.append("flushed", b"a")
    flushed = stage.partition("flushed")
    assert (outcome(flushed, 1, acks=1), outcome(flushed, 1)) == (None, None)
