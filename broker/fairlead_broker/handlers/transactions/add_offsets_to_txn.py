"""AddOffsetsToTxn (key 25), versions 0-4.

Behaviour: makes the partition of `__consumer_offsets` that keeps a group part of the transaction,
so that the offsets which TxnOffsetCommit then sends for the group end with it. Nothing is asked
about the group. Clients of version 2 of the protocol send TxnOffsetCommit alone. Waits as
AddPartitionsToTxn does.
Versions:  2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before · 3 flexible · 4 TRANSACTION_ABORTABLE
           exists (never sent).
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.handlers.transactions.transaction_requests import ParkedTransaction, told_in
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.transaction.ending import TopicPartition

_FENCED_SINCE = 2
_CLIENT_TRANSACTION_VERSION = 0


@handles(ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), access=Access.BY_RESOURCE)
@once_awake
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Pending:
    broker = context.broker

    def build(codes: dict[TopicPartition, ErrorCode]) -> AddOffsetsToTxnResponse:
        (code,) = codes.values()
        return _response(context, code)

    try:
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.require(Operation.READ, ResourceType.GROUP, request.group_id)
        topic = broker.image.topic(CONSUMER_OFFSETS)
        if topic is None or not topic.partitions:
            broker.topic_creator.begin(CONSUMER_OFFSETS)
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} is being created"
            )
    except KafkaError as error:
        return _response(context, error.code)
    parked = ParkedTransaction(context, build)
    broker.transaction_coordinator.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [(CONSUMER_OFFSETS, coordinator_partition(request.group_id, len(topic.partitions)))],
        verify_only=False,
        transaction_version=_CLIENT_TRANSACTION_VERSION,
        may_wait=True,
        answer=parked.answer,
    )
    return parked.park()


def _response(context: RequestContext, code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=told_in(context, code, fenced_since=_FENCED_SINCE))
