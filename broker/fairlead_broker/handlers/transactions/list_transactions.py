"""ListTransactions (key 66), versions 0-2.

Behaviour: the transactional ids that this broker coordinates and the client may describe. While
some of its partitions are being read nothing is listed: COORDINATOR_LOAD_IN_PROGRESS, or
COORDINATOR_NOT_AVAILABLE if one cannot be read. Unknown names of states are listed as such and
match nothing. Beyond 5,000 ids the broker serves other requests meanwhile.
Versions:  0 flexible, filters by state and producer id · 1 by duration · 2 by a pattern of RE2 that
           the whole id must match, INVALID_REGULAR_EXPRESSION if it is not valid.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.handlers.in_turns import in_turns
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
    from collections.abc import Iterator

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.transaction.coordinator import TransactionCoordinator

_IDS_PER_STEP: Final = 200


@handles(ApiKey.LIST_TRANSACTIONS, versions=(0, 2), access=Access.BY_RESOURCE)
@once_awake
def list_transactions(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse | Pending:
    coordinator = context.broker.transaction_coordinator
    try:
        _require_complete(coordinator)
        wanted = TransactionFilter(
            state_names=request.state_filters,
            producer_ids=request.producer_id_filters,
            duration_ms=request.duration_filter,
            pattern=request.transactional_id_pattern,
        )
    except KafkaError as error:
        return _refused(error, context)
    states: list[TransactionState] = []

    def build() -> ListTransactionsResponse:
        try:
            # Others may have been served meanwhile, and partitions have come here.
            _require_complete(coordinator)
        except KafkaError as error:
            return _refused(error, context)
        return ListTransactionsResponse(
            unknown_state_filters=wanted.unknown_states, transaction_states=states
        )

    return in_turns(context, _steps(wanted, context, states), len(coordinator.transactions), build)


def _refused(error: KafkaError, context: RequestContext) -> ListTransactionsResponse:
    context.broker.metrics.errors[error.code.name] += 1
    return ListTransactionsResponse(error_code=error.code)


def _steps(
    wanted: TransactionFilter, context: RequestContext, states: list[TransactionState]
) -> Iterator[None]:
    broker = context.broker
    now_ms = broker.clock.now_ms()
    known = list(broker.transaction_coordinator.transactions.items())
    for number, (transactional_id, transaction) in enumerate(known, start=1):
        machine = transaction.machine
        metadata = machine.metadata
        if (
            not (machine.is_unwritten or transaction.is_gone)
            and wanted.is_wanted(transactional_id, metadata, now_ms=now_ms)
            and context.would_allow(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
            )
        ):
            states.append(
                TransactionState(transactional_id, metadata.producer_id, metadata.state.title)
            )
        if number % _IDS_PER_STEP == 0:
            yield


def _require_complete(coordinator: TransactionCoordinator) -> None:
    states = {shard.state for shard in coordinator.runtime.shards.values()}
    if ShardState.FAILED in states:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if ShardState.LOADING in states:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
