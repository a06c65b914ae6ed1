"""InitProducerId (key 22), versions 0-5.

Behaviour: a producer without a transactional id gets a new producer id, with epoch 0; the id that
it had before is ignored, as in Kafka. With a transactional id it gets the id's producer id and a
new epoch when that is durable, which fences all producers before it; an open transaction is aborted
first, and a decided one completed. Meanwhile the answer is CONCURRENT_TRANSACTIONS, for a decided
one after 15 ms. Producer ids come in blocks from the controller; while the controller is not
reachable and the block is used up the answer is COORDINATOR_LOAD_IN_PROGRESS, which producers
retry. An id without an epoch, or an epoch without an id, answers INVALID_REQUEST.
Versions:  2 flexible · 3 producer_id and epoch of a caller that goes on after an error · 4
           PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before · 5 TRANSACTION_ABORTABLE exists.
Missing:   two-phase commit (version 6, KIP-939).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.handlers.transactions.transaction_requests import ParkedTransaction, told_in
from fairlead_broker.transaction.transaction_types import ProducerIdAndEpoch, TransactionAnswer
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from fairlead_wire.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.broker import Broker

_FENCED_SINCE = 4


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 5), access=Access.BY_RESOURCE)
@once_awake
def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Pending:
    """Answer from the block at hand, or wait: for the next block, or for the coordinator."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        # KIP-679: a client that may write to any topic may be idempotent.
        if not (
            context.may_for_some(Operation.WRITE, ResourceType.TOPIC)
            or context.may_cluster(Operation.IDEMPOTENT_WRITE)
        ):
            return _refused(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _refused(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    has_id = request.producer_id != NO_PRODUCER_ID
    if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
        return _refused(context, ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        return _ask_coordinator(transactional_id, request, context)
    producer_id = context.broker.producer_ids.take()
    if producer_id is None:
        return context.later(_wait_for_block(context.broker))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _wait_for_block(broker: Broker) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.wait()
    except KafkaError:
        # No controller: Kafka's answer too, because every client retries it.
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _ask_coordinator(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Pending:
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    parked = ParkedTransaction(context, partial(_build, context))
    try:
        context.broker.transaction_coordinator.init_producer_id(
            transactional_id,
            parked.answer,
            timeout_ms=request.transaction_timeout_ms,
            expected=expected,
        )
    except KafkaError as error:
        return _refused(context, error.code)
    return parked.park()


def _build(context: RequestContext, answer: TransactionAnswer) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=told_in(context, answer.error, fenced_since=_FENCED_SINCE),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def _refused(context: RequestContext, code: ErrorCode) -> InitProducerIdResponse:
    return _build(context, TransactionAnswer(code))
