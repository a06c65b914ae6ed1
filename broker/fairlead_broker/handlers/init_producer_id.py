"""InitProducerId (key 22), versions 0-4.

Behaviour: a producer without a transactional id gets a producer id that nobody else ever had,
with epoch 0; what it had before is not asked about, as in Kafka. Ids come in blocks from the
controller; while it is away and the block is used up the answer is COORDINATOR_LOAD_IN_PROGRESS,
which producers retry. A transactional id is refused for good, as by FindCoordinator, with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED. An id without an epoch, or the other way round, answers
INVALID_REQUEST.
Versions:  2 flexible · 3 producer_id and epoch of the caller · 4 PRODUCER_FENCED exists.
Missing:   transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.handlers.registry import handles
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import Pending, RequestContext

NO_PRODUCER_ID = -1
NO_EPOCH = -1


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 4))
def init_producer_id(
    request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Pending:
    """Answer from the block at hand, or wait for the next one."""
    if request.transactional_id is not None:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not request.transactional_id:
            code = ErrorCode.INVALID_REQUEST
        return _refused(code)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    producer_id = context.broker.producer_ids.take()
    if producer_id is None:
        return context.later(_wait_for_block(context.broker))
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _wait_for_block(broker: Broker) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.wait()
    except KafkaError:
        # No controller: Kafka's answer too, because every client retries it.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )
