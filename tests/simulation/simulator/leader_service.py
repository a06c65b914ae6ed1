"""The answers of a broker to producers and consumers: the real handlers, for calls of `rpc`.

Clients name topics by id, as from Produce 13 on. So a record for a deleted topic does not get into
the next topic of the same name, which the observer would take for a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from simulator.records import RECORD_SIZE

from fairlead_broker.api_registry import HANDLERS, PENDING, RequestContext, load_handlers
from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.handlers.records.list_offsets import EARLIEST, LATEST
from fairlead_broker.listener import Listener
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from fairlead_wire.messages.end_txn import EndTxnRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from simulator.broker_process import BrokerProcess
    from simulator.checker import PartitionKey
    from simulator.rpc import Request

    from fairlead_broker.replication.partition import Partition
    from fairlead_wire.message import Message

CLIENTS: Final = Listener("CLIENT", "", 9092, "", 9092)
FETCH_BYTES_MAX: Final = 20 * RECORD_SIZE
FETCH_WAIT_MS: Final = 100
PRODUCE_VERSION: Final = 9
PRODUCE_VERSION_2: Final = 12
"""Version of clients with an epoch for each transaction; it adds the partition to that."""
ADD_PARTITIONS_VERSION: Final = 3
INIT_PRODUCER_ID_VERSION: Final = 4
END_TXN_VERSION: Final = 3
END_TXN_VERSION_2: Final = 5
FETCH_VERSION: Final = 13
LIST_OFFSETS_VERSION: Final = 7

load_handlers()


class LeaderService:
    """Answers clients of one broker process, and reports the answers to the observer."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._broker = process.broker

    def handle(self, request: Request) -> None:
        if self._process.is_confirmed:  # Otherwise it does not listen yet: the request times out.
            getattr(self, f"_{request.method}")(request)

    def _metadata(self, request: Request) -> None:
        """Return the leaders, as far as this broker knows."""
        leaders: dict[PartitionKey, tuple[int, int]] = {}
        for topic in self._broker.image.topics():
            for index, partition in enumerate(topic.partitions):
                leaders[(topic.topic_id, index)] = (partition.leader, partition.leader_epoch)
        request.answer(leaders=leaders)

    def _produce(self, request: Request) -> None:
        body = request.body
        (topic_id, index), acks = body["key"], body["acks"]
        version = PRODUCE_VERSION_2 if body.get("version") else PRODUCE_VERSION
        data = PartitionProduceData(index, memoryview(bytearray(body["batch"])))
        message = ProduceRequest(
            transactional_id=body.get("transactional_id"),
            acks=acks,
            timeout_ms=int(body["timeout_s"] * 1000),
            topic_data=[TopicProduceData(self._name(topic_id), partition_data=[data])],
        )

        def answer(response: Any) -> None:
            if isinstance(response, bytes):
                response, _ = ProduceResponse.decode(memoryview(response), 0, version)
            (slot,) = response.responses[0].partition_responses
            if not slot.error_code:
                partition = self._process.partitions[body["key"]]
                self._observe(partition, acks, body["values"], slot.base_offset)
            request.answer(error=ErrorCode(slot.error_code), offset=slot.base_offset)

        self._call(request, message, version, answer)

    def _observe(
        self, partition: Partition, acks: int, values: tuple[int, ...], first_offset: int
    ) -> None:
        world, broker_id = self._process.world, self._process.broker_id
        if acks != ALL_IN_SYNC:
            world.wakes.on_acknowledged_alone(self._process.host, partition)
            return
        world.checker.on_high_watermark(broker_id, partition)
        for place, value in enumerate(values):
            world.checker.on_acknowledged(broker_id, partition, value, first_offset + place)

    def _consume(self, request: Request) -> None:
        body = request.body
        topic_id, index = body["key"]
        asked = FetchPartition(
            index,
            current_leader_epoch=body["leader_epoch"],
            fetch_offset=body["offset"],
            partition_max_bytes=FETCH_BYTES_MAX,
        )
        message = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=body["isolation_level"],
            topics=[FetchTopic("", topic_id, [asked])],
            rack_id=body["rack"],
        )

        def answer(response: Any) -> None:
            (data,) = response.responses[0].partitions
            partition = self._process.partitions.get(body["key"])
            if partition is not None and not data.error_code:
                checker = self._process.world.checker
                # It may have advanced twice in this iteration, with only one notification.
                checker.on_high_watermark(self._process.broker_id, partition)
                checker.transactions.on_told(
                    partition, data.high_watermark, data.last_stable_offset
                )
            aborted = data.aborted_transactions or ()
            request.answer(
                error=ErrorCode(data.error_code),
                records=data.records or b"",
                aborted=[(each.producer_id, each.first_offset) for each in aborted],
                last_stable_offset=data.last_stable_offset,
                high_watermark=data.high_watermark,
                preferred=data.preferred_read_replica,
                is_valid=partition is not None and partition.is_high_watermark_valid,
            )

        self._call(request, message, FETCH_VERSION, answer)

    def _list_offsets(self, request: Request) -> None:
        """Return the earliest or the latest offset, or that it is not known yet (R7)."""
        body = request.body
        topic_id, index = body["key"]
        asked = ListOffsetsPartition(
            index, body["leader_epoch"], EARLIEST if body["is_earliest"] else LATEST
        )
        topics = [ListOffsetsTopic(self._name(topic_id), [asked])]
        message = ListOffsetsRequest(
            replica_id=-1, isolation_level=body["isolation_level"], topics=topics
        )

        def answer(response: Any) -> None:
            (found,) = response.topics[0].partitions
            name = "earliest" if body["is_earliest"] else "latest"
            request.answer(error=ErrorCode(found.error_code), **{name: found.offset})

        self._call(request, message, LIST_OFFSETS_VERSION, answer)

    def _init_producer_id(self, request: Request) -> None:
        body = request.body
        producer_id, producer_epoch = body["expected"]
        message = InitProducerIdRequest(
            transactional_id=body["transactional_id"],
            transaction_timeout_ms=body["timeout_ms"],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        self._call(request, message, INIT_PRODUCER_ID_VERSION, _pair_answer(request))

    def _add_partitions(self, request: Request) -> None:
        body = request.body
        producer_id, producer_epoch = body["pair"]
        message = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=body["transactional_id"],
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(self._name(topic_id), [index])
                for topic_id, index in body["keys"]
            ],
        )

        def answer(response: Any) -> None:
            codes = {
                each.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            request.answer(error=ErrorCode(max(codes, default=0)))

        self._call(request, message, ADD_PARTITIONS_VERSION, answer)

    def _end_txn(self, request: Request) -> None:
        body = request.body
        producer_id, producer_epoch = body["pair"]
        message = EndTxnRequest(
            transactional_id=body["transactional_id"],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=body["is_commit"],
        )
        version = END_TXN_VERSION_2 if body["version"] else END_TXN_VERSION
        self._call(request, message, version, _pair_answer(request))

    def _name(self, topic_id: bytes) -> str:
        return self._broker.topic_name(topic_id) or ""

    def _call(
        self, request: Request, message: Message, version: int, answer: Callable[[Any], None]
    ) -> None:
        if "key" in request.body and not self._name(request.body["key"][0]):
            request.answer(error=ErrorCode.UNKNOWN_TOPIC_ID)
            return
        channel: Any = _Call(self, request, answer)
        context = RequestContext(channel, message.API_KEY, version, 0, None)
        outcome = HANDLERS[message.API_KEY].call(message, context)
        if outcome is not PENDING:
            answer(outcome)


def _pair_answer(request: Request) -> Callable[[Any], None]:
    """Answer a producer with its id and epoch."""

    def answer(response: Any) -> None:
        pair = (response.producer_id, response.producer_epoch)
        request.answer(error=ErrorCode(response.error_code), pair=pair)

    return answer


class _Call:
    """Replaces `Connection`, for one request of a client."""

    listener = CLIENTS
    peer_check = None
    replica_ids = range(2**31)
    charged_ms = 0
    """No time passes while a request is handled."""

    def __init__(
        self, service: LeaderService, request: Request, answer: Callable[[Any], None]
    ) -> None:
        self.broker = service._broker
        self.client_host = request.client
        self.principal = ANONYMOUS
        self.authorizer = None
        self.quotas = None
        self._answer = answer

    def on_response(self, context: RequestContext, response: Any) -> None:
        self._answer(response)

    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None:
        raise AssertionError("clients ask for what only the controller decides")

    def on_proved(self) -> None: ...

    def close(self, reason: str) -> None:
        raise AssertionError(f"{self.client_host} broke the protocol: {reason}")

    def charge(self, spent_ms: int) -> None:
        assert not spent_ms
