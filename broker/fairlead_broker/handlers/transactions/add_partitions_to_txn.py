"""AddPartitionsToTxn (key 24), versions 0-5; 4 and 5 are meant for brokers.

Behaviour: makes partitions part of a transaction, which begins with the first ones. All or none: if
one is unknown or denied, the others answer OPERATION_NOT_ATTEMPTED. With versions 4 and 5 a broker
that leads partitions asks about many transactions at once, whether partitions are in them, or that
they be added (KIP-890). They need CLUSTER_ACTION on the cluster, and no rights on topics and ids,
as with Kafka: without an authorizer clients may send them, and some do. The cluster's own topics
are denied to clients. While the previous transaction is being completed a client waits up to 15 ms,
and only then gets CONCURRENT_TRANSACTIONS; brokers get it at once.
Versions:  2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before · 3 flexible · 4 many transactions,
           verify_only · 5 TRANSACTION_ABORTABLE for a partition that is not in the transaction.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_broker.handlers.transactions.transaction_requests import ParkedTransaction, told_in
from fairlead_broker.limits import COORDINATOR_KEYS_LENGTH_MAX, PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_2
from fairlead_model.ids import is_internal_topic
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.api_registry import Pending, RequestContext
    from fairlead_broker.transaction.ending import TopicPartition
    from fairlead_wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic

_FENCED_SINCE = 2
_MANY_SINCE = 4
_ABORTABLE_SINCE = 5
_FIRST_TRANSACTION_VERSION = 0

_Codes = dict["TopicPartition", ErrorCode]


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5), access=Access.BY_RESOURCE)
@once_awake
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Pending:
    if context.version >= _MANY_SINCE:
        return _of_many(request, context)
    return _of_one(request, context)


def _of_one(request: AddPartitionsToTxnRequest, context: RequestContext) -> Pending:
    topics = request.v3_and_below_topics

    def build(codes: _Codes) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_results(topics, codes, context)
        )

    parked = ParkedTransaction(context, build)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=topics,
    )
    if count_named(topic.partitions for topic in topics) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError("a transaction of too many partitions")
    partitions = _partitions(topics)
    if not context.may(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
    ):
        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        parked.answer(dict.fromkeys(partitions, denied))
    else:
        _ask_coordinator(transaction, partitions, context, parked.answer)
    return parked.park()


def _of_many(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Pending:
    if not context.may_cluster(Operation.CLUSTER_ACTION):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        context.broker.metrics.errors[code.name] += 1
        return AddPartitionsToTxnResponse(error_code=code)
    parked: ParkedTransaction[AddPartitionsToTxnResponse] = ParkedTransaction(
        context, lambda response: response
    )
    if not context.listener.is_internal:
        size = len(request.transactions) + count_named(
            topic.partitions for each in request.transactions for topic in each.topics
        )
        if size > PARTITIONS_PER_REQUEST_MAX:
            raise RemoteProtocolError("too many transactions and partitions")
        length = sum(len(each.transactional_id) for each in request.transactions)
        if length > COORDINATOR_KEYS_LENGTH_MAX:
            raise RemoteProtocolError("transactional ids of too many characters")
    asked = [(each, _partitions(each.topics)) for each in request.transactions]
    gathering = _Gathering(len(asked), context, parked)
    for transaction, partitions in asked:
        _ask_coordinator(transaction, partitions, context, gathering.part(transaction))
    gathering.maybe_finish()
    return parked.park()


class _Gathering:
    """The answers about all transactions of a request, sent when there is each."""

    def __init__(
        self,
        count: int,
        context: RequestContext,
        parked: ParkedTransaction[AddPartitionsToTxnResponse],
    ) -> None:
        self._missing = count
        self._context = context
        self._parked = parked
        self._response = AddPartitionsToTxnResponse()

    def part(self, transaction: AddPartitionsToTxnTransaction) -> Callable[[_Codes], None]:
        """Return who takes the answer about one of them."""

        def answer(codes: _Codes) -> None:
            self._missing -= 1
            self._response.results_by_transaction.append(
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=_results(transaction.topics, codes, self._context),
                )
            )
            self.maybe_finish()

        return answer

    def maybe_finish(self) -> None:
        """Answer, if nothing is missing."""
        if not self._missing:
            self._parked.answer(self._response)


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _ask_coordinator(
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[TopicPartition],
    context: RequestContext,
    answer: Callable[[_Codes], None],
) -> None:
    """Have `answer` called with a code for each partition, once, at once or later."""
    refused = {
        partition: code
        for partition in partitions
        if (code := _refusal(partition, context)) is not ErrorCode.NONE
    }
    if refused or not partitions:
        answer(dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        return
    context.broker.transaction_coordinator.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        partitions,
        verify_only=transaction.verify_only,
        transaction_version=(
            _FIRST_TRANSACTION_VERSION if context.version < _MANY_SINCE else TRANSACTION_VERSION_2
        ),
        may_wait=not context.listener.is_internal,
        answer=answer,
    )


def _refusal(partition: TopicPartition, context: RequestContext) -> ErrorCode:
    """Return why a partition by itself cannot be part of a transaction."""
    name, index = partition
    if is_internal_topic(name) and not context.listener.is_internal:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if context.version < _MANY_SINCE and not context.may(Operation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.broker.image.topic(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _results(
    topics: list[AddPartitionsToTxnTopic], codes: _Codes, context: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(index, _told(codes[topic.name, index], context))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _told(code: ErrorCode, context: RequestContext) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.version < _ABORTABLE_SINCE:
        code = ErrorCode.INVALID_TXN_STATE
    return told_in(context, code, fenced_since=_FENCED_SINCE)
