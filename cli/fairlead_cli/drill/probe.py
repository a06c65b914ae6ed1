"""Finds the first new acknowledgement after a fault: a small idempotent producer for one partition.

It sends one record at a time with acks=all, gives up on a request after 250 ms, tries again every
20 ms, and sends the same record with the same sequence number until a broker has acknowledged it.
So its own records can be judged like all others: each exactly once and in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.access import is_tls
from fairlead_cli.drill.history import encode_value
from fairlead_cli.drill.wire_connection import WireConnection, WireErrors
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fairlead_wire.records import Record, encode_batch

if TYPE_CHECKING:
    from fairlead_cli.drill.history import KeyHistory
    from fairlead_cli.drill.watch import ClusterWatch

PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4
RETRY_INTERVAL_S = 0.02
REQUEST_TIMEOUT_S = 0.25
# With TLS and a login, both sides compute, for all probes at once. With the short time-out of
# requests, no connection would ever be completed on a busy machine.
LOGIN_TIMEOUT_S = 1.0
PRODUCER_ID_TIMEOUT_S = 2.0
ACKS_ALL = -1
VALUE_BYTES = 64
SEQUENCES = 1 << 31
TRANSACTION_TIMEOUT_MS = 60_000
TIMED_OUT = "no answer in time"
NOT_CONNECTED = "no connection"
CODE_NAMES = {int(code): code.name for code in ErrorCode}
# After these errors the same sequence number can never be accepted: a record has been lost.
FATAL = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class Answer(NamedTuple):
    """One acknowledged attempt: when it began, and when its answer came (monotonic seconds)."""

    begun: float
    ended: float
    earlier_begun: float | None = None
    """When the first attempt for this record began, if this attempt is not the first."""

    @property
    def first_begun(self) -> float:
        """When the record was sent for the first time."""
        return self.begun if self.earlier_begun is None else self.earlier_begun


class ProducerIdentity(NamedTuple):
    """A producer id; the probes of a drill share it, and each has its own partition."""

    producer_id: int
    producer_epoch: int


async def ask_producer_id(watch: ClusterWatch, timeout_s: float) -> ProducerIdentity:
    """Ask all brokers, and return the first answer; TimeoutError if none answers."""
    async with asyncio.timeout(timeout_s):
        while True:
            for host, port in watch.addresses:
                with suppress(*WireErrors):
                    identity = await ask_broker_for_producer_id(host, port)
                    if identity is not None:
                        return identity
            await asyncio.sleep(RETRY_INTERVAL_S)


async def ask_broker_for_producer_id(host: str, port: int) -> ProducerIdentity | None:
    """Return a producer id; None if the broker has none at present."""
    async with asyncio.timeout(PRODUCER_ID_TIMEOUT_S):
        connection = await WireConnection.open(host, port)
        try:
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
            reply = await connection.call(request, INIT_PRODUCER_ID_VERSION)
        finally:
            connection.close()
    return None if reply.error_code else ProducerIdentity(reply.producer_id, reply.producer_epoch)


@dataclass
class PartitionProbe:
    """Runs until cancelled. The measuring code empties `answers`."""

    watch: ClusterWatch
    partition: int
    identity: ProducerIdentity
    history: KeyHistory
    answers: list[Answer] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    fatal: str | None = None
    _first_begun: float | None = None
    """When the present record was sent first."""
    _connection: WireConnection | None = None
    _address: tuple[str, int] | None = None

    async def run(self) -> None:
        """Send, with retries every 20 ms."""
        loop = asyncio.get_running_loop()
        try:
            while self.fatal is None:
                begun = loop.time()
                await self._deliver_once()
                await asyncio.sleep(max(0.0, begun + RETRY_INTERVAL_S - loop.time()))
        finally:
            self._drop_connection()

    async def _deliver_once(self) -> None:
        """Try once to get the next or the present record acknowledged."""
        history = self.history
        if not history.offsets or history.is_acknowledged(history.next_sequence - 1):
            history.note_sent()
        sequence = history.next_sequence - 1
        begun = time.monotonic()
        if self._first_begun is None:
            self._first_begun = begun
        try:
            connection = await self._connect()
            if connection is None:
                self.refusals[ErrorCode.LEADER_NOT_AVAILABLE.name] += 1
                return
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                code, offset = await self._produce(connection, sequence)
        except TimeoutError:
            self._refuse(TIMED_OUT)
            return
        except WireErrors:
            self._refuse(NOT_CONNECTED)
            return
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            history.note_acknowledged(sequence, offset)
            self.answers.append(Answer(begun, time.monotonic(), self._first_begun))
            self._first_begun = None
        elif code in FATAL:
            self.fatal = f"partition {self.partition}: {CODE_NAMES.get(code, code)}"
        else:
            self.refusals[CODE_NAMES.get(code, str(code))] += 1

    async def _connect(self) -> WireConnection | None:
        """Return the connection to the leader; None if there is no leader."""
        address = self.watch.leader_address(self.partition)
        if address is None:
            return None
        if address != self._address:
            self._drop_connection()
        if self._connection is None:
            async with asyncio.timeout(LOGIN_TIMEOUT_S if is_tls() else REQUEST_TIMEOUT_S):
                self._connection = await WireConnection.open(*address)
            self._address = address
        return self._connection

    async def _produce(self, connection: WireConnection, sequence: int) -> tuple[int, int]:
        record = Record(
            0,
            int(time.time() * 1000),
            self.history.key.encode(),
            encode_value(self.history.key, sequence, VALUE_BYTES),
        )
        batch = encode_batch(
            [record],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence % SEQUENCES,
        )
        data = [PartitionProduceData(index=self.partition, records=batch)]
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS_ALL,
            timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=self.watch.topic, partition_data=data)],
        )
        reply = await connection.call(request, PRODUCE_VERSION)
        answer = reply.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def _refuse(self, reason: str) -> None:
        self.refusals[reason] += 1
        self._drop_connection()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._address = None


def first_answer_after(answers: list[Answer], moment: float) -> float | None:
    """Return the seconds from a moment to the first answer to an attempt that began after it."""
    ended = [answer.ended for answer in answers if answer.begun >= moment]
    return min(ended) - moment if ended else None


class Gap(NamedTuple):
    """A time without any answer, in seconds; the longest sorts last."""

    length: float
    began: float


def longest_gap_after(answers: list[Answer], moment: float, now: float) -> Gap:
    """Return the longest gap from the last answer before a moment until now."""
    times = sorted(answer.ended for answer in answers)
    before = [at for at in times if at <= moment]
    marks = [before[-1] if before else moment, *(at for at in times if at > moment), now]
    return max(Gap(later - earlier, earlier) for earlier, later in pairwise(marks))
