"""What a produced batch of a transaction needs before it may be appended (KIP-890).

A transaction that is open in the partition goes on without a question. The first batch of one waits
until the coordinator has been asked: whether the partition is in the transaction, or, for clients
with an epoch for each transaction (Produce version 12), to take it in.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE, MAGIC_POSITION, MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.log.producers.verification import VerificationGuard
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.transaction.verification import OnVerdicts
    from fairlead_wire.messages.produce import ProduceRequest

EPOCH_BUMP_SINCE: Final = 12
"""Clients of this version have an epoch for each transaction; Produce adds the partition."""
_ABORTABLE_SINCE: Final = 11
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43

_RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        # Another partition of the question was not known there yet.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)


class UnverifiedError(Exception):
    """Raised for a batch that would open a transaction: the coordinator has to be asked first."""

    def __init__(
        self,
        partition: Partition,
        guard: VerificationGuard,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        super().__init__()
        self.partition = partition
        self.guard = guard
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


def check_transaction(
    partition: Partition, records: Any, request: ProduceRequest, context: RequestContext
) -> None:
    """Return if a transactional batch belongs to a transaction that is open in the partition.

    UnverifiedError if it would open one, KafkaError if it may not be produced at all.
    """
    transactional_id = request.transactional_id
    if transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a batch of a transaction in a request without a transactional id",
        )
    context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    if request.acks != ALL_IN_SYNC:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, "transactions need acks=all")
    if len(records) < BATCH_HEADER_SIZE or records[MAGIC_POSITION] != MAGIC_V2:
        return  # The log says what is wrong with it.
    producer_id, producer_epoch, first_sequence = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
    guard = partition.begin_verification(
        producer_id,
        producer_epoch,
        first_sequence,
        supports_epoch_bump=context.version >= EPOCH_BUMP_SINCE,
    )
    if guard is not None:
        raise UnverifiedError(partition, guard, producer_id, producer_epoch)


def ask_coordinator(
    transactional_id: str,
    unverified: Sequence[UnverifiedError],
    context: RequestContext,
    answer: OnVerdicts,
) -> None:
    """Have `answer` called once, in this call or later, with a verdict on each partition."""
    partitions = [(each.partition.topic, each.partition.index) for each in unverified]
    producers = {(each.producer_id, each.producer_epoch) for each in unverified}
    if len(producers) > 1:
        answer(dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return
    ((producer_id, producer_epoch),) = producers
    context.broker.verification.verify(
        transactional_id,
        producer_id,
        producer_epoch,
        partitions,
        supports_epoch_bump=context.version >= EPOCH_BUMP_SINCE,
        answer=answer,
    )


def refusal_of(verdict: ErrorCode, version: int) -> ErrorCode:
    """Return the error for a producer if the coordinator did not agree.

    Source: `ReplicaManager.handleProduceAppend`. A temporary error becomes NOT_ENOUGH_REPLICAS,
    after which every client sends the same batch again without asking for metadata first.
    """
    if verdict in _RETRIED:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if verdict is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if verdict is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    if verdict is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if verdict is ErrorCode.CONCURRENT_TRANSACTIONS and version < EPOCH_BUMP_SINCE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return verdict
