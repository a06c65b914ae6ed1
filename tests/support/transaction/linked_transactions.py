"""Transactions on brokers of a `ReplicaCluster`, whose messages to each other are real."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from group_cluster import Call
from replica_cluster import DEADLINE_S
from transaction_cluster import ProducerIdsAtHand

from fairlead_broker.coordinator.shard import ShardState
from fairlead_model.ids import TRANSACTION_STATE
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from fairlead_wire.messages.describe_transactions import DescribeTransactionsRequest
from fairlead_wire.messages.end_txn import EndTxnRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import (
    ControlType,
    Record,
    decode_batch,
    decode_end_of_transaction,
    encode_batch,
    iter_batches,
)

if TYPE_CHECKING:
    from replica_cluster import ReplicaCluster

    from fairlead_broker.broker import Broker

COORDINATOR = 1
VERSION_1 = 11
VERSION_2 = 12
"""Version of Produce: clients of the two versions of the protocol differ in it."""


class Marker(NamedTuple):
    """A control batch of a log."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


class Producer:
    """A client's producer: its id, its epoch, and the next sequence of each partition."""

    def __init__(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = producer_epoch
        self.sequences: dict[int, int] = {}


class LinkedTransactions:
    """Topic `t` has a partition that each broker leads; broker 1 coordinates."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self._producer_ids = ProducerIdsAtHand()
        cluster.create(TRANSACTION_STATE, configs={"cleanup.policy": "compact"}, leader=COORDINATOR)
        cluster.create("t", partitions=4)
        for index, leader in ((1, 2), (2, 3)):
            cluster.change("t", index, leader=leader)

    def broker(self, broker_id: int) -> Broker:
        broker = self.cluster.members[broker_id].broker
        broker.producer_ids = self._producer_ids  # type: ignore[assignment]
        return broker

    async def ready(self, broker_id: int = COORDINATOR) -> None:
        """Wait until the transactional ids are loaded."""

        def is_served() -> bool:
            shard = self.broker(broker_id).transaction_coordinator.runtime.shards.get(0)
            return shard is not None and shard.state is ShardState.ACTIVE

        await self.cluster.until(is_served)

    async def ask(self, request: Any, version: int, *, broker_id: int = COORDINATOR) -> Any:
        call = Call(self.broker(broker_id), request, version)
        await self.cluster.until(lambda: call.reply is not None)
        return call.reply

    async def begin(self, transactional_id: str = "id") -> Producer:
        """Return a new producer, which fences those before it."""
        reply = await self.ask(InitProducerIdRequest(transactional_id, 60_000), 4)
        assert reply.error_code == 0
        return Producer(transactional_id, reply.producer_id, reply.producer_epoch)

    async def add(self, producer: Producer, *indexes: int, topic: str = "t") -> ErrorCode:
        """Add partitions as a client of version 1 does; return the first error."""
        reply = await self.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producer.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(indexes))],
            ),
            3,
        )
        codes = [
            each.partition_error_code
            for topic in reply.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]
        return ErrorCode(next((code for code in codes if code), 0))

    def produce(self, producer: Producer, index: int, value: bytes, version: int) -> Call:
        """Send a batch to the leader of a partition."""
        registration = self.cluster.image.partition("t", index)
        assert registration is not None
        broker = self.broker(registration.leader)
        sequence = producer.sequences.get(index, 0)
        producer.sequences[index] = sequence + 1
        records = encode_batch(
            [Record(0, broker.clock.now_ms(), None, value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = ProduceRequest(
            producer.transactional_id,
            -1,
            5_000,
            [
                TopicProduceData(
                    "t",
                    partition_data=[PartitionProduceData(index, memoryview(bytearray(records)))],
                )
            ],
        )
        return Call(broker, request, version)

    async def produced(
        self, producer: Producer, index: int, value: bytes = b"a", version: int = VERSION_1
    ) -> ErrorCode:
        call = self.produce(producer, index, value, version)
        await self.cluster.until(lambda: call.reply is not None)
        return code_of(call)

    async def end(self, producer: Producer, *, commit: bool = True, version: int = 3) -> ErrorCode:
        reply = await self.ask(
            EndTxnRequest(producer.transactional_id, producer.producer_id, producer.epoch, commit),
            version,
        )
        if not reply.error_code and version >= 5:
            producer.producer_id, producer.epoch = reply.producer_id, reply.producer_epoch
            producer.sequences.clear()
        return ErrorCode(reply.error_code)

    async def state(self, transactional_id: str = "id", *, broker_id: int = COORDINATOR) -> str:
        reply = await self.ask(
            DescribeTransactionsRequest([transactional_id]), 0, broker_id=broker_id
        )
        return str(reply.transaction_states[0].transaction_state)

    async def until_state(
        self, wanted: str, transactional_id: str = "id", *, broker_id: int = COORDINATOR
    ) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await self.state(transactional_id, broker_id=broker_id) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    def markers_count(self, broker_id: int, index: int) -> int:
        """Return how many control batches a replica has, including repeated ones."""
        return len(self._all_markers(broker_id, index, "t"))

    def markers(self, broker_id: int, index: int, topic: str = "t") -> list[Marker]:
        """Return the control batches of a replica, in order.

        Each once: a marker that was not committed in time, on a busy machine, was sent again.
        """
        return list(dict.fromkeys(self._all_markers(broker_id, index, topic)))

    def _all_markers(self, broker_id: int, index: int, topic: str) -> list[Marker]:
        data = self.cluster.content(broker_id, topic, index)
        found = []
        for position, _ in iter_batches(data):
            header = decode_batch_header(data, position)
            if header.is_control:
                end = decode_end_of_transaction(decode_batch(data, position)[0])
                assert end is not None
                found.append(
                    Marker(
                        header.producer_id, header.producer_epoch, end.type is ControlType.COMMIT
                    )
                )
        return found


def code_of(call: Call) -> ErrorCode:
    """The error of the one partition of a produce."""
    return ErrorCode(call.reply.responses[0].partition_responses[0].error_code)
