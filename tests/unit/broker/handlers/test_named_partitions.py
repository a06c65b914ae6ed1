"""Requests that name very many topics, and no partition of them, or very long names of groups."""

from pathlib import Path
from typing import Any

import pytest
from group_cluster import GroupCluster, run
from replica_cluster import ReplicaCluster

from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import (
    COORDINATOR_KEYS_LENGTH_MAX,
    OFFSETS_PER_FETCH_MAX,
    PARTITIONS_PER_REQUEST_MAX,
)
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fairlead_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest
from fairlead_wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsTopic
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from fairlead_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fairlead_wire.messages.describe_transactions import DescribeTransactionsRequest
from fairlead_wire.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic
from fairlead_wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic
from fairlead_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from fairlead_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fairlead_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderTopic,
)
from fairlead_wire.messages.produce import ProduceRequest, TopicProduceData
from fairlead_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from fairlead_wire.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest

MANY = PARTITIONS_PER_REQUEST_MAX + 1
MORE = OFFSETS_PER_FETCH_MAX + 1

REQUESTS: list[tuple[Any, int]] = [
    (ProduceRequest(acks=-1, topic_data=[TopicProduceData("t")] * MANY), 9),
    (FetchRequest(session_epoch=-1, topics=[FetchTopic("t")] * MANY), 12),
    (FetchRequest(session_epoch=-1, forgotten_topics_data=[ForgottenTopic("t")] * MANY), 12),
    (ListOffsetsRequest(topics=[ListOffsetsTopic("t")] * MANY), 7),
    (OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t")] * MANY), 4),
    (DeleteRecordsRequest([DeleteRecordsTopic("t")] * MANY), 2),
    (DescribeProducersRequest([TopicRequest("t")] * MANY), 0),
    (DescribeLogDirsRequest([DescribableLogDirTopic("t")] * MANY), 4),
    (OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t")] * MANY), 8),
    (OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t")] * MANY), 0),
    (OffsetFetchRequest("g", [OffsetFetchRequestTopic("t")] * MORE), 7),
    (
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t")] * MORE)]
        ),
        8,
    ),
    (TxnOffsetCommitRequest("x", "g", topics=[TxnOffsetCommitRequestTopic("t")] * MANY), 3),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[AddPartitionsToTxnTopic("t")] * MANY,
        ),
        3,
    ),
    (
        AddPartitionsToTxnRequest(
            [AddPartitionsToTxnTransaction("x", topics=[AddPartitionsToTxnTopic("t")] * MANY)]
        ),
        5,
    ),
    (WriteTxnMarkersRequest([WritableTxnMarker(1)] * MANY), 1),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda each: type(each).__name__)
def test_topics_without_partitions_count(tmp_path: Path, request_: Any, version: int) -> None:
    """Half a million of them fit into a megabyte, and took the loop seconds."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            with pytest.raises(RemoteProtocolError):
                groups.call(request_, version)

    run(story())


def test_each_topic_counts_as_one_partition_at_least() -> None:
    assert count_named([]) == 0
    assert count_named([[1, 2], [], [3]]) == 4


LONG = [f"{number:04}" + "n" * 4_000 for number in range(COORDINATOR_KEYS_LENGTH_MAX // 4_004)]
"""Names of groups, or transactional ids: each is hashed to find who coordinates it."""


def naming(names: list[str]) -> list[tuple[Any, int]]:
    return [
        (DescribeGroupsRequest(names), 5),
        (DeleteGroupsRequest(names), 2),
        (ConsumerGroupDescribeRequest(names), 1),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name) for name in names]), 8),
        (DescribeTransactionsRequest(names), 0),
        (AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(name) for name in names]), 5),
    ]


@pytest.mark.parametrize("number", range(6))
def test_names_that_take_long_to_hash_are_refused(tmp_path: Path, number: int) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            groups.call(*naming(LONG)[number])
            with pytest.raises(RemoteProtocolError, match="characters"):
                groups.call(*naming([*LONG, "more" * 1_000])[number])

    run(story())
