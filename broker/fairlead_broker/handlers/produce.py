"""Produce (key 0), versions 3 to 9; 0 to 2 are advertised only.

Behaviour: appends one batch a partition, each partition on its own; errors are per partition.
acks 0 has no reply, and a failure closes the connection, the only sign that makes such a client
refresh its metadata. acks 1 answers at once, acks -1 when the high watermark has passed the batch
or `timeout_ms` is over. The records are a writable view of the receive buffer: they are appended
before this returns and never kept. Where `flush.messages` is due, acks 1 waits for the flush.
Internal topics are written by the brokers alone: INVALID_TOPIC_EXCEPTION.
Versions:  5 log start offset in the reply · 7 zstd · 8 error message · 9 flexible.
           librdkafka before 2.11 compresses only if the range begins at 0; no client
           that is still supported sends 0 to 2, which are refused like any unknown version.
Missing:   transactions; a transactional batch is refused by the log (INVALID_TXN_STATE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.handlers.produce_reply import encode_single_reply
from fairlead_broker.handlers.registry import NO_REPLY, PENDING, NoReply, Pending, handles
from fairlead_broker.limits import HELD_PRODUCE_OVERHEAD_BYTES, PARTITIONS_PER_REQUEST_MAX
from fairlead_model.ids import INTERNAL_TOPICS
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fairlead_wire.record_batch import CODEC_MASK

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.handlers.registry import RequestContext
    from fairlead_broker.log.log import AppendResult
    from fairlead_broker.replication.partition import Partition

_ACKS: Final = (1, -1, 0)
_ALL: Final = -1
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7
_ATTRIBUTES_LOW_BYTE: Final = 22
_NO_OFFSET: Final = -1


@handles(ApiKey.PRODUCE, versions=(3, 9), advertise=(0, 9), borrows_frame=True)
def produce(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | bytes | Pending | NoReply:
    if request.acks != _ALL and context.broker.wake_check.must_hold():
        return _hold(request, context)
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return _produce_single(request, context)
    broker = context.broker
    waiting: list[_Waiting] = []
    responses: list[TopicProduceResponse] = []
    count = 0
    for topic in topics:
        count += len(topic.partition_data)
        if count > PARTITIONS_PER_REQUEST_MAX:
            raise RemoteProtocolError(f"a produce request to {count} partitions")
        name = topic.name
        slots: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            slot = PartitionProduceResponse(data.index)
            slots.append(slot)
            try:
                partition, result = _append(request.acks, name, data, context)
            except KafkaError as error:
                _refuse(slot, error, name, broker)
                continue
            _accept(slot, result)
            if _must_wait(request.acks, partition, result):
                waiting.append(_Waiting(partition, result.last_offset + 1, request.acks, slot))
        responses.append(TopicProduceResponse(name=name, partition_responses=slots))
    return _reply(request, context, ProduceResponse(responses), waiting)


def _hold(request: ProduceRequest, context: RequestContext) -> ProduceResponse | Pending | NoReply:
    """This broker was stopped and may lead nothing any more: append when that is known.

    The records are kept, so they are copied out of the receive buffer.
    """
    size = HELD_PRODUCE_OVERHEAD_BYTES
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                copy = memoryview(bytearray(data.records))
                data.records = copy
                size += len(copy)

    def go_on() -> None:
        try:
            outcome = produce(request, context)
        except RemoteProtocolError as error:
            context.close_connection(str(error))
            return
        if outcome is not PENDING and outcome is not NO_REPLY:
            context.respond(outcome)

    if context.broker.wake_check.hold(go_on, size):
        return NO_REPLY if request.acks == 0 else PENDING
    response = ProduceResponse(
        [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(data.index, ErrorCode.REQUEST_TIMED_OUT)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
    return _finish_silently(response, context) if request.acks == 0 else response


def _produce_single(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | bytes | Pending | NoReply:
    """The usual request, with a shorter way to its reply."""
    acks = request.acks
    topic = request.topic_data[0]
    data = topic.partition_data[0]
    waiting: list[_Waiting] = []
    slot: PartitionProduceResponse
    try:
        partition, result = _append(acks, topic.name, data, context)
    except KafkaError as error:
        slot = PartitionProduceResponse(data.index)
        _refuse(slot, error, topic.name, context.broker)
    else:
        if acks == 0:
            return NO_REPLY
        if not _must_wait(acks, partition, result):
            return encode_single_reply(context.version, topic.name, data.index, result)
        slot = PartitionProduceResponse(data.index)
        _accept(slot, result)
        waiting.append(_Waiting(partition, result.last_offset + 1, acks, slot))
    response = ProduceResponse([TopicProduceResponse(name=topic.name, partition_responses=[slot])])
    return _reply(request, context, response, waiting)


def _append(
    acks: int, topic: str, data: PartitionProduceData, context: RequestContext
) -> tuple[Partition, AppendResult]:
    """Append one partition's batch; KafkaError where it is refused."""
    broker = context.broker
    partition = broker.partitions.get((topic, data.index))
    if partition is None:
        raise KafkaError(broker.partition_error(topic, data.index))
    if topic in INTERNAL_TOPICS:
        # What coordinators have in memory is what they wrote themselves.
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} belongs to the cluster")
    if acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    records: Any = data.records
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there are no records")
    if context.version < _ZSTD_SINCE:
        _check_codec(records, context.version)
    result = partition.append_as_leader(records, required_acks=acks, now_ms=broker.clock.now_ms())
    traffic = partition.traffic
    traffic.batches_in += 1
    traffic.bytes_in += len(records)
    if not result.is_duplicate:
        traffic.messages_in += result.last_offset - result.first_offset + 1
    return partition, result


def _must_wait(acks: int, partition: Partition, result: AppendResult) -> bool:
    """Whether the batch is there but may not be acknowledged (I9)."""
    if acks == _ALL:
        return partition.high_watermark <= result.last_offset
    return acks != 0 and partition.awaits_flush


def _reply(
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    waiting: list[_Waiting],
) -> ProduceResponse | Pending | NoReply:
    if request.acks == 0:
        return _finish_silently(response, context)
    return _park(request, context, response, waiting) if waiting else response


def _check_codec(records: Any, version: int) -> None:
    """Producers that speak an old version must not write what its readers can't decompress."""
    is_header = len(records) > _ATTRIBUTES_LOW_BYTE
    if is_header and records[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK == _ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce version {_ZSTD_SINCE} or later, this is {version}",
        )


def _accept(slot: PartitionProduceResponse, result: AppendResult) -> None:
    slot.base_offset = result.first_offset
    slot.log_append_time_ms = result.log_append_time_ms
    slot.log_start_offset = result.log_start_offset


def _refuse(slot: PartitionProduceResponse, error: KafkaError, topic: str, broker: Broker) -> None:
    slot.error_code = error.code
    slot.error_message = error.message
    slot.base_offset = _NO_OFFSET
    broker.metrics.errors[error.code.name] += 1
    broker.metrics.traffic.find(topic).failed_produces += 1


def _finish_silently(response: ProduceResponse, context: RequestContext) -> NoReply:
    """acks=0: nothing is answered; the connection is closed if anything was refused."""
    for topic in response.responses:
        for slot in topic.partition_responses:
            if slot.error_code:
                context.close_connection(
                    f"produce with acks=0 to {topic.name!a} partition {slot.index} failed: "
                    f"{slot.error_message}"
                )
                return NO_REPLY
    return NO_REPLY


class _Waiting:
    """One partition's batch that isn't committed, or not flushed where that was asked for."""

    __slots__ = ("acks", "leader_epoch", "partition", "required_offset", "slot")

    def __init__(
        self,
        partition: Partition,
        required_offset: int,
        acks: int,
        slot: PartitionProduceResponse,
    ) -> None:
        self.partition = partition
        self.acks = acks
        self.leader_epoch = partition.leader_epoch
        self.required_offset = required_offset
        self.slot = slot

    def is_settled(self) -> bool:
        """Whether the slot is final: committed, or lost for this leader (I9, R13)."""
        partition = self.partition
        leader = partition.leader
        if leader is None or partition.leader_epoch != self.leader_epoch:
            # Another leader may or may not have the batch: the client has to ask there.
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if partition.log.is_offline:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return True
        if self.acks != _ALL:
            flushed = partition.log.recovery_point >= self.required_offset
            return flushed or not partition.awaits_flush
        if partition.high_watermark < self.required_offset:
            return False
        if not leader.has_enough_in_sync_replicas:
            self.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def time_out_code(self) -> ErrorCode:
        """Why it wasn't committed in time: the ISR became too small (R13), or is slow."""
        leader = self.partition.leader
        if self.acks == _ALL and leader is not None and not leader.has_enough_in_sync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.REQUEST_TIMED_OUT

    def fail(self, code: ErrorCode) -> None:
        self.slot.error_code = code
        self.slot.error_message = code.description
        self.slot.base_offset = _NO_OFFSET


class _ParkedProduce:
    """A request that waits for the high watermarks, or for a flush, of its partitions."""

    __slots__ = ("context", "response", "waiting")

    def __init__(
        self, context: RequestContext, response: ProduceResponse, waiting: list[_Waiting]
    ) -> None:
        self.context = context
        self.response = response
        self.waiting = waiting

    def try_complete(self) -> bool:
        self.waiting = [waiting for waiting in self.waiting if not waiting.is_settled()]
        if self.waiting:
            return False
        self.context.respond(self.response)
        return True

    def on_expire(self) -> None:
        self.time_out()
        self.context.respond(self.response)

    def time_out(self) -> None:
        for waiting in self.waiting:
            if not waiting.is_settled():
                waiting.fail(waiting.time_out_code())


def _park(
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    waiting: list[_Waiting],
) -> ProduceResponse | Pending:
    broker = context.broker
    operation = _ParkedProduce(context, response, waiting)
    deadline_ms = broker.clock.monotonic_ms() + max(0, request.timeout_ms)
    keys = [(each.partition.topic, each.partition.index) for each in waiting]
    parked = broker.produce_purgatory.park(operation, keys, deadline_ms)
    if parked is None:
        # No room to wait: the client retries, which for an idempotent producer is harmless.
        operation.time_out()
        return response
    context.parked = parked
    return PENDING
