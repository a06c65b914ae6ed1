"""Transactional ids on brokers of a `ReplicaCluster`; tests say when markers are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from group_cluster import Call

from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.tasks.transaction_expiry import TransactionExpiry
from fairlead_model.ids import TRANSACTION_STATE
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fairlead_wire.messages.describe_transactions import DescribeTransactionsRequest
from fairlead_wire.messages.end_txn import EndTxnRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from replica_cluster import ReplicaCluster

    from fairlead_broker.transaction.coordinator import TransactionCoordinator
    from fairlead_broker.transaction.ending import EndingProgress, EndingTransaction


class HeldMarkers:
    """Replaces the writer of markers: `endings` wait until `finish`, unless `is_prompt` is set."""

    def __init__(self, progress: EndingProgress) -> None:
        self._progress = progress
        self.endings: list[EndingTransaction] = []
        self.begun: list[EndingTransaction] = []
        self.forgotten: list[int] = []
        self.is_prompt = False

    def begin(self, ending: EndingTransaction) -> None:
        self.begun.append(ending)
        self.endings.append(ending)
        if self.is_prompt:
            self.finish()

    def forget_shard(self, shard_index: int) -> None:
        self.forgotten.append(shard_index)
        self.endings = [each for each in self.endings if each.shard_index != shard_index]

    def finish(self) -> None:
        """Report that every partition has its marker."""
        endings, self.endings = self.endings, []
        for ending in endings:
            self._progress.partitions_ended(ending, ending.partitions)


class ProducerIdsAtHand:
    """Gives producer ids 1000, 1001, …; none while `is_empty`."""

    def __init__(self) -> None:
        self.is_empty = False
        self.refills = 0
        self._next = 1000

    def take(self) -> int | None:
        if self.is_empty:
            return None
        self._next += 1
        return self._next - 1

    def maybe_refill(self) -> bool:
        self.refills += 1
        return True


class TransactionCluster:
    """One partition of the transactions' topic, led by broker 1, and a topic `t` to write to."""

    def __init__(self, cluster: ReplicaCluster, **options: Any) -> None:
        self.cluster = cluster
        self.markers: dict[int, HeldMarkers] = {}
        self.producer_ids = ProducerIdsAtHand()
        for broker_id in cluster.members:
            self.equip(broker_id)
        cluster.create(TRANSACTION_STATE, configs={"cleanup.policy": "compact"}, **options)
        cluster.create("t", partitions=4)

    def equip(self, broker_id: int) -> None:
        """Give the stand-ins to a broker, also to one that was restarted."""
        broker = self.cluster.members[broker_id].broker
        self.markers[broker_id] = HeldMarkers(broker.transaction_coordinator)
        broker.marker_writing = self.markers[broker_id]
        broker.producer_ids = self.producer_ids  # type: ignore[assignment]

    def coordinator(self, broker_id: int = 1) -> TransactionCoordinator:
        return self.cluster.members[broker_id].broker.transaction_coordinator

    async def ready(self, broker_id: int = 1) -> None:
        """Wait until the ids are loaded."""
        await self.cluster.until(lambda: self.is_served(broker_id))

    def is_served(self, broker_id: int = 1) -> bool:
        shard = self.coordinator(broker_id).runtime.shards.get(0)
        return shard is not None and shard.state is ShardState.ACTIVE

    def expiry(self, broker_id: int = 1) -> TransactionExpiry:
        return TransactionExpiry(self.cluster.members[broker_id].broker)

    def call(
        self, request: Any, version: int, *, broker_id: int = 1, is_internal: bool = False
    ) -> Call:
        broker = self.cluster.members[broker_id].broker
        return Call(broker, request, version, is_internal=is_internal)

    async def ask(self, request: Any, version: int, **options: Any) -> Any:
        call = self.call(request, version, **options)
        await self.cluster.until(lambda: call.reply is not None)
        return call.reply

    async def init(
        self, transactional_id: str = "x", *, version: int = 5, broker_id: int = 1, **fields: Any
    ) -> tuple[ErrorCode, int, int]:
        """Send InitProducerId; return error, producer id and epoch."""
        request = InitProducerIdRequest(transactional_id, fields.pop("timeout_ms", 60_000))
        for name, value in fields.items():
            setattr(request, name, value)
        reply = await self.ask(request, version, broker_id=broker_id)
        return ErrorCode(reply.error_code), reply.producer_id, reply.producer_epoch

    async def add(
        self,
        pair: tuple[int, int],
        *indexes: int,
        transactional_id: str = "x",
        version: int = 3,
        broker_id: int = 1,
    ) -> ErrorCode:
        """Send a client's AddPartitionsToTxn; return the error of the last partition of `t`."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=pair[0],
            v3_and_below_producer_epoch=pair[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic("t", list(indexes))],
        )
        reply = await self.ask(request, version, broker_id=broker_id)
        (topic,) = reply.results_by_topic_v3_and_below
        return ErrorCode(topic.results_by_partition[-1].partition_error_code)

    async def add_offsets(
        self, pair: tuple[int, int], group: str, *, version: int = 4, transactional_id: str = "x"
    ) -> ErrorCode:
        reply = await self.ask(AddOffsetsToTxnRequest(transactional_id, *pair, group), version)
        return ErrorCode(reply.error_code)

    async def end(
        self,
        pair: tuple[int, int],
        *,
        commit: bool,
        version: int = 5,
        transactional_id: str = "x",
        broker_id: int = 1,
    ) -> tuple[ErrorCode, int, int]:
        """Send EndTxn; return error, and the producer id and epoch for the next transaction."""
        request = EndTxnRequest(transactional_id, *pair, commit)
        reply = await self.ask(request, version, broker_id=broker_id)
        return ErrorCode(reply.error_code), reply.producer_id, reply.producer_epoch

    def describe(self, transactional_id: str = "x", *, broker_id: int = 1) -> Any:
        request = DescribeTransactionsRequest([transactional_id])
        (state,) = self.call(request, 0, broker_id=broker_id).reply.transaction_states
        return state

    def state(self, transactional_id: str = "x", *, broker_id: int = 1) -> str:
        described = self.describe(transactional_id, broker_id=broker_id)
        return str(described.transaction_state)

    async def until_state(self, state: str, *, broker_id: int = 1) -> None:
        await self.cluster.until(lambda: self.state(broker_id=broker_id) == state)


def of_broker(
    transactional_id: str, pair: tuple[int, int], *indexes: int, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    """Return one transaction in a broker's AddPartitionsToTxn request."""
    return AddPartitionsToTxnTransaction(
        transactional_id, *pair, verify_only, [AddPartitionsToTxnTopic("t", list(indexes))]
    )
