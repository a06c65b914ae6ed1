"""Requests of a transactional producer as frames, so that a test can deliver one late, or twice.

Written by hand, for one broker that leads and coordinates everything. The versions are those by
which a broker tells the two versions of the protocol apart (KIP-890): Produce 7 and EndTxn 1 are
sent by clients that add partitions themselves, Produce 12 and EndTxn 5 by those that need not.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

import google_crc32c
from waiting import wait_until

from fairlead_bench.loads.wire_bytes import (
    FIND_COORDINATOR,
    PRODUCE,
    frame,
    header,
    produce_error_position,
    short_text,
    signed_varint,
    unsigned_varint,
)
from fairlead_bench.peers.peer import exchange

INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 22, 24, 26
TRANSACTION: Final = 1
TRANSACTIONAL: Final = 0b10000


class Error(IntEnum):
    """The error codes that are met here."""

    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    NOT_ENOUGH_REPLICAS = 19
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    CONCURRENT_TRANSACTIONS = 51
    PRODUCER_FENCED = 90
    TRANSACTION_ABORTABLE = 120


AGAIN: Final = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.NOT_ENOUGH_REPLICAS,
    Error.CONCURRENT_TRANSACTIONS,
)


class Frame(NamedTuple):
    """A request, and how its error is found in the answer."""

    request: bytes
    error_at: int


def compact(data: bytes) -> bytes:
    return unsigned_varint(len(data) + 1) + data


def transactional_batch(value: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    body = b"\x00\x00\x00\x01" + signed_varint(len(value)) + value + b"\x00"
    record = signed_varint(len(body)) + body
    checked = (
        struct.pack(">hiqqqhii", TRANSACTIONAL, 0, 0, 0, producer_id, epoch, sequence, 1) + record
    )
    crc = google_crc32c.value(checked)
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc) + checked


class FrameProducer:
    """One transactional id on one partition; it sends nothing by itself but `start`."""

    def __init__(self, port: int, transactional_id: str, topic: str, timeout_ms: int) -> None:
        self._port, self._id, self._topic = port, transactional_id, topic
        self._timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1

    def start(self) -> None:
        """FindCoordinator, which makes the topic that is needed, and InitProducerId."""
        lookup = short_text(self._id) + struct.pack(">b", TRANSACTION)
        find = Frame(frame(header(FIND_COORDINATOR, 1) + lookup), 8)
        self.until_answered(lambda: find)
        body = short_text(self._id) + struct.pack(">i", self._timeout_ms)
        init = Frame(frame(header(INIT_PRODUCER_ID, 1) + body), 8)
        reply = self.until_answered(lambda: init)
        self.producer_id, self.epoch = struct.unpack_from(">qh", reply, 10)

    def send(self, wanted: Frame) -> Error:
        """Deliver it once."""
        return self._exchange(wanted)[0]

    def until_answered(self, make: Callable[[], Frame]) -> bytes:
        """Deliver it again while the answer is to try again; the answer, which has no error."""
        answers: list[tuple[Error, bytes]] = []

        def is_answered() -> bool:
            answers.append(self._exchange(make()))
            return answers[-1][0] not in AGAIN

        wait_until(is_answered, lambda: f"{answers[-1][0]!r}")
        error, reply = answers[-1]
        assert error is Error.NONE, repr(error)
        return reply

    def _exchange(self, wanted: Frame) -> tuple[Error, bytes]:
        reply = exchange(self._port, wanted.request)
        return Error(struct.unpack_from(">h", reply, wanted.error_at)[0]), reply

    @property
    def _identity(self) -> bytes:
        return struct.pack(">qh", self.producer_id, self.epoch)

    def add_partition(self, partition: int = 0) -> Frame:
        body = short_text(self._id) + self._identity + struct.pack(">i", 1)
        body += short_text(self._topic) + struct.pack(">ii", 1, partition)
        # Correlation id, throttle time, a topic with its name, a partition's index.
        error_at = 8 + 4 + 2 + len(self._topic) + 4 + 4
        return Frame(frame(header(ADD_PARTITIONS_TO_TXN, 1) + body), error_at)

    def produce(self, value: bytes, sequence: int, partition: int = 0) -> Frame:
        """Of a client that has added the partition itself."""
        batch = transactional_batch(value, self.producer_id, self.epoch, sequence)
        body = short_text(self._id) + struct.pack(">hii", -1, 30_000, 1) + short_text(self._topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        error_at = 4 + 4 + 2 + len(self._topic) + 4 + 4
        return Frame(frame(header(PRODUCE, 7) + body), error_at)

    def produce_and_add(self, value: bytes, sequence: int, partition: int = 0) -> Frame:
        """Of a client whose records add their partition to the transaction."""
        batch = transactional_batch(value, self.producer_id, self.epoch, sequence)
        body = b"\x00" + compact(self._id.encode()) + struct.pack(">hi", -1, 30_000)
        body += unsigned_varint(2) + compact(self._topic.encode()) + unsigned_varint(2)
        body += struct.pack(">i", partition) + compact(batch) + b"\x00\x00\x00"
        return Frame(frame(header(PRODUCE, 12) + body), produce_error_position(self._topic) - 4)

    def end(self, *, is_committed: bool) -> Frame:
        body = short_text(self._id) + self._identity + struct.pack(">b", is_committed)
        return Frame(frame(header(END_TXN, 1) + body), 8)

    def end_and_bump(self, *, is_committed: bool) -> Frame:
        """The answer has the next epoch, behind the error."""
        body = b"\x00" + compact(self._id.encode()) + self._identity
        body += struct.pack(">b", is_committed) + b"\x00"
        return Frame(frame(header(END_TXN, 5) + body), 9)

    def take_pair(self, reply: bytes) -> None:
        """Go on with what `end_and_bump` was answered."""
        self.producer_id, self.epoch = struct.unpack_from(">qh", reply, 11)
