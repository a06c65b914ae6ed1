"""Brokers in memory that accept Produce requests as Kafka does, and fail on request."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import PassingError, Topic
from fairlead_spark.offsets import TopicPartition
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.init_producer_id import InitProducerIdResponse
from fairlead_wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import Record, decode_batch

if TYPE_CHECKING:
    from collections.abc import Callable

LOST_BEFORE = "lost before"
LOST_BEHIND = "lost behind"
Fault = ErrorCode | str | None


class FakeConnection:
    """Readable when a reply is there, as a socket is."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.address = f"broker-{node_id}:9092"
        self._cluster = cluster
        self._node_id = node_id
        self._ours, self._theirs = socket.socketpair()
        self._reply: Any = None
        self._sent = 0

    def fileno(self) -> int:
        return self._ours.fileno()

    def version_of(self, _api_key: int, wanted: int) -> int:
        return wanted

    def send(self, request: Any, _version: int) -> int:
        assert self._reply is None, "one request at a time"
        self._reply = self._cluster.answer(self._node_id, request)
        self._theirs.send(b"!")
        self._sent += 1
        return self._sent

    def receive(self, _api_key: int, _version: int, sent: int, *, timeout_s: float) -> Any:
        assert sent == self._sent
        self._ours.recv(1)
        reply, self._reply = self._reply, None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


class FakeCluster:
    """Two brokers. `fault(where, attempt)` returns the outcome of an attempt to write a batch."""

    def __init__(
        self,
        partitions: int = 4,
        *,
        fault: Callable[[TopicPartition, int], Fault] = lambda _where, _attempt: None,
        topics: tuple[str, ...] = ("t",),
        batch_bytes_max: int = 10**9,
    ) -> None:
        self.settings = ClientSettings("broker:9092", request_timeout_s=30)
        self.logs: dict[TopicPartition, list[Record]] = {}
        self.partitions = dict.fromkeys(topics, partitions)
        self.requests: list[list[TopicPartition]] = []
        self.attempts: dict[TopicPartition, int] = {}
        self.producers = 0
        self.leaderless = 0
        self._fault = fault
        self._batch_bytes_max = batch_bytes_max
        self._next: dict[tuple[TopicPartition, int], int] = {}
        self._connections: dict[int, FakeConnection] = {}

    def read_topics(self, names: list[str], *, may_create: bool = False) -> dict[str, Topic]:
        return {
            name: Topic(name, bytes(16), {p: p % 2 for p in range(count)}, {})
            for name, count in self.partitions.items()
            if name in names
        }

    def leader_of(self, topic: str, partition: int) -> tuple[int, Topic]:
        if self.leaderless:
            self.leaderless -= 1
            raise PassingError(f"{topic}-{partition} has no leader")
        return partition % 2, self.read_topics([topic])[topic]

    def retry(self, ask: Callable[[], Any], _what: str) -> Any:
        return ask()

    def call_any(self, _message: Any, _version: int) -> Any:
        self.producers += 1
        return InitProducerIdResponse(producer_id=self.producers, producer_epoch=0)

    def produce_connection(self, node_id: int) -> FakeConnection:
        if node_id not in self._connections:
            self._connections[node_id] = FakeConnection(self, node_id)
        return self._connections[node_id]

    def drop(self, connection: FakeConnection) -> None:
        connection.close()
        self._connections = {
            node: each for node, each in self._connections.items() if each is not connection
        }

    def forget_leaders(self) -> None:
        pass

    def close(self) -> None:
        for each in list(self._connections.values()):
            self.drop(each)

    def answer(self, node_id: int, request: Any) -> Any:
        self.requests.append([])
        reply = ProduceResponse()
        is_lost = False
        for topic in request.topic_data:
            answered = TopicProduceResponse(name=topic.name)
            reply.responses.append(answered)
            for each in topic.partition_data:
                where = TopicPartition(topic.name, each.index)
                assert where.partition % 2 == node_id
                self.requests[-1].append(where)
                attempt = self.attempts[where] = self.attempts.get(where, 0) + 1
                fault = self._fault(where, attempt)
                is_lost |= fault in (LOST_BEFORE, LOST_BEHIND)
                code = fault if isinstance(fault, ErrorCode) else ErrorCode.NONE
                if fault not in (LOST_BEFORE, *_BEFORE):
                    code = self._append(where, each.records) or code
                answered.partition_responses.append(
                    PartitionProduceResponse(index=each.index, error_code=code)
                )
        return ConnectionError("closed") if is_lost else reply

    def _append(self, where: TopicPartition, data: bytes) -> ErrorCode:
        if len(data) > self._batch_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        header, records = decode_batch_header(data), decode_batch(data)
        key = where, header.producer_id
        expected = self._next.get(key, 0)
        if header.base_sequence == expected:
            self.logs.setdefault(where, []).extend(records)
            self._next[key] = expected + len(records)
            return ErrorCode.NONE
        if header.base_sequence + len(records) == expected:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def values(self, partition: int, topic: str = "t") -> list[bytes | None]:
        return [each.value for each in self.logs.get(TopicPartition(topic, partition), [])]


# Errors that mean that nothing was appended.
_BEFORE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
)
