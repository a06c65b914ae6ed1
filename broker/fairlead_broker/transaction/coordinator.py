"""The transactional ids that this broker coordinates: the shell around their state machines.

Handlers look up an id and call it. This module carries out the effects: it appends to the partition
of the id, has markers written, and answers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fairlead_broker.coordinator.coordinating_broker import CoordinatingBroker
from fairlead_broker.coordinator.runtime import CoordinatorRuntime
from fairlead_broker.coordinator.shard import Shard
from fairlead_broker.limits import (
    TRANSACTION_REQUEST_WAIT_MS,
    TRANSACTION_WRITE_TIMEOUT_MS,
    TRANSACTIONAL_ID_BYTES_MAX,
    TRANSACTIONAL_ID_BYTES_PER_SHARD_MAX,
    TRANSACTIONAL_IDS_PER_SHARD_MAX,
)
from fairlead_broker.transaction.shard_transactions import ShardTransactions
from fairlead_broker.transaction.transaction_memory import TransactionMemory
from fairlead_broker.transaction.transaction_types import Effects
from fairlead_broker.transaction.transactional_id import memory_of_id
from fairlead_broker.transaction.waiting_requests import WaitingRequest
from fairlead_broker.transaction.writes import TransitionWrite
from fairlead_model.ids import TRANSACTION_STATE
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fairlead_broker.session.producer_ids import ProducerIds
    from fairlead_broker.transaction.coordinated_transaction import CoordinatedTransaction
    from fairlead_broker.transaction.ending import (
        EndingTransaction,
        MarkerWriting,
        TopicPartition,
    )
    from fairlead_broker.transaction.transaction_types import (
        ProducerIdAndEpoch,
        TransactionAnswer,
        Transition,
        Waiter,
    )

logger = logging.getLogger(__name__)

_Shard: TypeAlias = Shard[ShardTransactions]


class TransactionalBroker(CoordinatingBroker, Protocol):
    """`Broker`, as far as this coordinator knows it."""

    producer_ids: ProducerIds
    marker_writing: MarkerWriting


class TransactionCoordinator:
    """`transactions` are those of all shards that are loaded; `runtime` has the shards."""

    def __init__(self, broker: TransactionalBroker) -> None:
        self._broker = broker
        self.clock = broker.awake_clock
        self.transactions: dict[str, CoordinatedTransaction] = {}
        self.memory = TransactionMemory()
        self.runtime: CoordinatorRuntime[ShardTransactions, CoordinatedTransaction] = (
            CoordinatorRuntime(
                broker,
                TRANSACTION_STATE,
                build=self._build_shard,
                on_deadline=self._tick,
                write_timeout_ms=TRANSACTION_WRITE_TIMEOUT_MS,
                load_buffer_size=broker.settings.transaction_load_buffer_size,
            )
        )

    def _build_shard(self, shard: _Shard) -> ShardTransactions:
        return ShardTransactions(shard, self)

    def find(self, transactional_id: str) -> CoordinatedTransaction | None:
        """Return an id; None if it is not in use. KafkaError if this broker cannot tell."""
        if not 0 < len(transactional_id.encode()) <= TRANSACTIONAL_ID_BYTES_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a transactional id has 1 to {TRANSACTIONAL_ID_BYTES_MAX} bytes",
            )
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            self.runtime.shard_of(transactional_id)
        return transaction

    def init_producer_id(
        self,
        transactional_id: str,
        waiter: Waiter,
        *,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
    ) -> None:
        """Give a producer its id and epoch, now or later. KafkaError if this broker can't."""
        transaction = self.find(transactional_id)
        if not 0 < timeout_ms <= self._broker.settings.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if transaction is None:
            transaction = self._add(transactional_id)
        known = transaction

        def ask() -> Effects:
            self._ensure_producer_id(known)
            return known.machine.init_producer_id(
                waiter, timeout_ms=timeout_ms, expected=expected, now_ms=self.clock.now_ms()
            )

        self._ask_or_wait(transaction, ask, waiter)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
        may_wait: bool,
        answer: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Add partitions to a transaction, or tell which of them are in it.

        `answer` is called once, now or later, with a code for each partition. Partitions are added
        all or none. `transaction_version` is that of the client, 0 for a client that asks by
        itself. `may_wait` is false if other requests would have to wait for the answer, too.
        """
        try:
            transaction = self._known(transactional_id)
        except KafkaError as error:
            answer(dict.fromkeys(partitions, error.code))
            return
        if verify_only:
            answer(transaction.machine.verify(producer_id, producer_epoch, partitions))
            return
        try:
            self.memory.check_more(
                transaction.machine.added_bytes(producer_id, producer_epoch, partitions)
            )
        except KafkaError as error:
            answer(dict.fromkeys(partitions, error.code))
            return

        def waiter(added: TransactionAnswer) -> None:
            answer(dict.fromkeys(partitions, added.error))

        def ask() -> Effects:
            return transaction.machine.add_partitions(
                waiter,
                producer_id,
                producer_epoch,
                frozenset(partitions),
                transaction_version=transaction_version,
                now_ms=self.clock.now_ms(),
            )

        if may_wait:
            self._ask_or_wait(transaction, ask, waiter)
        else:
            self.carry_out(transaction, ask())

    def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        waiter: Waiter,
        *,
        is_commit: bool,
        transaction_version: int,
    ) -> None:
        """Commit or abort; answer the waiter once that is decided. KafkaError if it can't be."""
        transaction = self._known(transactional_id)
        self._ensure_producer_id(transaction)
        effects = transaction.machine.end(
            waiter,
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            transaction_version=transaction_version,
            now_ms=self.clock.now_ms(),
        )
        self.carry_out(transaction, effects)

    def partitions_ended(
        self, ending: EndingTransaction, partitions: Collection[TopicPartition]
    ) -> None:
        """Note that these partitions have their marker, or that their topics are deleted.

        `ending` is the object that was passed to `MarkerWriting.begin`. An earlier ending may have
        the same marker; it is another object.
        """
        transaction = self._ending_transaction(ending)
        if transaction is not None:
            effects = transaction.machine.partitions_ended(
                ending, partitions, now_ms=self.clock.now_ms()
            )
            self.carry_out(transaction, effects)

    def ending_fenced(self, ending: EndingTransaction) -> None:
        """Give an ending up, because a newer coordinator has the transaction.

        The id stays as it is until this broker or another one reads the newer state from the log.
        """
        logger.warning(
            "the end of a transaction of %a is given up: there is a coordinator above epoch %d",
            ending.transactional_id,
            ending.marker.coordinator_epoch,
        )

    def _ending_transaction(self, ending: EndingTransaction) -> CoordinatedTransaction | None:
        """Return the id of an ending, also while its shard is loading; None if it was given up."""
        shard = self.runtime.shards.get(ending.shard_index)
        if shard is None or shard.leader_epoch != ending.marker.coordinator_epoch:
            return None
        return shard.machine.by_id.get(ending.transactional_id)

    def abort_if_timed_out(self, transaction: CoordinatedTransaction) -> None:
        """End the transaction of an id if it has timed out."""
        self._ensure_producer_id(transaction)
        effects = transaction.machine.maybe_abort_timed_out(now_ms=self.clock.now_ms())
        if effects.transition is not None:
            logger.info(
                "the transaction of %a has timed out: it is aborted",
                transaction.machine.transactional_id,
            )
        self.carry_out(transaction, effects)

    def expire(self, transaction: CoordinatedTransaction, *, expiration_ms: int) -> None:
        """Forget an id that has not been in use for so long."""
        effects = transaction.machine.maybe_expire(
            now_ms=self.clock.now_ms(), expiration_ms=expiration_ms
        )
        self.carry_out(transaction, effects)

    def carry_out(self, transaction: CoordinatedTransaction, effects: Effects) -> None:
        """Carry out the effects of an id: append, have markers written, and answer."""
        transition = effects.transition
        if not transaction.is_gone:
            self.memory.count(transaction)
            if transition is not None:
                self._append(transaction, transition)
            if effects.ending is not None:
                self._broker.marker_writing.begin(effects.ending)
            self.runtime.schedule(transaction)
        for waiter, answer in effects.answers:
            waiter(answer)
        if transaction.machine.is_unused and not transaction.is_gone:
            self._remove(transaction)
        if transaction.waiting and not transaction.machine.is_busy:
            self._ask_again(transaction)

    def _ask_or_wait(
        self, transaction: CoordinatedTransaction, ask: Callable[[], Effects], waiter: Waiter
    ) -> None:
        """Call an id, and once more when it is no longer busy, if that is soon."""
        effects = ask()
        if transaction.machine.is_busy and effects.is_concurrent:
            deadline_ms = self.clock.monotonic_ms() + TRANSACTION_REQUEST_WAIT_MS
            if transaction.wait(WaitingRequest(ask, waiter, deadline_ms)):
                self.runtime.schedule(transaction)
                return
        self.carry_out(transaction, effects)

    def _ask_again(self, transaction: CoordinatedTransaction) -> None:
        """Go on with waiting requests in order, until the id is busy again or forgotten."""
        waiting, transaction.waiting = transaction.waiting, None
        while waiting and not transaction.machine.is_busy and not transaction.is_gone:
            self.carry_out(transaction, waiting.take().ask())
        transaction.waiting = waiting
        if transaction.is_gone:
            transaction.refuse_waiting(ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self.runtime.schedule(transaction)

    def on_shard_unloaded(self, shard_index: int) -> None:
        """Stop everything under way for a partition: its new leader begins again."""
        self._broker.marker_writing.forget_shard(shard_index)

    def _known(self, transactional_id: str) -> CoordinatedTransaction:
        transaction = self.find(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _add(self, transactional_id: str) -> CoordinatedTransaction:
        shard = self.runtime.shard_of(transactional_id)
        ids = shard.machine
        if (
            len(ids.by_id) >= TRANSACTIONAL_IDS_PER_SHARD_MAX
            or ids.id_bytes + len(transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_PER_SHARD_MAX
        ):
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{shard.partition} has {len(ids.by_id)} transactional ids of {ids.id_bytes} bytes",
            )
        self.memory.check_more(memory_of_id(transactional_id))
        transaction = ids.add(transactional_id)
        self.transactions[transactional_id] = transaction
        return transaction

    def _remove(self, transaction: CoordinatedTransaction) -> None:
        """Forget an id: it was never written, or its tombstone is committed."""
        transaction.is_gone = True
        self.memory.count(transaction)
        transactional_id = transaction.machine.transactional_id
        del self.transactions[transactional_id]
        transaction.shard.machine.remove(transactional_id)

    def _ensure_producer_id(self, transaction: CoordinatedTransaction) -> None:
        """Ensure that a spare producer id is there if one may be needed, or request some."""
        machine = transaction.machine
        if machine.needs_producer_id:
            machine.spare_producer_id = self._broker.producer_ids.take()
            if machine.spare_producer_id is None:
                self._broker.producer_ids.maybe_refill()

    def _append(self, transaction: CoordinatedTransaction, transition: Transition) -> None:
        if transition.violation:
            self._broker.metrics.task_failures += 1
            logger.error(
                "a wrong record of transactional id %a is not written: %s",
                transaction.machine.transactional_id,
                transition.violation,
            )
            self._settle(transaction, transition, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        write = TransitionWrite(
            transaction, transition, on_outcome=self._settle, on_time_out=self._time_out
        )
        if write.must_leave_room and not transaction.shard.has_room_for(write):
            write.failed(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            self.runtime.append(transaction.shard, write)

    def _settle(
        self, transaction: CoordinatedTransaction, transition: Transition, code: ErrorCode
    ) -> None:
        """Tell an id how a transition has ended, and carry out what follows."""
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and not transition.violation:
            logger.warning(
                "the record of transactional id %a does not fit into %s: raise max.message.bytes",
                transaction.machine.transactional_id,
                transaction.shard.partition,
            )
        effects = transaction.machine.written(
            transition,
            code,
            now_ms=self.clock.now_ms(),
            now_monotonic_ms=self.clock.monotonic_ms(),
        )
        self.carry_out(transaction, effects)

    def _time_out(self, transaction: CoordinatedTransaction, transition: Transition) -> None:
        self.carry_out(transaction, transaction.machine.timed_out(transition))

    def _tick(self, transaction: CoordinatedTransaction) -> None:
        now_ms = self.clock.monotonic_ms()
        if transaction.waiting:
            transaction.waiting.refuse(ErrorCode.CONCURRENT_TRANSACTIONS, due_ms=now_ms)
        deadline_ms = transaction.machine.next_deadline_ms()
        is_due = deadline_ms is not None and deadline_ms <= now_ms
        self.carry_out(transaction, transaction.machine.tick() if is_due else Effects())
