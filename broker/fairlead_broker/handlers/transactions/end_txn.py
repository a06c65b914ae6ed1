"""EndTxn (key 26), versions 0-5.

Behaviour: commits or aborts. The answer comes when the decision is durable; markers follow, and
until they are written the id answers CONCURRENT_TRANSACTIONS. The same end asked for again is
answered the same, another one with INVALID_TXN_STATE.
Versions:  2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before · 3 flexible · 4 TRANSACTION_ABORTABLE
           exists (never sent: clients would ask for ever) · 5 raises the producer's epoch with each
           end and returns it (KIP-890).
Missing:   nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.handlers.transactions.transaction_requests import ParkedTransaction, told_in
from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_2
from fairlead_broker.transaction.transaction_types import TransactionAnswer
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from fairlead_broker.api_registry import Pending, RequestContext

_FENCED_SINCE = 2
_RAISES_EPOCH_SINCE = 5


@handles(ApiKey.END_TXN, versions=(0, 5), access=Access.BY_RESOURCE)
@once_awake
def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse | Pending:
    transactional_id = request.transactional_id
    parked = ParkedTransaction(context, partial(_build, context))
    try:
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        context.broker.transaction_coordinator.end_transaction(
            transactional_id,
            request.producer_id,
            request.producer_epoch,
            parked.answer,
            is_commit=request.committed,
            transaction_version=client_transaction_version(context),
        )
    except KafkaError as error:
        return _build(context, TransactionAnswer(error.code))
    return parked.park()


def client_transaction_version(context: RequestContext) -> int:
    """Return the transaction version of the client, by the version of its request."""
    return TRANSACTION_VERSION_2 if context.version >= _RAISES_EPOCH_SINCE else 0


def _build(context: RequestContext, answer: TransactionAnswer) -> EndTxnResponse:
    response = EndTxnResponse(error_code=told_in(context, answer.error, fenced_since=_FENCED_SINCE))
    if answer.error is ErrorCode.NONE and context.version >= _RAISES_EPOCH_SINCE:
        response.producer_id = answer.producer_id
        response.producer_epoch = answer.producer_epoch
    return response
