"""What a leader answers to followers: epochs, starts of brokers, sessions, divergence."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

FETCH_VERSION = 17


class Follower:
    """Broker 2, whose registered epoch is 2, asks broker 1 about one topic."""

    def __init__(self, stage: Any, topic_id: bytes) -> None:
        self.stage = stage
        self.topic_id = topic_id
        self.session_id = 0
        self.session_epoch = 0

    def fetch(
        self,
        offset: int | None = None,
        *,
        epoch: int = 0,
        last_epoch: int = -1,
        broker_epoch: int = 2,
        replica_id: int = 2,
        log_start: int = -1,
    ) -> FetchResponse:
        topics = []
        if offset is not None:
            position = FetchPartition(
                0,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=1 << 20,
            )
            topics = [FetchTopic("", self.topic_id, [position])]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id, broker_epoch),
            max_wait_ms=0,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=topics,
        )
        response: FetchResponse = self.stage.ask(request, FETCH_VERSION, internal=True)
        self.session_id = response.session_id
        self.session_epoch += 1
        return response


def only(response: FetchResponse) -> PartitionData:
    ((data,),) = (topic.partitions for topic in response.responses)
    return data


@pytest.fixture
def follower(stage: Any) -> Follower:
    stage.neighbour(2)
    topic_id = stage.topic("t", replicas=(1, 2))
    stage.change("t", isr=(1, 2))
    return Follower(stage, topic_id)


def test_a_fetch_says_what_the_follower_has(stage: Any, follower: Follower) -> None:
    stage.append("t", b"a", b"b")
    data = only(follower.fetch(0))
    assert (data.error_code, data.high_watermark, bool(data.records)) == (0, 0, True)
    follower.fetch(2, last_epoch=0)
    assert stage.partition("t").high_watermark == 2


def test_what_was_answered_is_not_told_again(stage: Any, follower: Follower) -> None:
    stage.append("t", b"a")
    assert only(follower.fetch(0)).records
    assert follower.fetch().responses == []
    stage.append("t", b"b")
    assert follower.fetch().responses == [], "not before the follower says what became of it"
    assert only(follower.fetch(1, last_epoch=0)).records


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_another_leader_epoch_is_refused(
    stage: Any, follower: Follower, epoch: int, code: ErrorCode
) -> None:
    stage.change("t", leader=-1)
    stage.change("t", leader=1)
    assert only(follower.fetch(0, epoch=epoch)).error_code == code
    assert only(follower.fetch(0, epoch=2)).error_code == 0


def test_an_earlier_start_of_the_follower_is_refused(stage: Any, follower: Follower) -> None:
    stage.append("t", b"a")
    assert only(follower.fetch(1, broker_epoch=1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert stage.partition("t").high_watermark == 0


def test_a_broker_that_holds_no_replica_is_refused(stage: Any, follower: Follower) -> None:
    stage.neighbour(3)
    data = only(follower.fetch(0, replica_id=3, broker_epoch=3))
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_logs_that_part_get_the_point_and_no_records(stage: Any, follower: Follower) -> None:
    """R3."""
    stage.append("t", b"a", b"b")
    stage.change("t", leader=-1)
    stage.change("t", leader=1)
    stage.append("t", b"c")
    data = only(follower.fetch(5, epoch=2, last_epoch=0))
    assert data.diverging_epoch is not None
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert not data.records
    assert stage.partition("t").high_watermark == 0, "a diverging log counts for nothing"


def test_below_the_leaders_start_the_start_is_told(stage: Any, follower: Follower) -> None:
    stage.append("t", b"a", b"b")
    stage.partition("t").log.advance_log_start_offset(2)
    stage.partition("t").leader.high_watermark = 2
    data = only(follower.fetch(0))
    assert (data.error_code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)


def test_a_fetch_says_where_the_followers_log_starts(stage: Any, follower: Follower) -> None:
    stage.append("t", b"a", b"b")
    follower.fetch(2, last_epoch=0, log_start=0)

    async def delete() -> None:
        stage.partition("t").delete_records(2)

    stage.run(delete())
    assert stage.partition("t").low_watermark == 0
    assert only(follower.fetch()).log_start_offset == 2
    told = only(follower.fetch(2, last_epoch=0, log_start=1))
    assert told.log_start_offset == 2, "it says that it does not know"
    assert stage.partition("t").low_watermark == 1
    follower.fetch(3, last_epoch=0, log_start=2)
    assert stage.partition("t").low_watermark == 1, "what a diverging log says counts for nothing"
    follower.fetch(2, last_epoch=0, log_start=2)
    assert stage.partition("t").low_watermark == 2
    assert follower.fetch().responses == []


def test_an_unknown_topic_id_is_refused(follower: Follower) -> None:
    follower.topic_id = bytes(15) + b"?"
    assert only(follower.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_session_that_is_unknown_or_out_of_step_is_refused(follower: Follower) -> None:
    follower.session_epoch = 7
    assert follower.fetch().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    follower.session_epoch = 0
    follower.fetch(0)
    follower.session_epoch = 5
    assert follower.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_is_ended_by_no_earlier_start_but_by_the_registered_one(
    stage: Any, follower: Follower
) -> None:
    follower.fetch(0, broker_epoch=3)
    earlier = Follower(stage, follower.topic_id)
    assert earlier.fetch(0, broker_epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert follower.fetch(broker_epoch=3).error_code == 0
    registered = Follower(stage, follower.topic_id)
    assert registered.fetch(0, broker_epoch=2).error_code == 0, "the image knows of no other"
    assert follower.fetch(broker_epoch=3).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_lost_leadership_is_told(stage: Any, follower: Follower) -> None:
    follower.fetch(0)
    stage.change("t", leader=2)
    assert only(follower.fetch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_until_followers_have_spoken_a_new_leader_knows_no_latest_offset(
    stage: Any, follower: Follower
) -> None:
    stage.append("t", b"a")
    stage.change("t", leader=2)
    stage.change("t", leader=1)
    partition = stage.partition("t")
    assert not partition.is_high_watermark_valid
    follower.fetch(1, epoch=2, last_epoch=0)
    assert partition.is_high_watermark_valid


def test_an_empty_log_that_begins_behind_the_leaders_end_is_not_in_sync(stage: Any) -> None:
    """After an unclean election: it would be asked for, and elected, without a single record."""
    stage.neighbour(2)
    follower = Follower(stage, stage.topic("t", replicas=(1, 2)))
    stage.change("t", isr=(1,))
    stage.append("t", b"a", b"b")
    partition = stage.partition("t")
    data = only(follower.fetch(1_000))
    assert (data.error_code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    assert partition.leader.proposal is None
    assert partition.leader.followers[2].end_offset == -1
