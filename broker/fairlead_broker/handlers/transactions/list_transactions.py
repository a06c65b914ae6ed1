"""ListTransactions (key 66), versions 0-2.

Behaviour: the transactional ids that this broker coordinates and the client may describe. While
some of its partitions are being read nothing is listed: COORDINATOR_LOAD_IN_PROGRESS, or
COORDINATOR_NOT_AVAILABLE where one cannot be read. Names of states that there are not come back as
such and match nothing.
Versions:  0 flexible, filters by state and producer id · 1 by duration · 2 by a pattern of RE2
           that the whole id must match, INVALID_REGULAR_EXPRESSION if it is none.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.transaction.transaction_filter import TransactionFilter
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


@handles(ApiKey.LIST_TRANSACTIONS, versions=(0, 2), access=Access.BY_RESOURCE)
@once_awake
def list_transactions(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    broker = context.broker
    coordinator = broker.transaction_coordinator
    try:
        _require_complete({shard.state for shard in coordinator.runtime.shards.values()})
        wanted = TransactionFilter(
            state_names=request.state_filters,
            producer_ids=request.producer_id_filters,
            duration_ms=request.duration_filter,
            pattern=request.transactional_id_pattern,
        )
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return ListTransactionsResponse(error_code=error.code)
    now_ms = broker.clock.now_ms()
    states = []
    for transactional_id, transaction in coordinator.transactions.items():
        machine = transaction.machine
        metadata = machine.metadata
        if (
            not machine.is_unwritten
            and wanted.is_wanted(transactional_id, metadata, now_ms=now_ms)
            and context.would_allow(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
            )
        ):
            states.append(
                TransactionState(transactional_id, metadata.producer_id, metadata.state.title)
            )
    return ListTransactionsResponse(
        unknown_state_filters=wanted.unknown_states, transaction_states=states
    )


def _require_complete(states: set[ShardState]) -> None:
    if ShardState.FAILED in states:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if ShardState.LOADING in states:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
