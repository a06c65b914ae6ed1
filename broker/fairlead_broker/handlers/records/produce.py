"""Produce (key 0), versions 3 to 13; 0 to 2 are advertised only.

Behaviour: appends one batch to each partition, independently; errors are per partition. acks 0 has
no reply, and a failure closes the connection, the only sign that makes such a client refresh its
metadata. acks 1 answers at once, acks -1 when the high watermark has passed the batch or
`timeout_ms` is over. The records are a writable view of the receive buffer: they are appended
before this returns and never kept. If a flush is due by `flush.messages`, acks 1 waits for it. Only
brokers write internal topics: INVALID_TOPIC_EXCEPTION. NOT_LEADER_OR_FOLLOWER comes with the
present leader, if this broker knows it (`current_leader`). An unknown topic id, such as that of a
topic that was deleted and created again, is UNKNOWN_TOPIC_ID. If a batch is refused because records
have no key (in a compacted topic) or because of their timestamps, the reply lists these records
unless they are very many, so that clients can tell them from the others (KIP-467). Transactional
batches need acks -1 and a transactional id that the principal may write to. The first batch of a
transaction in a partition waits until the transaction's coordinator has been asked, and later
requests of the same connection wait with it (`transactional_produce`).
Versions:  5 log start offset in the reply · 7 zstd · 8 error message, records at fault ·
           9 flexible · 10 the current leader · 11 TRANSACTION_ABORTABLE exists, below it is
           INVALID_TXN_STATE · 12 clients with an epoch for each transaction: the first batch also
           adds the partition to the transaction · 13 topic ids instead of names.
           librdkafka before 2.11 compresses only if the range begins at 0; no client
           that is still supported sends 0 to 2, which are refused like any unknown version.
Missing:   nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.api_registry import NO_REPLY, PENDING, NoReply, Pending, handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.once_awake import handle_now
from fairlead_broker.handlers.records.current_leader import current_leader
from fairlead_broker.handlers.records.produce_reply import encode_single_reply
from fairlead_broker.handlers.records.sequence_gaps import note_passing, note_refusal
from fairlead_broker.handlers.records.transactional_produce import (
    UnverifiedError,
    ask_coordinator,
    check_transaction,
    refusal_of,
)
from fairlead_broker.handlers.topic_rights import require_topic
from fairlead_broker.limits import (
    HELD_REQUEST_OVERHEAD_BYTES,
    NAMED_RECORDS_MAX,
    PACKING_MS_MAX,
    PARTITIONS_PER_REQUEST_MAX,
)
from fairlead_broker.log.batches.produced_records import takes_long
from fairlead_broker.log.batches.record_walk import RefusedRecordsError
from fairlead_broker.replication.acknowledgement import acknowledgement, time_out_code
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.replication.purgatory import PARKED_FAULT
from fairlead_model.ids import INTERNAL_TOPICS
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fairlead_wire.record_batch import CODEC_MASK, TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker
    from fairlead_broker.log.log import AppendResult
    from fairlead_broker.log.producers.verification import VerificationGuard
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.transaction.verification import Verdicts
    from fairlead_wire.messages.produce import TopicProduceData

_ACKS: Final = (1, ALL_IN_SYNC, 0)
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7
_ATTRIBUTES_LOW_BYTE: Final = 22
_NO_OFFSET: Final = -1
_CURRENT_LEADER_SINCE: Final = 10
_TOPIC_IDS_SINCE: Final = 13


@handles(
    ApiKey.PRODUCE,
    versions=(3, 13),
    access=Access.BY_RESOURCE,
    advertise=(0, 13),
    borrows_frame=True,
)
def produce(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | bytes | Pending | NoReply:
    if request.acks != ALL_IN_SYNC and context.broker.wake_check.must_hold():
        return _hold(request, context)
    if request.transactional_id is not None and context.broker.waiting_produces.must_wait(
        context.channel
    ):
        return _wait_behind(request, context)
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return _produce_single(request, context)
    broker = context.broker
    waiting: list[_Waiting] = []
    responses: list[TopicProduceResponse] = []
    unverified: list[_Unverified] = []
    count = 0
    for topic in topics:
        count += len(topic.partition_data) or 1
        if count > PARTITIONS_PER_REQUEST_MAX:
            raise RemoteProtocolError(f"a produce request to {count} partitions")
        slots: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            slot = PartitionProduceResponse(data.index)
            slots.append(slot)
            try:
                partition, result = _append(request, topic, data, context)
            except KafkaError as error:
                _refuse(slot, error, topic, broker)
                continue
            except UnverifiedError as found:
                unverified.append(_Unverified(found, topic, data, slot))
                continue
            _accept(slot, result)
            if request.acks:
                end_offset = result.last_offset + 1
                code = acknowledgement(partition, request.acks, partition.leader_epoch, end_offset)
                if code is None:
                    waiting.append(_Waiting(partition, end_offset, request.acks, slot))
                elif code:
                    _fail(slot, code)
        responses.append(TopicProduceResponse(topic.name, topic.topic_id, slots))
    response = ProduceResponse(responses)
    if unverified:
        return _VerifyingProduce(request, context, response, waiting, unverified).begin()
    return _reply(request, context, response, waiting)


def _hold(request: ProduceRequest, context: RequestContext) -> ProduceResponse | Pending | NoReply:
    """Append later: this broker was stopped, and may lead nothing any more.

    The records are kept, so they are copied out of the receive buffer.
    """
    size = _copy_records(_batches(request))
    if context.broker.wake_check.hold(lambda: handle_now(produce, request, context), size):
        return NO_REPLY if request.acks == 0 else PENDING
    response = _same_for_all(request, ErrorCode.REQUEST_TIMED_OUT)
    return _finish_silently(response, context) if request.acks == 0 else response


def _wait_behind(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Pending | NoReply:
    """Append later: a batch that came before, on the same connection, is being verified."""
    size = _copy_records(_batches(request))
    waiting_produces = context.broker.waiting_produces
    if waiting_produces.wait(context.channel, lambda: handle_now(produce, request, context), size):
        return NO_REPLY if request.acks == 0 else PENDING
    _note_no_room(request, context)
    response = _same_for_all(request, ErrorCode.NOT_ENOUGH_REPLICAS)
    return _finish_silently(response, context) if request.acks == 0 else response


def _note_no_room(request: ProduceRequest, context: RequestContext) -> None:
    """Have what comes behind this request wait for it, too, where it may be written at all."""
    broker = context.broker
    for topic in request.topic_data:
        name = _topic_name(topic, broker)
        if name and context.would_allow(Operation.WRITE, ResourceType.TOPIC, name):
            for data in topic.partition_data[:PARTITIONS_PER_REQUEST_MAX]:
                partition = broker.partitions.get((name, data.index))
                if partition is not None:
                    note_passing(ErrorCode.NOT_ENOUGH_REPLICAS, partition, broker)


def _copy_records(batches: Iterable[PartitionProduceData]) -> int:
    """Copy the batches of a request that is kept; return about how much memory it takes."""
    size = HELD_REQUEST_OVERHEAD_BYTES
    for data in batches:
        if data.records is not None:
            copy = memoryview(bytearray(data.records))
            data.records = copy
            size += len(copy)
    return size


def _batches(request: ProduceRequest) -> Iterator[PartitionProduceData]:
    return (data for topic in request.topic_data for data in topic.partition_data)


def _same_for_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, code) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _produce_single(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | bytes | Pending | NoReply:
    """Answer the usual request, to one partition, by a shorter way."""
    acks = request.acks
    topic = request.topic_data[0]
    data = topic.partition_data[0]
    waiting: list[_Waiting] = []
    success = None
    slot: PartitionProduceResponse
    try:
        partition, result = _append(request, topic, data, context)
    except KafkaError as error:
        slot = PartitionProduceResponse(data.index)
        _refuse(slot, error, topic, context.broker)
    except UnverifiedError as found:
        slot = PartitionProduceResponse(data.index)
        response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [slot])])
        unverified = [_Unverified(found, topic, data, slot)]
        return _VerifyingProduce(request, context, response, waiting, unverified).begin()
    else:
        if acks == 0:
            return NO_REPLY
        success = encode_single_reply(context.version, topic, data.index, result)
        end_offset = result.last_offset + 1
        code = acknowledgement(partition, acks, partition.leader_epoch, end_offset)
        if code is ErrorCode.NONE:
            return success
        slot = PartitionProduceResponse(data.index)
        _accept(slot, result)
        if code is None:
            waiting.append(_Waiting(partition, end_offset, acks, slot))
        else:
            _fail(slot, code)
    response = ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [slot])])
    return _reply(request, context, response, waiting, success)


def _append(
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    context: RequestContext,
    guard: VerificationGuard | None = None,
) -> tuple[Partition, AppendResult]:
    """Append one partition's batch; KafkaError where it is refused.

    UnverifiedError where a transaction's coordinator has to be asked first; `guard` is what that
    gave, once it has agreed.
    """
    broker = context.broker
    name: str | None = topic.name
    by_id = context.version >= _TOPIC_IDS_SINCE
    if by_id:
        name = broker.topic_name(topic.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if context.channel.authorizer is not None:
        topic_id = topic.topic_id if by_id else None
        require_topic(context, Operation.WRITE, name, topic_id=topic_id)
    partition = broker.partitions.get((name, data.index))
    if partition is None:
        raise KafkaError(broker.partition_error(name, data.index))
    if by_id and topic.topic_id != partition.topic_id:
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
    if name in INTERNAL_TOPICS:
        # Coordinators have in memory what they wrote themselves.
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} belongs to the cluster")
    acks = request.acks
    if acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    records: Any = data.records
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there are no records")
    if context.version < _ZSTD_SINCE:
        _check_codec(records, context.version)
    if (
        len(records) > _ATTRIBUTES_LOW_BYTE
        and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_MASK
        and guard is None
    ):
        check_transaction(partition, records, request, context)
    append = (
        partial(_append_slowly, context, partition)
        if takes_long(records, partition.log.config)
        else partition.append_as_leader
    )
    try:
        result = append(records, required_acks=acks, now_ms=broker.clock.now_ms(), guard=guard)
    except KafkaError as error:
        note_refusal(error, partition, broker)
        raise
    traffic = partition.traffic
    traffic.batches_in += 1
    traffic.bytes_in += len(records)
    partition.flow.bytes_in += len(records)
    if not result.is_duplicate:
        traffic.messages_in += result.last_offset - result.first_offset + 1
    return partition, result


def _append_slowly(
    context: RequestContext, partition: Partition, records: Any, **options: Any
) -> AppendResult:
    """Append a batch that has to be compressed again or walked, while all other work waits.

    Its connection then waits as long, and has had enough done for it after a while.
    """
    channel, clock = context.channel, context.broker.clock
    if channel.charged_ms >= PACKING_MS_MAX:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"batches of this request were unpacked or packed anew for {channel.charged_ms} ms:"
            " send fewer at once, or compress as the topic's compression.type says",
        )
    begun_ms = clock.monotonic_ms()
    try:
        return partition.append_as_leader(records, **options)
    finally:
        channel.charge(clock.monotonic_ms() - begun_ms)


def _reply(
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    waiting: list[_Waiting],
    success: bytes | None = None,
) -> ProduceResponse | Pending | NoReply:
    """`success`: the same reply encoded, for as long as nothing happens to what waits."""
    if request.acks == 0:
        return _finish_silently(response, context)
    if waiting:
        return _park(request, context, response, waiting, success)
    return _with_leaders(response, context)


def _with_leaders(response: ProduceResponse, context: RequestContext) -> ProduceResponse:
    """Add the leader and its address to errors."""
    if context.version < _CURRENT_LEADER_SINCE:
        return response
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for slot in topic.partition_responses:
            if slot.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            name = _topic_name(topic, context.broker)
            leader = name and current_leader(context, name, slot.index, slot.error_code)
            if leader:
                slot.current_leader = LeaderIdAndEpoch(leader.broker_id, leader.leader_epoch)
                endpoints[leader.broker_id] = NodeEndpoint(
                    leader.broker_id, leader.host, leader.port, leader.rack
                )
    response.node_endpoints = list(endpoints.values())
    return response


def _check_codec(records: Any, version: int) -> None:
    """Refuse a codec that readers of the producer's old version cannot decompress."""
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


def _refuse(
    slot: PartitionProduceResponse, error: KafkaError, topic: TopicProduceData, broker: Broker
) -> None:
    slot.error_code = error.code
    slot.error_message = error.message
    slot.base_offset = _NO_OFFSET
    if isinstance(error, RefusedRecordsError) and len(error.indexes) <= NAMED_RECORDS_MAX:
        slot.record_errors = [
            BatchIndexAndErrorMessage(index, error.fault) for index in error.indexes
        ]
    broker.metrics.errors[error.code.name] += 1
    broker.metrics.traffic.find(_topic_name(topic, broker)).failed_produces += 1


def _topic_name(topic: TopicProduceData | TopicProduceResponse, broker: Broker) -> str | None:
    """Return the name of a topic that a client knows by its name or by its id."""
    return topic.name or broker.topic_name(topic.topic_id)


def _fail(slot: PartitionProduceResponse, code: ErrorCode) -> None:
    """Say that a batch is in the log and is not acknowledged."""
    slot.error_code = code
    slot.error_message = code.description
    slot.base_offset = _NO_OFFSET


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


class _Unverified(NamedTuple):
    """A batch whose transaction the coordinator is asked about, and the slot of its answer."""

    found: UnverifiedError
    topic: TopicProduceData
    data: PartitionProduceData
    slot: PartitionProduceResponse


class _VerifyingProduce:
    """A request of which some batches would open a transaction; the others are appended."""

    __slots__ = (
        "_context",
        "_is_held",
        "_outcome",
        "_request",
        "_response",
        "_unverified",
        "_waiting",
    )

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        response: ProduceResponse,
        waiting: list[_Waiting],
        unverified: list[_Unverified],
    ) -> None:
        self._request = request
        self._context = context
        self._response = response
        self._waiting = waiting
        self._unverified = unverified
        self._is_held = False
        self._outcome: ProduceResponse | Pending | NoReply | None = None

    def begin(self) -> ProduceResponse | Pending | NoReply:
        """Ask the coordinator. Its answer may come at once; else the batches are copied."""
        request, context = self._request, self._context
        unverified = self._unverified
        ask_coordinator(
            request.transactional_id or "",
            [each.found for each in unverified],
            context,
            self._on_verdicts,
        )
        if self._outcome is not None:
            return self._outcome
        size = _copy_records([each.data for each in unverified])
        if not context.broker.waiting_produces.begin(context.channel, size):
            # No room to wait: the client sends it again.
            self._unverified = []
            for each in unverified:
                _fail(each.slot, ErrorCode.NOT_ENOUGH_REPLICAS)
                note_passing(ErrorCode.NOT_ENOUGH_REPLICAS, each.found.partition, context.broker)
            return _reply(request, context, self._response, self._waiting)
        self._is_held = True
        context.parked = self
        return PENDING

    def cancel(self) -> None:
        """Forget the request: its connection is closed, so no reply is needed."""
        self._unverified = []
        self._context.broker.waiting_produces.forget(self._context.channel)

    def _on_verdicts(self, verdicts: Verdicts) -> None:
        unverified, self._unverified = self._unverified, []
        if not unverified:
            return  # No client waits for it any more.
        request, context = self._request, self._context
        try:
            for each in unverified:
                self._append(each, verdicts)
            outcome = _reply(request, context, self._response, self._waiting)
        except Exception as error:
            if self._is_held:
                context.close_connection(f"a produce failed: {error}")
            raise
        if not self._is_held:
            self._outcome = outcome
            return
        if outcome is not PENDING and outcome is not NO_REPLY:
            context.respond(outcome)
        context.broker.waiting_produces.finish(context.channel)

    def _append(self, unverified: _Unverified, verdicts: Verdicts) -> None:
        found, topic, data, slot = unverified
        context = self._context
        try:
            verdict = verdicts[found.partition.topic, found.partition.index]
            if verdict is not ErrorCode.NONE:
                code = refusal_of(verdict, context.version)
                note_passing(code, found.partition, context.broker)
                raise KafkaError(code, f"its transaction is not verified: {verdict.description}")
            partition, result = _append(self._request, topic, data, context, found.guard)
        except KafkaError as error:
            _refuse(slot, error, topic, context.broker)
            return
        _accept(slot, result)
        waiting = _Waiting(partition, result.last_offset + 1, ALL_IN_SYNC, slot)
        if not waiting.is_settled():
            self._waiting.append(waiting)


class _Waiting:
    """One partition's batch that isn't committed, or not flushed if that is required."""

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
        """Tell whether the slot is final: acknowledged, or lost for this leader."""
        code = acknowledgement(self.partition, self.acks, self.leader_epoch, self.required_offset)
        if code:
            _fail(self.slot, code)
        return code is not None


class _ParkedProduce:
    """A request that waits for the high watermarks, or for a flush, of its partitions.

    `success` is the encoded reply to a request of one partition, for when that is committed; None
    where a request has more of them.
    """

    __slots__ = ("context", "response", "success", "waiting")

    def __init__(
        self,
        context: RequestContext,
        response: ProduceResponse,
        waiting: list[_Waiting],
        success: bytes | None,
    ) -> None:
        self.context = context
        self.response = response
        self.waiting = waiting
        self.success = success

    def try_complete(self) -> bool:
        self.waiting = [waiting for waiting in self.waiting if not waiting.is_settled()]
        if self.waiting:
            return False
        self._respond()
        return True

    def on_expire(self) -> None:
        self.time_out()
        self._respond()

    def on_fault(self) -> None:
        self.context.close_connection(PARKED_FAULT)

    def time_out(self) -> None:
        for waiting in self.waiting:
            if not waiting.is_settled():
                _fail(waiting.slot, time_out_code(waiting.partition, waiting.acks))

    def _respond(self) -> None:
        response = self.response
        if self.success is None or response.responses[0].partition_responses[0].error_code:
            self.context.respond(_with_leaders(response, self.context))
        else:
            self.context.respond(self.success)


def _park(
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
    waiting: list[_Waiting],
    success: bytes | None,
) -> ProduceResponse | Pending:
    broker = context.broker
    operation = _ParkedProduce(context, response, waiting, success)
    deadline_ms = broker.clock.monotonic_ms() + max(0, request.timeout_ms)
    keys = [(each.partition.topic, each.partition.index) for each in waiting]
    parked = broker.produce_purgatory.park(operation, keys, deadline_ms)
    if parked is None:
        # No room to wait: the client retries, which for an idempotent producer is harmless.
        operation.time_out()
        return _with_leaders(response, context)
    context.parked = parked
    return PENDING
