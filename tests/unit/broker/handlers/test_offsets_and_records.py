"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords against a real log."""

import sys
from typing import Any

import pytest

from fairlead_broker.limits import LOOKUP_MS_MAX
from fairlead_broker.log.log import Log
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

NOW_MS = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def list_offset(
    stage: Any,
    timestamp: int,
    *,
    version: int = 7,
    topic: str = "t",
    epoch: int = -1,
    replica_id: int = -1,
    twice: bool = False,
) -> Any:
    partition = ListOffsetsPartition(
        partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        topics=[ListOffsetsTopic(name=topic, partitions=[partition] * (2 if twice else 1))],
    )
    return stage.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_earliest_and_latest(stage: Any, version: int) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")
    assert list_offset(stage, EARLIEST, version=version).offset == 0
    latest = list_offset(stage, LATEST, version=version)
    assert (latest.offset, latest.timestamp, latest.error_code) == (3, -1, 0)
    if version >= 4:
        assert latest.leader_epoch == 0


def test_the_first_record_at_or_after_a_timestamp(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b", timestamp=1000)
    stage.append("t", b"c", b"d", timestamp=2000)
    found = list_offset(stage, 1500)
    assert (found.offset, found.timestamp, found.leader_epoch) == (2, 2000, 0)
    assert list_offset(stage, 2001).offset == 3


def test_no_record_at_or_after_a_timestamp(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", timestamp=1000)
    found = list_offset(stage, 5000)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


def test_the_record_with_the_largest_timestamp(stage: Any) -> None:
    stage.topic("t")
    assert list_offset(stage, MAX_TIMESTAMP).offset == -1
    stage.append("t", b"late", timestamp=9000)
    stage.append("t", b"early", timestamp=1000)
    found = list_offset(stage, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (0, 9000)


def test_lookups_of_one_request_have_their_time(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it they end at the start of a batch, and the connection waits as long as they took."""
    look_up = Log.offset_for_timestamp

    def slow(log: Log, *asked: Any, **options: Any) -> Any:
        stage.clock.advance(LOOKUP_MS_MAX // 2)
        return look_up(log, *asked, **options)

    charges: list[int] = []
    channel = sys.modules[type(stage).__module__].Channel
    monkeypatch.setattr(channel, "charge", lambda _, spent_ms: charges.append(spent_ms))
    monkeypatch.setattr(Log, "offset_for_timestamp", slow)
    names = [f"t{at}" for at in range(4)]
    for name in names:
        stage.topic(name)
        stage.append(name, b"a", b"b", timestamp=1000)
    asked = [ListOffsetsPartition(partition_index=0, timestamp=1001)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked) for name in names]
    )
    answers = [topic.partitions[0] for topic in stage.ask(request, 7).topics]
    assert [each.offset for each in answers] == [1, 1, 0, 0]
    assert charges == [2 * LOOKUP_MS_MAX]
    list_offset(stage, LATEST, topic="t0")
    assert len(charges) == 1, "what looks nothing up is free"


def test_nothing_is_kept_elsewhere(stage: Any) -> None:
    """Where tiered storage is off, Kafka answers the same."""
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")
    stage.partition("t").log.advance_log_start_offset(1)
    for version, timestamp, offset in ((8, -4, 1), (9, -5, -1), (11, -6, -1)):
        found = list_offset(stage, timestamp, version=version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-100, 7)]
)
def test_an_unknown_special_timestamp_is_refused(stage: Any, timestamp: int, version: int) -> None:
    stage.topic("t")
    found = list_offset(stage, timestamp, version=version)
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_another_leader_epoch_is_refused(stage: Any) -> None:
    stage.topic("t")
    stage.change("t", leader=-1)
    stage.change("t", leader=1)
    assert list_offset(stage, LATEST, epoch=2).error_code == 0
    assert list_offset(stage, LATEST, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert list_offset(stage, LATEST, epoch=9).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_partitions_that_are_led_elsewhere_or_nowhere(stage: Any) -> None:
    stage.neighbour(2)
    stage.topic("there", replicas=(2,), leader=2)
    stage.topic("here")
    stage.change("here", leader=-1)
    for topic in ("there", "here"):
        code = list_offset(stage, LATEST, topic=topic).error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    code = list_offset(stage, LATEST, topic="nowhere").error_code
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_follower_compares_epochs_first(stage: Any) -> None:
    """As Kafka does: a client with old metadata is told so, not only that it came to a follower."""
    stage.neighbour(2)
    stage.topic("t", replicas=(1, 2), leader=2)
    stage.change("t", leader=-1)
    stage.change("t", leader=2)
    codes = {epoch: list_offset(stage, LATEST, epoch=epoch).error_code for epoch in (-1, 0, 2, 3)}
    assert codes == {
        -1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        0: ErrorCode.FENCED_LEADER_EPOCH,
        2: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        3: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
def test_until_the_high_watermark_is_known_no_number_is_made_up(
    stage: Any, version: int, code: ErrorCode
) -> None:
    stage.topic("t")
    stage.append("t", b"a")
    leader = stage.partition("t").leader
    leader.high_watermark = 0
    leader.epoch_start_offset = 1
    assert list_offset(stage, LATEST, version=version).error_code == code
    assert list_offset(stage, NOW_MS, version=version).error_code == code
    assert list_offset(stage, EARLIEST, version=version).offset == 0


def test_a_partition_named_twice_is_refused(stage: Any) -> None:
    stage.topic("t")
    assert list_offset(stage, LATEST, twice=True).error_code == ErrorCode.INVALID_REQUEST


def test_a_replica_is_believed_on_the_internal_listener_only(stage: Any) -> None:
    stage.topic("t")
    code = list_offset(stage, LATEST, replica_id=2).error_code
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def epoch_end(stage: Any, epoch: int, *, version: int = 4, current: int = -1) -> Any:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
    )
    return stage.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_a_leader_epoch_ended(stage: Any, version: int) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b")
    stage.change("t", leader=-1)
    stage.change("t", leader=1)
    stage.append("t", b"c")
    for asked, expected in ((0, (0, 2)), (1, (0, 2)), (2, (2, 3)), (5, (-1, -1))):
        end = epoch_end(stage, asked, version=version)
        assert (end.leader_epoch, end.end_offset, end.error_code) == (*expected, 0)


def test_the_epoch_of_the_asker_is_checked_first(stage: Any) -> None:
    stage.topic("t")
    assert epoch_end(stage, 0, current=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def delete_before(stage: Any, offset: int, *, version: int = 2, topic: str = "t") -> Any:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000
    )
    return stage.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_are_deleted_up_to_an_offset(stage: Any, version: int) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")
    result = delete_before(stage, 2, version=version)
    assert (result.error_code, result.low_watermark) == (0, 2)
    assert list_offset(stage, EARLIEST).offset == 2
    assert delete_before(stage, 1).low_watermark == 2


def test_minus_one_deletes_everything_that_is_committed(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")
    assert delete_before(stage, -1).low_watermark == 3


@pytest.mark.parametrize("offset", [4, 2**62, -2])
def test_an_offset_that_is_not_in_the_log_is_refused(stage: Any, offset: int) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b", b"c")
    assert delete_before(stage, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_of_a_topic_without_cleanup_policy_are_deleted(stage: Any) -> None:
    stage.topic("t", configs={"cleanup.policy": ""})
    stage.append("t", b"a", b"b", b"c")
    result = delete_before(stage, 2)
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)


def test_records_that_must_not_be_deleted(stage: Any) -> None:
    stage.topic("__consumer_offsets")
    stage.topic("compacted", configs={"cleanup.policy": "compact"})
    code = delete_before(stage, 0, topic="__consumer_offsets").error_code
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete_before(stage, 0, topic="compacted").error_code == ErrorCode.POLICY_VIOLATION
    assert (
        delete_before(stage, 0, topic="missing").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
