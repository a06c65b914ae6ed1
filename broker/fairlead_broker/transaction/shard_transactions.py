"""The transactional ids that live in one partition of `__transaction_state`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairlead_broker.limits import KIB
from fairlead_broker.transaction.coordinated_transaction import CoordinatedTransaction
from fairlead_broker.transaction.records import decode_key, decode_value
from fairlead_broker.transaction.transaction_types import NOTHING_YET
from fairlead_broker.transaction.transactional_id import TransactionalId
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.clock import Clock
    from fairlead_broker.coordinator.replayed_transactions import UndecidedRecord
    from fairlead_broker.coordinator.shard import Shard
    from fairlead_broker.transaction.transaction_memory import TransactionMemory
    from fairlead_broker.transaction.transaction_types import Effects, TransactionMetadata

logger = logging.getLogger(__name__)

_BYTES_PER_STEP: Final = 16 * KIB
"""Bytes of records that are decoded at once: some 200 ids without partitions."""
_PARTITIONS_PER_STEP: Final = 200
"""Partitions, and ids, for which markers are requested at once."""


class TransactionsHost(Protocol):
    """What the ids of a shard need of the coordinator.

    `transactions` are those of all loaded shards, by transactional id.
    """

    clock: Clock
    memory: TransactionMemory
    transactions: dict[str, CoordinatedTransaction]

    def carry_out(self, transaction: CoordinatedTransaction, effects: Effects) -> None: ...
    def on_shard_unloaded(self, shard_index: int) -> None: ...


class ShardTransactions:
    """The transactional ids of a shard, `by_id`; their names have `id_bytes` in sum."""

    def __init__(self, shard: Shard[Any], host: TransactionsHost) -> None:
        self.shard = shard
        self._host = host
        self.by_id: dict[str, CoordinatedTransaction] = {}
        self.id_bytes = 0
        self._passed_over = 0

    @property
    def contents(self) -> str:
        return f"{len(self.by_id)} transactional ids"

    def add(
        self, transactional_id: str, metadata: TransactionMetadata = NOTHING_YET
    ) -> CoordinatedTransaction:
        """Add an id: a new one, or one from a record."""
        machine = TransactionalId(
            transactional_id,
            metadata,
            shard_index=self.shard.index,
            coordinator_epoch=self.shard.leader_epoch,
        )
        transaction = self.by_id[transactional_id] = CoordinatedTransaction(self.shard, machine)
        self.id_bytes += len(transactional_id.encode())
        self._host.memory.count(transaction)
        return transaction

    def remove(self, transactional_id: str) -> None:
        """Remove an id."""
        del self.by_id[transactional_id]
        self.id_bytes -= len(transactional_id.encode())

    def replay(self, records: dict[bytes, bytes]) -> Iterator[None]:
        # In the order of the log, so that two loads of one log are alike.
        size = 0
        for key, value in records.items():
            self._replay_one(key, value)
            size += len(value)
            if size >= _BYTES_PER_STEP:
                size = 0
                yield

    def replay_undecided(self, records: Iterator[UndecidedRecord]) -> Iterator[None]:
        """Skip records of a transaction here: no coordinator writes its own state in one."""
        return iter(())

    def _replay_one(self, key: bytes, value: bytes) -> None:
        try:
            transactional_id = decode_key(key)
            metadata = None if transactional_id is None else decode_value(value)
        except ValueError:
            transactional_id = metadata = None
        if transactional_id is None or metadata is None:
            self._passed_over += 1
        else:
            self.add(transactional_id, metadata)

    def begin(self) -> Iterator[None]:
        """Have all markers of decided transactions written again (T7).

        A process that goes on in the epoch of a killed process does not: markers of that process
        may still be under way, and would also end the next transaction, which in version 1 has the
        same producer epoch. The leader of the next epoch has them written, and partitions refuse
        late markers by that epoch.
        """
        host = self._host
        count = 0
        for transaction in list(self.by_id.values()):
            if self.shard.is_resumed and transaction.machine.needs_markers:
                continue
            host.carry_out(transaction, transaction.machine.resume(now_ms=host.clock.now_ms()))
            count += 1 + len(transaction.machine.unended)
            if count >= _PARTITIONS_PER_STEP:
                count = 0
                yield
        if self._passed_over:
            logger.warning(
                "%s: passed over %d records that are damaged or of unknown versions",
                self.shard.partition,
                self._passed_over,
            )

    def on_loaded(self) -> None:
        self._host.transactions.update(self.by_id)

    def on_unloaded(self) -> None:
        """Forget these ids; requests that wait for a write are answered when it fails."""
        host = self._host
        for transactional_id, transaction in self.by_id.items():
            transaction.is_gone = True
            host.memory.count(transaction)
            transaction.refuse_waiting(ErrorCode.NOT_COORDINATOR)
            if host.transactions.get(transactional_id) is transaction:
                del host.transactions[transactional_id]
        self.by_id.clear()
        self.id_bytes = 0
        host.on_shard_unloaded(self.shard.index)
