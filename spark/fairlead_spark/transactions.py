"""Kafka's transactions, request by request, so that another process may end a transaction.

The messages are those of version 1 of the protocol (KIP-98): a repeated EndTxn, with the same
producer epoch and outcome, gets the same answer as the first one. Errors have the same meaning as
in Java's TransactionManager; an error that passes is retried here.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from fairlead_spark import limits
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster, PassingError
from fairlead_spark.errors import FENCED, OptionError, SinkError, TakenOverError, error_of
from fairlead_spark.offsets import TopicPartition
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from fairlead_wire.messages.describe_transactions import DescribeTransactionsRequest
from fairlead_wire.messages.end_txn import EndTxnRequest
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.list_transactions import ListTransactionsRequest

logger = logging.getLogger(__name__)

FIND_COORDINATOR_VERSION: Final = 4
INIT_PRODUCER_ID_VERSION: Final = 4
ADD_PARTITIONS_VERSION: Final = 3
"""The last version that clients send."""
ADD_OFFSETS_VERSION: Final = 3
"""Before version 4, whose clients know TRANSACTION_ABORTABLE."""
END_TXN_VERSION: Final = 3
"""Before version 5, which changes the epoch."""
DESCRIBE_TRANSACTIONS_VERSION: Final = 0
LIST_TRANSACTIONS_VERSION: Final = 0
_TRANSACTIONAL_ID: Final = 1
_ONGOING: Final = "Ongoing"
_Answer = TypeVar("_Answer")
_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class TransactionClient:
    """Asks the coordinators of transactional ids. For one thread.

    A client that is not patient sends each request once: a passing error is then a PassingError.
    """

    def __init__(self, cluster: Cluster, *, is_patient: bool = True) -> None:
        self._cluster = cluster
        self._is_patient = is_patient
        self._coordinators: dict[str, tuple[str, int]] = {}

    def begin(
        self,
        transactional_id: str,
        timeout_s: float,
        resumed: PreparedTransaction | None = None,
    ) -> PreparedTransaction:
        """Take an id: its open transaction is aborted, and its previous producer is fenced.

        `resumed`: take it only if no producer has since this was begun; else TakenOverError
        (KIP-360).
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=round(timeout_s * 1000)
        )
        if resumed is not None:
            request.producer_id = resumed.producer_id
            request.producer_epoch = resumed.producer_epoch

        def ask() -> PreparedTransaction:
            reply = self._ask(transactional_id, request, INIT_PRODUCER_ID_VERSION)
            if reply.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                raise OptionError(
                    f"kafka.transaction.timeout.ms is {round(timeout_s * 1000)}, and the brokers "
                    "refuse it: lower it to their transaction.max.timeout.ms (15 minutes by "
                    "default), or raise that"
                )
            self._check(transactional_id, reply.error_code)
            return PreparedTransaction(transactional_id, reply.producer_id, reply.producer_epoch)

        return self._retry(ask, transactional_id)

    def add_partitions(
        self, transaction: PreparedTransaction, partitions: Iterable[TopicPartition]
    ) -> None:
        """Add partitions with one request: PassingError if a retry may help."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for each in partitions:
            topic = topics.setdefault(each.topic, AddPartitionsToTxnTopic(each.topic))
            topic.partitions.append(each.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        reply = self._ask(transaction.transactional_id, request, ADD_PARTITIONS_VERSION)
        codes = [
            part.partition_error_code
            for topic in reply.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]
        # A refused partition keeps the others out, too (OPERATION_NOT_ATTEMPTED).
        codes.sort(key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED)
        for code in codes:
            self._check(transaction.transactional_id, code)

    def add_group(self, transaction: PreparedTransaction, group: str) -> None:
        """Add the partition with a group's offsets, with one request."""
        request = AddOffsetsToTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            group_id=group,
        )
        reply = self._ask(transaction.transactional_id, request, ADD_OFFSETS_VERSION)
        self._check(transaction.transactional_id, reply.error_code)

    def end(
        self, transactions: Sequence[PreparedTransaction], *, is_commit: bool
    ) -> list[PreparedTransaction]:
        """Commit or abort each; return those that others have ended, or whose id others have taken.

        It returns when the outcome is decided and durable; markers, which make it visible to
        readers, follow.
        """
        return [each for each in transactions if not self._end(each, is_commit=is_commit)]

    def find_lost(self, transactions: Sequence[PreparedTransaction]) -> list[PreparedTransaction]:
        """Return the transactions that are not open any more."""
        waiting = {each.transactional_id: each for each in transactions}
        lost: list[PreparedTransaction] = []

        def ask() -> None:
            by_coordinator: dict[tuple[str, int], list[str]] = defaultdict(list)
            self._find_coordinators(waiting)
            for each in waiting:
                by_coordinator[self._coordinators[each]].append(each)
            for names in by_coordinator.values():
                request = DescribeTransactionsRequest(transactional_ids=names)
                reply = self._ask(names[0], request, DESCRIBE_TRANSACTIONS_VERSION)
                for state in reply.transaction_states:
                    name = state.transactional_id
                    if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        self._check(name, state.error_code)
                    found = (state.producer_id, state.producer_epoch)
                    wanted = waiting.pop(name)
                    if state.transaction_state != _ONGOING or found != wanted[1:]:
                        lost.append(wanted)

        if waiting:
            self._retry(ask, next(iter(waiting)))
        return lost

    def abort_open(self, may_abort: Callable[[str], bool]) -> None:
        """Abort the open transactions whose ids `may_abort` accepts, on all coordinators."""
        names = [each for each in self._list_open() if may_abort(each)]
        for name in names:
            logger.info("transaction %s was left open by a task: it is aborted", name)
            request = InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=round(limits.DRIVER_TRANSACTION_TIMEOUT_S * 1000),
            )

            def ask(name: str = name, request: InitProducerIdRequest = request) -> None:
                code = self._ask(name, request, INIT_PRODUCER_ID_VERSION).error_code
                # The abort has begun; its end need not be awaited.
                if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._check(name, code)

            self._retry(ask, name)

    def _list_open(self) -> list[str]:
        def ask() -> list[str]:
            names = []
            for node_id in self._cluster.read_node_ids():
                reply = self._cluster.call(
                    node_id,
                    ListTransactionsRequest(state_filters=[_ONGOING]),
                    LIST_TRANSACTIONS_VERSION,
                )
                self._check("", reply.error_code)
                names += [each.transactional_id for each in reply.transaction_states]
            return names

        return self._cluster.retry(ask, "open transactions")

    def _end(self, transaction: PreparedTransaction, *, is_commit: bool) -> bool:
        name = transaction.transactional_id
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=is_commit,
        )

        def ask() -> bool:
            try:
                self._check(name, self._ask(name, request, END_TXN_VERSION).error_code)
            except TakenOverError as error:
                logger.info("%s", error)
                return False
            return True

        return self._retry(ask, name)

    def _ask(self, transactional_id: str, request: Any, version: int) -> Any:
        self._find_coordinators([transactional_id])
        try:
            return self._cluster.call_address(
                *self._coordinators[transactional_id], request, version
            )
        except CONNECTION_ERRORS:
            self._coordinators.clear()
            raise

    def _find_coordinators(self, transactional_ids: Iterable[str]) -> None:
        unknown = [each for each in transactional_ids if each not in self._coordinators]
        if not unknown:
            return
        request = FindCoordinatorRequest(key_type=_TRANSACTIONAL_ID, coordinator_keys=unknown)
        reply = self._cluster.call_any(request, FIND_COORDINATOR_VERSION)
        for each in reply.coordinators:
            self._check(each.key, each.error_code)
            self._coordinators[each.key] = (each.host, each.port)

    def _check(self, transactional_id: str, code: int) -> None:
        """Raise PassingError, TakenOverError, or SinkError if no retry helps."""
        if code == ErrorCode.NONE:
            return
        error = error_of(code)
        text = f"transactional id {transactional_id}: {error.name}: {error.description}"
        if error in _MOVED:
            self._coordinators.clear()
        if error in FENCED:
            raise TakenOverError(text)
        raise PassingError(text) if error.retriable else SinkError(text)

    def _retry(self, ask: Callable[[], _Answer], transactional_id: str) -> _Answer:
        if not self._is_patient:
            return ask()
        return self._cluster.retry(ask, f"the transaction of {transactional_id}")
