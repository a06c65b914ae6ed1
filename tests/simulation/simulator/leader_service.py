"""What a broker answers to followers, producers and consumers, and what it makes wait.

In the steps of `handlers/fetch`, `handlers/produce` and `handlers/list_offsets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.records import RECORD_SIZE

from fairlead_broker.replication.follower_state import FetchPosition
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import asyncio

    from simulator.broker_process import BrokerProcess
    from simulator.checker import PartitionKey
    from simulator.rpc import Request

    from fairlead_broker.log.log import AppendResult
    from fairlead_broker.replication.partition import Partition

FETCH_WAIT_S = 0.5
FETCH_BYTES_MAX = 20 * RECORD_SIZE
ALL_IN_SYNC = -1


class LeaderService:
    """Answers requests to one broker process."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._parked_fetches: list[_ParkedFetch] = []
        self._produces: dict[PartitionKey, list[_ParkedProduce]] = {}

    def handle(self, request: Request) -> None:
        if not self._broker.is_confirmed:
            return  # Not listening yet: the client will run into its time-out.
        getattr(self, f"_{request.method}")(request)

    def check(self, partition: Partition) -> None:
        """Something that a request may wait for has moved."""
        key = (partition.topic_id, partition.index)
        parked = self._produces.get(key)
        if parked:
            self._produces[key] = [each for each in parked if not each.is_settled()]
        for fetch in list(self._parked_fetches):
            is_news = key in fetch.positions and self._has_news(fetch, key, partition)
            if is_news and self._try_fetch(fetch):
                self._parked_fetches.remove(fetch)
                if fetch.timer is not None:
                    fetch.timer.cancel()

    def check_all(self) -> None:
        for partition in self._broker.partitions.values():
            self.check(partition)

    # Clients.

    def _metadata(self, request: Request) -> None:
        """Who leads, as far as this broker knows."""
        leaders: dict[PartitionKey, tuple[int, int]] = {}
        for topic in self._broker.image.topics():
            for index, partition in enumerate(topic.partitions):
                leaders[(topic.topic_id, index)] = (partition.leader, partition.leader_epoch)
        request.answer(leaders=leaders)

    def _produce(self, request: Request) -> None:
        self._broker.note_time()
        body = request.body
        key, acks = body["key"], body["acks"]
        try:
            partition = self._leading(key)
            result = partition.append_as_leader(
                memoryview(bytearray(body["batch"])),
                required_acks=acks,
                now_ms=self._broker.wall_clock_ms(),
            )
        except KafkaError as error:
            request.answer(error=error.code)
            return
        parked = _ParkedProduce(self._broker, partition, request, result)
        if not parked.is_settled():
            self._produces.setdefault(key, []).append(parked)
            parked.timer = self._broker.process.call_later(body["timeout_s"], parked.expire)

    def _consume(self, request: Request) -> None:
        body = request.body
        try:
            partition = self._leading(body["key"])
            self._check_epoch(partition, body["leader_epoch"])
            read = partition.read(
                body["offset"], FETCH_BYTES_MAX, isolation_level=0, minimum_one_batch=True
            )
        except KafkaError as error:
            request.answer(error=error.code)
            return
        request.answer(
            error=ErrorCode.NONE,
            records=read.records or b"",
            high_watermark=partition.high_watermark,
            is_valid=partition.is_high_watermark_valid,
        )

    def _list_offsets(self, request: Request) -> None:
        """The earliest offset, or the latest, or that it is not known yet (R7)."""
        try:
            partition = self._leading(request.body["key"])
            self._check_epoch(partition, request.body["leader_epoch"])
            if request.body["is_earliest"]:
                request.answer(error=ErrorCode.NONE, earliest=partition.log_start_offset)
                return
            if not partition.is_high_watermark_valid:
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        except KafkaError as error:
            request.answer(error=error.code)
            return
        request.answer(error=ErrorCode.NONE, latest=partition.high_watermark)

    # Followers.

    def _fetch(self, request: Request) -> None:
        body = request.body
        fetch = _ParkedFetch(request, body["partitions"])
        for key, position in body["partitions"].items():
            code = self._record_fetch(key, FetchPosition(*position), body)
            if code:
                fetch.failures[key] = code
        if self._try_fetch(fetch):
            return
        self._parked_fetches.append(fetch)
        fetch.timer = self._broker.process.call_later(FETCH_WAIT_S, self._expire_fetch, fetch)

    def _record_fetch(
        self, key: PartitionKey, position: FetchPosition, body: dict[str, Any]
    ) -> ErrorCode:
        """Believe what a follower says of its log, once the logs are known not to part (R3)."""
        try:
            partition = self._leading(key)
            self._check_epoch(partition, position.current_leader_epoch)
            if parting_point(partition, position) is None:
                partition.record_fetch(
                    body["replica_id"],
                    body["broker_epoch"],
                    position.fetch_offset,
                    self._broker.now_ms(),
                )
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def _has_news(self, fetch: _ParkedFetch, key: PartitionKey, partition: Partition) -> bool:
        offset, _, leader_epoch = fetch.positions[key]
        return (
            partition.leader is None
            or partition.leader_epoch != leader_epoch
            or partition.log_end_offset != offset
        )

    def _try_fetch(self, fetch: _ParkedFetch) -> bool:
        answers: dict[PartitionKey, tuple[Any, ...]] = {}
        has_news = False
        for key, values in fetch.positions.items():
            position = FetchPosition(*values)
            answer = self._answer(key, position, fetch.failures.get(key))
            # It waits for records only: a high watermark goes along with them.
            if answer[0] or answer[3] >= 0 or answer[5]:
                has_news = True
            answers[key] = answer
        if has_news or fetch.is_due:
            fetch.request.answer(partitions=answers)
            return True
        return False

    def _answer(
        self, key: PartitionKey, position: FetchPosition, failure: ErrorCode | None
    ) -> tuple[Any, ...]:
        """Error code, high watermark, log start, diverging epoch and its end, records."""
        try:
            if failure:
                raise KafkaError(failure)
            partition = self._leading(key)
            self._check_epoch(partition, position.current_leader_epoch)
            parting = parting_point(partition, position)
            marks = (partition.high_watermark, partition.log_start_offset)
            if parting is not None:
                return (0, *marks, *parting, b"")
            read = partition.read(
                position.fetch_offset,
                FETCH_BYTES_MAX,
                isolation_level=0,
                replica_id=0,
                minimum_one_batch=True,
            )
        except KafkaError as error:
            found = self._broker.partitions.get(key)
            start = -1 if found is None else found.log_start_offset
            return (int(error.code), -1, start, -1, -1, b"")
        return (0, *marks, -1, -1, read.records or b"")

    def _expire_fetch(self, fetch: _ParkedFetch) -> None:
        if fetch in self._parked_fetches:
            self._parked_fetches.remove(fetch)
            fetch.is_due = True
            self._try_fetch(fetch)

    def _leading(self, key: PartitionKey) -> Partition:
        partition = self._broker.partitions.get(key)
        if self._broker.image.topic_by_id(key[0]) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if partition is None or not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def _check_epoch(self, partition: Partition, leader_epoch: int) -> None:
        code = partition.check_leader_epoch(leader_epoch)
        if code:
            raise KafkaError(code)


def parting_point(partition: Partition, position: FetchPosition) -> tuple[int, int] | None:
    """Where a follower's log parts from ours: epoch and its end; None where it doesn't (R3)."""
    if position.last_fetched_epoch < 0:
        return None
    end = partition.log.end_offset_for_epoch(position.last_fetched_epoch)
    if end.end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    is_other = end.leader_epoch < position.last_fetched_epoch
    if is_other or end.end_offset < position.fetch_offset:
        return (end.leader_epoch, end.end_offset)
    if partition.has_forgotten_epoch(position.last_fetched_epoch, position.fetch_offset):
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return None


class _ParkedFetch:
    def __init__(
        self, request: Request, positions: dict[PartitionKey, tuple[int, int, int]]
    ) -> None:
        self.request = request
        self.positions = positions
        self.failures: dict[PartitionKey, ErrorCode] = {}
        self.is_due = False
        self.timer: asyncio.TimerHandle | None = None


class _ParkedProduce:
    """A batch that is in the log and not acknowledged yet (I9, R13)."""

    def __init__(
        self, broker: BrokerProcess, partition: Partition, request: Request, result: AppendResult
    ) -> None:
        self.broker = broker
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.request = request
        self.first_offset = result.first_offset
        self.offset = result.last_offset
        self.acks = request.body["acks"]
        self.timer: asyncio.TimerHandle | None = None

    def is_settled(self) -> bool:
        """True once it is answered, which happens here as soon as it may."""
        if not self._settle():
            return False
        if self.timer is not None:
            self.timer.cancel()
        return True

    def _settle(self) -> bool:
        partition = self.partition
        leader = partition.leader
        if self.request.is_answered:
            return True
        if leader is None or partition.leader_epoch != self.leader_epoch:
            self.request.answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if self.acks != ALL_IN_SYNC:
            if self.broker.guard.is_closed(self.broker.now_ms()):
                return False
            self.broker.world.wakes.on_acknowledged_alone(self.broker.host, partition)
            self.request.answer(error=ErrorCode.NONE, offset=self.first_offset)
            return True
        if not may_acknowledge(partition, self.offset):
            return False
        if not leader.has_enough_in_sync_replicas:
            self.request.answer(error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            return True
        checker = self.broker.world.checker
        checker.on_high_watermark(self.broker.broker_id, partition)
        for place, value in enumerate(self.request.body["values"]):
            offset = self.first_offset + place
            checker.on_acknowledged(self.broker.broker_id, partition, value, offset)
        self.request.answer(error=ErrorCode.NONE, offset=self.first_offset)
        return True

    def expire(self) -> None:
        if not self.is_settled():
            self.request.answer(error=ErrorCode.REQUEST_TIMED_OUT)


def may_acknowledge(partition: Partition, last_offset: int) -> bool:
    """acks=all: everybody in sync has it."""
    return partition.high_watermark > last_offset
