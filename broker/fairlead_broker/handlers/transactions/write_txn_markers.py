"""WriteTxnMarkers (key 27), versions 1 and 2.

Behaviour: writes a control batch that ends a transaction to each partition that is named, and
answers each when its marker is committed, or after 250 ms with REQUEST_TIMED_OUT. Brokers send it
to the leaders of a transaction's partitions; a tool (Admin's abortTransaction) may, too, if it is
allowed ALTER or CLUSTER_ACTION on the cluster. In partitions of `__consumer_offsets` the group
coordinator writes the marker, and counts or forgets the offsets of the transaction. A broker sends
in its own tag the leader epochs for which its markers are: if a later one has begun, they are
refused with FENCED_LEADER_EPOCH.
Versions:  2 the version of the transaction, which says how strict to be with epochs (KIP-1228).
Missing:   version 0, which Kafka 4.0 dropped.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Access, Operation
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.replication.leader_epoch_check import LATEST_KNOWN_EPOCH
from fairlead_broker.transaction.marker_appends import Codes, append_markers
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.transaction.ending import TopicPartition

_ALLOWED_BY: Final = (Operation.ALTER, Operation.CLUSTER_ACTION)


@handles(ApiKey.WRITE_TXN_MARKERS, versions=(1, 2), access=Access.BY_RESOURCE)
def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Pending:
    """Answer when the last marker of the request is committed, or the time for that is over."""
    count = count_named(
        topic.partition_indexes for each in request.markers for topic in each.topics
    )
    if max(count, len(request.markers)) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError("WriteTxnMarkers names too many partitions")
    markers = [(_end_marker(each), _partitions(each)) for each in request.markers]
    if not any(context.may_cluster(operation) for operation in _ALLOWED_BY):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        context.broker.metrics.errors[code.name] += 1
        return _response(request, [dict.fromkeys(keys, code) for _, keys in markers])
    context.parked = append_markers(
        context.broker, markers, lambda codes: context.respond(_response(request, codes))
    )
    return PENDING


def _end_marker(asked: WritableTxnMarker) -> EndMarker:
    return EndMarker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        coordinator_epoch=asked.coordinator_epoch,
        is_commit=asked.transaction_result,
        transaction_version=asked.transaction_version,
    )


def _partitions(asked: WritableTxnMarker) -> dict[TopicPartition, int]:
    """Return the leader epoch for each partition; only brokers send one."""
    return {
        (topic.name, index): epoch
        for topic in asked.topics
        for index, epoch in zip_longest(
            topic.partition_indexes,
            topic.leader_epochs[: len(topic.partition_indexes)],
            fillvalue=LATEST_KNOWN_EPOCH,
        )
    }


def _response(request: WriteTxnMarkersRequest, codes: Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                asked.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(index, found[topic.name, index])
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked, found in zip(request.markers, codes, strict=True)
        ]
    )
