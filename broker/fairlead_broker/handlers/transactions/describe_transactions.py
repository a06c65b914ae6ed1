"""DescribeTransactions (key 65), version 0.

Behaviour: the coordinator's state of transactional ids. The partitions of a decided transaction are
those without a marker yet. An id that is not in use is TRANSACTIONAL_ID_NOT_FOUND. Topics that the
client may not describe are left out. Beyond 5,000 partitions the broker serves other requests
meanwhile; one reply has at most 500,000.
Versions:  0 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.in_turns import in_turns
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.limits import (
    COORDINATOR_KEYS_LENGTH_MAX,
    DESCRIBED_MAX,
    TRANSACTIONAL_IDS_PER_REQUEST_MAX,
)
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.transaction.transactional_id import TransactionalId


@handles(ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), access=Access.BY_RESOURCE)
@once_awake
def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse | Pending:
    # Each once: one may have thousands of partitions.
    names = list(dict.fromkeys(request.transactional_ids))
    if len(names) > TRANSACTIONAL_IDS_PER_REQUEST_MAX:
        raise RemoteProtocolError("DescribeTransactions names too many ids")
    if sum(map(len, names)) > COORDINATOR_KEYS_LENGTH_MAX:
        raise RemoteProtocolError("DescribeTransactions names ids of too many characters")
    known = context.broker.transaction_coordinator.transactions
    count = len(names) + sum(len(known[each].machine.partitions) for each in names if each in known)
    if count > DESCRIBED_MAX:
        raise RemoteProtocolError(f"DescribeTransactions asks for {count} ids and partitions")
    response = DescribeTransactionsResponse()
    return in_turns(context, _steps(names, context, response), count, lambda: response)


def _steps(
    names: list[str], context: RequestContext, response: DescribeTransactionsResponse
) -> Iterator[None]:
    for each in names:
        response.transaction_states.append(_describe(each, context))
        yield


def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    broker = context.broker
    try:
        context.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        transaction = broker.transaction_coordinator.find(transactional_id)
        if transaction is None or transaction.machine.is_unwritten:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        broker.metrics.errors[error.code.name] += 1
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    machine = transaction.machine
    metadata = machine.metadata
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=_topics(machine, context),
    )


def _topics(machine: TransactionalId, context: RequestContext) -> list[TopicData]:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(machine.partitions):
        topics.setdefault(name, []).append(index)
    return [
        TopicData(name, indexes)
        for name, indexes in topics.items()
        if context.would_allow(Operation.DESCRIBE, ResourceType.TOPIC, name)
    ]
