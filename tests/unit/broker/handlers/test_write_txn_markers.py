"""WriteTxnMarkers: each marker in each partition has its own answer, once it is committed."""

from typing import Any

import pytest

from fairlead_broker.authorization import Operation, Principal, ResourceType
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import ControlType, decode_batch, decode_end_of_transaction, iter_batches


def marker(
    producer_id: int,
    *topics: tuple[str, list[int]],
    epoch: int = 0,
    commit: bool = True,
    **more: int,
) -> WritableTxnMarker:
    named = [WritableTxnMarkerTopic(name, indexes) for name, indexes in topics]
    return WritableTxnMarker(producer_id, epoch, commit, named, **more)


def codes(reply: Any) -> list[tuple[int, str, int, ErrorCode]]:
    """Producer id, topic, partition and code, in the order of the reply."""
    return [
        (result.producer_id, topic.name, each.partition_index, ErrorCode(each.error_code))
        for result in reply.markers
        for topic in result.topics
        for each in topic.partitions
    ]


def ends(stage: Any, topic: str, index: int = 0) -> list[tuple[int, int, ControlType, int]]:
    """Producer id, epoch, kind and coordinator epoch of the markers of a log."""
    log = stage.partition(topic, index).log
    data = b"".join(
        (log.directory / f"{segment.base_offset:020d}.log").read_bytes()[: segment.size]
        for segment in log.segments
    )
    found = []
    for position, _ in iter_batches(data):
        header = decode_batch_header(data, position)
        if header.is_control:
            end = decode_end_of_transaction(decode_batch(data, position)[0])
            assert end is not None
            found.append(
                (header.producer_id, header.producer_epoch, end.type, end.coordinator_epoch)
            )
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_each_marker_is_answered_in_each_partition(stage: Any, version: int) -> None:
    stage.topic("t", partitions=2)
    stage.topic("u", leader=2, replicas=(2, 1))
    reply = stage.ask(
        WriteTxnMarkersRequest(
            [
                marker(7, ("t", [0, 1, 2]), ("u", [0]), epoch=3, coordinator_epoch=5),
                marker(8, ("t", [1]), ("none", [0]), commit=False, coordinator_epoch=6),
            ]
        ),
        version,
    )
    assert codes(reply) == [
        (7, "t", 0, ErrorCode.NONE),
        (7, "t", 1, ErrorCode.NONE),
        (7, "t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (7, "u", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (8, "t", 1, ErrorCode.NONE),
        (8, "none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert ends(stage, "t") == [(7, 3, ControlType.COMMIT, 5)]
    assert ends(stage, "t", 1) == [(7, 3, ControlType.COMMIT, 5), (8, 0, ControlType.ABORT, 6)]


def test_an_older_epoch_and_an_older_coordinator_are_fenced(stage: Any) -> None:
    stage.topic("t")
    first = marker(7, ("t", [0]), epoch=3, coordinator_epoch=5)
    assert codes(stage.ask(WriteTxnMarkersRequest([first]), 2))[0][3] is ErrorCode.NONE
    for late, code in (
        (marker(7, ("t", [0]), epoch=2, coordinator_epoch=5), ErrorCode.INVALID_PRODUCER_EPOCH),
        (
            marker(7, ("t", [0]), epoch=3, coordinator_epoch=4),
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ),
    ):
        assert codes(stage.ask(WriteTxnMarkersRequest([late]), 2))[0][3] is code
    assert len(ends(stage, "t")) == 1


@pytest.mark.parametrize(
    ("ages", "expected"),
    [([], [0, 0]), ([1, 0], [ErrorCode.FENCED_LEADER_EPOCH, 0]), ([0], [0, 0]), ([-1, 0], [0, 0])],
    ids=str,
)
def test_a_marker_for_an_earlier_leader_epoch_is_refused(
    stage: Any, ages: list[int], expected: list[int]
) -> None:
    """It was sent before others led, and may be about a transaction that they have ended (T8)."""
    stage.topic("t", partitions=2, replicas=(1, 2))
    for index in range(2):
        stage.change("t", index, leader=2)
        stage.change("t", index, leader=1)
    newest = stage.partition("t").leader_epoch
    asked = marker(7, ("t", [0, 1]))
    asked.topics[0].leader_epochs = [newest - age for age in ages]
    reply = stage.ask(WriteTxnMarkersRequest([asked]), 2)
    assert [code for *_, code in codes(reply)] == expected
    assert [len(ends(stage, "t", index)) for index in range(2)] == [
        int(code == ErrorCode.NONE) for code in expected
    ]


def test_a_marker_that_too_few_replicas_would_have_is_not_written(stage: Any) -> None:
    stage.topic("t", replicas=(1, 2), configs={"min.insync.replicas": "2"})
    stage.change("t", min_insync_replicas=2)
    reply = stage.ask(WriteTxnMarkersRequest([marker(7, ("t", [0]))]), 2)
    assert codes(reply)[0][3] is ErrorCode.NOT_ENOUGH_REPLICAS
    assert ends(stage, "t") == []


def test_a_marker_for_groups_that_are_not_loaded_is_sent_again(stage: Any) -> None:
    """Who leads the partition has to read it first."""
    stage.topic(CONSUMER_OFFSETS, leader=2, replicas=(2, 1))
    reply = stage.ask(WriteTxnMarkersRequest([marker(7, (CONSUMER_OFFSETS, [0]))]), 2)
    assert codes(reply)[0][3] is ErrorCode.NOT_LEADER_OR_FOLLOWER


class Allowing:
    """Lets everybody do one thing to the cluster, and nothing else."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        return (operation, resource_type) == (self._operation, ResourceType.CLUSTER)


@pytest.mark.parametrize(
    ("operation", "is_allowed"),
    [
        (Operation.ALTER, True),
        (Operation.CLUSTER_ACTION, True),
        (Operation.DESCRIBE, False),
    ],
)
def test_tools_need_the_cluster(stage: Any, operation: Operation, is_allowed: bool) -> None:
    stage.topic("t")
    stage.authorizer = Allowing(operation)
    reply = stage.ask(WriteTxnMarkersRequest([marker(7, ("t", [0]))]), 2)
    expected = ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert codes(reply)[0][3] is expected
    assert len(ends(stage, "t")) == is_allowed


def test_an_empty_request_is_answered(stage: Any) -> None:
    assert stage.ask(WriteTxnMarkersRequest([]), 2).markers == []
