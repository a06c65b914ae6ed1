"""Reads of one partition, in steps, until there are enough records or the deadline is over.

A read answers by its deadline with the records that exist. Each step is one Kafka fetch. A read
skips offsets that no client sees (aborted records, markers, records that compaction has removed).
So they do not end the reader's next wait, and a read without records may advance its offset, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.limits import REST_LEADER_ANSWER_MS, REST_READ_HOP_MS
from fairlead_broker.net.read_ahead import SliceLostError
from fairlead_broker.rest.offset_lookup import EARLIEST, LATEST
from fairlead_broker.rest.problems import KAFKA_ERROR, KAFKA_REFUSED, ProblemError, raise_code
from fairlead_broker.rest.records.fetching import Position, fetch_request, partition_data
from fairlead_broker.rest.topic_reading import find_offset
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from fairlead_broker.rest.records.rendering import RecordShape, Rendered, RenderedRecord
    from fairlead_broker.rest.request import RestRequest
    from fairlead_wire.messages.fetch import FetchRequest, FetchResponse, PartitionData

_LEADER_ANSWER_S = REST_LEADER_ANSWER_MS / 1000
_HOP_S = REST_READ_HOP_MS / 1000


class PartitionReader:
    """Reads a partition from an offset on; `offset` is where the next read begins."""

    def __init__(
        self, request: RestRequest, shape: RecordShape, *, offset: int, isolation_level: int
    ) -> None:
        self.offset = offset
        self._request = request
        self._kafka = request.kafka
        self._fetches = request.kafka.host.fetches
        self._metrics = request.broker.metrics.rest
        self._shape = shape
        self._isolation_level = isolation_level
        self._loop = asyncio.get_running_loop()

    async def read(
        self,
        deadline_s: float,
        *,
        min_bytes: int,
        bytes_max: int,
        held: ExitStack | None = None,
    ) -> list[RenderedRecord]:
        """Return records as JSON, an empty list if there are none until `deadline_s`.

        Their memory is counted until the answer is written, or until `held` is closed.
        ProblemError if the offset is not in the log, or while the client exceeds its fetch quota.
        KafkaError if the partition's leader cannot be reached.
        """
        quotas = self._kafka.quotas
        if quotas is not None:
            quotas.admit_read()
            bytes_max = quotas.bound_read(bytes_max)
        until_s = max(deadline_s, self._loop.time() + _LEADER_ANSWER_S)
        found: list[RenderedRecord] = []
        size = 0
        while True:
            data = await self._fetch(deadline_s, 0 if found else min_bytes, until_s)
            if not data.records:
                break
            rendered = await self._render(data, bytes_max - size, one_at_least=not found)
            try:
                self._request.hold(rendered.size, held)
            except ProblemError:
                if found:
                    break
                raise
            self.offset = rendered.next_offset
            found += rendered.records
            size += rendered.size
            if rendered.is_full or self._loop.time() >= until_s:
                break
        self._metrics.records_out += len(found)
        if quotas is not None:
            quotas.charge_read(size)
        return found

    async def _fetch(self, deadline_s: float, min_bytes: int, until_s: float) -> PartitionData:
        """Return records once there are `min_bytes` of them; with 0, those that exist now."""
        data = await self._ask(until_s, max_wait_s=0.0, min_bytes=0)
        if not data.error_code and len(data.records or b"") < min_bytes:
            later = await self._wait(deadline_s, min_bytes)
            # The client's rights may have changed since the wait began.
            self._kafka.require(Operation.READ, ResourceType.TOPIC, self._shape.topic)
            if later is not None and (later.records or later.error_code):
                data = later
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await self._out_of_range()
        raise_code(data.error_code)
        return data

    async def _wait(self, deadline_s: float, min_bytes: int) -> PartitionData | None:
        """Wait for records, as a Kafka client's fetch does; None if none came."""
        left_s = deadline_s - self._loop.time()
        if left_s <= 0:
            return None
        asked = self._ask(deadline_s, max_wait_s=left_s, min_bytes=min_bytes)
        try:
            return await self._fetches.wait(asked, deadline_s + _HOP_S)
        except KafkaError as error:
            if error.code != ErrorCode.LEADER_NOT_AVAILABLE:
                raise
            # The leader had answered before the wait began, and had no records.
            return None

    async def _ask(self, deadline_s: float, *, max_wait_s: float, min_bytes: int) -> PartitionData:
        shape = self._shape
        position = Position(shape.topic, shape.partition, self.offset, self._isolation_level)

        def build(left_ms: int) -> FetchRequest:
            max_wait_ms = left_ms if max_wait_s else 0
            return fetch_request(position, max_wait_ms=max_wait_ms, min_bytes=min_bytes)

        response: FetchResponse = await self._kafka.ask_leader(
            (shape.topic, shape.partition),
            build,
            _code_of,
            deadline_s=deadline_s,
            peers=self._fetches if max_wait_s else None,
        )
        return partition_data(response)

    async def _render(self, data: PartitionData, room: int, *, one_at_least: bool) -> Rendered:
        try:
            rendered = await self._fetches.render(
                data,
                self._shape,
                offset=self.offset,
                bytes_max=room,
                one_at_least=one_at_least,
            )
            if rendered.next_offset == self.offset and not rendered.is_full:
                raise RemoteProtocolError("a batch is cut off")
        except (OSError, SliceLostError, RemoteProtocolError) as error:
            where = f"{self._shape.topic}-{self._shape.partition}, offset {self.offset}"
            message = f"the records of {where} cannot be read: {error}"
            raise ProblemError(500, message, code=KAFKA_ERROR) from error
        return rendered

    async def _out_of_range(self) -> ProblemError:
        topic, partition = self._shape.topic, self._shape.partition
        start = await find_offset(self._request, topic, partition, EARLIEST)
        end = await find_offset(self._request, topic, partition, LATEST, self._isolation_level)
        return ProblemError(
            400,
            f"offset {self.offset} is not in the log, which has those from {start} to {end}",
            code=KAFKA_REFUSED,
            members={"log_start_offset": start, "log_end_offset": end},
        )


def _code_of(response: FetchResponse) -> int:
    return partition_data(response).error_code
