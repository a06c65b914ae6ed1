"""Writes of records: choose their partitions, build batches, and wait for acks=all.

Batches go through the handler of Produce, on this broker or on the leader. A batch is refused as a
whole. If one of its records may be the reason, nothing was written, and the records are sent again
one by one, so that each gets its own answer.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.limits import REST_BATCH_BYTES_MAX, REST_BATCH_RECORDS_MAX
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.rest.problems import UNKNOWN_PARTITION, error_code, refusal_of, unknown_topic
from fairlead_broker.rest.records.partitioner import Partitioner
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fairlead_wire.records import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.rest.calls import KafkaCalls
    from fairlead_broker.rest.records.embedding import EmbeddedRecord
    from fairlead_broker.rest.slices import Slices

_REASON_IN_A_RECORD: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)
_CHANCE: Final = random.SystemRandom()


class Written(NamedTuple):
    """The place of a record in the log."""

    partition: int
    offset: int
    timestamp: int


class Refused(NamedTuple):
    """Why a record is not known to be in the log."""

    code: int
    message: str


def require_topic(kafka: KafkaCalls, topic: str) -> None:
    """Raise an error if the client may not write to the topic, or if it does not exist.

    Also raise one while the client exceeds its produce quota.
    """
    kafka.require(Operation.WRITE, ResourceType.TOPIC, topic)
    if kafka.broker.image.topic(topic) is None:
        raise unknown_topic(topic)
    if kafka.quotas is not None:
        kafka.quotas.admit_produce()


class Producer:
    """Writes the records of one request to one topic, one batch after the other."""

    def __init__(self, kafka: KafkaCalls, topic: str, slices: Slices) -> None:
        self._kafka = kafka
        self._topic = topic
        self._slices = slices
        self._metrics = kafka.broker.metrics.rest

    async def write(
        self, records: Sequence[EmbeddedRecord], deadline_s: float
    ) -> list[Written | Refused]:
        """Write records that came together; return the outcome of each, in their order."""
        outcomes: dict[int, Written | Refused] = {}
        by_partition: dict[int, list[int]] = {}
        topic = self._kafka.broker.image.topic(self._topic)
        if topic is None:
            gone = refusal_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return [Refused(gone.code, f"there is no topic {self._topic}") for _ in records]
        partitioner = Partitioner(topic.partitions, _CHANCE)
        for at, record in enumerate(records):
            partition = partitioner.choose(record)
            if partition is None:
                message = f"there is no partition {record.partition} of {self._topic}"
                outcomes[at] = Refused(UNKNOWN_PARTITION, message)
            else:
                by_partition.setdefault(partition, []).append(at)
        await self._slices.rest()
        writes = [
            self._write_partition(partition, records, places, outcomes, deadline_s)
            for partition, places in by_partition.items()
        ]
        if len(writes) == 1:
            await writes[0]
        else:
            await asyncio.gather(*writes)
        refused = sum(type(each) is Refused for each in outcomes.values())
        self._metrics.records_refused += refused
        self._metrics.records_in += len(records) - refused
        return [outcomes[at] for at in range(len(records))]

    async def _write_partition(
        self,
        partition: int,
        records: Sequence[EmbeddedRecord],
        places: list[int],
        outcomes: dict[int, Written | Refused],
        deadline_s: float,
    ) -> None:
        """Write the records of one partition in order, one batch at a time."""
        batch: list[int] = []
        size = 0
        for at in places:
            size += records[at].size
            if batch and (size > REST_BATCH_BYTES_MAX or len(batch) >= REST_BATCH_RECORDS_MAX):
                await self._write_batch(partition, records, batch, outcomes, deadline_s)
                batch, size = [], records[at].size
            batch.append(at)
        await self._write_batch(partition, records, batch, outcomes, deadline_s)

    async def _write_batch(
        self,
        partition: int,
        records: Sequence[EmbeddedRecord],
        places: list[int],
        outcomes: dict[int, Written | Refused],
        deadline_s: float,
    ) -> None:
        now_ms = self._kafka.broker.clock.now_ms()
        batch = [_record(records[at], offset, now_ms) for offset, at in enumerate(places)]
        try:
            slot = await self._append(partition, encode_batch(batch), deadline_s)
        except KafkaError as error:
            slot = PartitionProduceResponse(
                partition, error_code=error.code, error_message=error.message
            )
        await self._slices.rest()
        if slot.error_code in _REASON_IN_A_RECORD and len(places) > 1:
            for at in places:
                await self._write_batch(partition, records, [at], outcomes, deadline_s)
            return
        for offset, at in enumerate(places):
            if slot.error_code:
                code = error_code(slot.error_code)
                message = slot.error_message or code.description
                outcomes[at] = Refused(refusal_of(code).code, message)
            else:
                append_time_ms = slot.log_append_time_ms
                timestamp = batch[offset].timestamp if append_time_ms < 0 else append_time_ms
                outcomes[at] = Written(partition, slot.base_offset + offset, timestamp)

    async def _append(
        self, partition: int, batch: bytes, deadline_s: float
    ) -> PartitionProduceResponse:
        def build(timeout_ms: int) -> ProduceRequest:
            # The handler patches the batch in place.
            data = PartitionProduceData(partition, memoryview(bytearray(batch)))
            return ProduceRequest(
                transactional_id=None,
                acks=ALL_IN_SYNC,
                timeout_ms=timeout_ms,
                topic_data=[TopicProduceData(self._topic, partition_data=[data])],
            )

        if asyncio.get_running_loop().time() >= deadline_s:
            # The leader would write the batch, but no time would be left to wait for its answer.
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "there was no time left to write it")
        if self._kafka.quotas is not None:
            self._kafka.quotas.charge_produce(len(batch))
        response: ProduceResponse = await self._kafka.ask_leader(
            (self._topic, partition),
            build,
            _code_of,
            deadline_s=deadline_s,
            is_repeatable=False,
        )
        return response.responses[0].partition_responses[0]


def _code_of(response: ProduceResponse) -> int:
    return response.responses[0].partition_responses[0].error_code


def _record(record: EmbeddedRecord, offset: int, now_ms: int) -> Record:
    timestamp = now_ms if record.timestamp is None else record.timestamp
    return Record(offset, timestamp, record.key, record.value, record.headers)
