"""`POST …/topics/{topic}/records`: one record, or a stream of records, with a report for each.

The status is 200 once there is a first record. Its report gives the outcome of each record, in the
order of the records. Records that arrive together are written together. Data that is not JSON ends
the stream with one more report, because it is unknown where the next record would begin.
"""

from __future__ import annotations

import asyncio
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import (
    FRAME_DEADLINE_S,
    FRAME_RATE_MIN_BYTES_PER_S,
    REST_BATCH_BYTES_MAX,
    REST_BATCH_RECORDS_MAX,
    REST_JSON_DEPTH_MAX,
    REST_RECORD_BYTES_MAX,
    REST_RECORD_TOKENS_MAX,
    REST_REQUEST_TIMEOUT_MS,
    REST_STREAM_IDLE_S,
)
from fairlead_broker.rest.documents.json_frames import STEP_BYTES, OversizedError, StreamFrames
from fairlead_broker.rest.documents.json_text import (
    SMALL_BYTES,
    JsonError,
    dump_json,
    load_json,
)
from fairlead_broker.rest.documents.schemas import INT, OFFSET, TEXT, TEXT_OR_NULL, object_of
from fairlead_broker.rest.http_quotas import TOO_MUCH, throttle_text
from fairlead_broker.rest.operations import INT32_MAX, JSON, Answer, Body, Operation
from fairlead_broker.rest.problems import ProblemError, shown
from fairlead_broker.rest.producing import Producer, Refused, Written, require_topic
from fairlead_broker.rest.records.embedding import EmbeddingError, format_timestamp, read_v3_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from fairlead_broker.rest.operations import Schema
    from fairlead_broker.rest.records.embedding import EmbeddedRecord
    from fairlead_broker.rest.request import RestRequest

OK: Final = 200
_REPORTS_KEPT_BYTES: Final = 256 * 1024


class _Reports:
    """Reports to the client: one answer if the whole request arrives at once, else a stream."""

    def __init__(self, request: RestRequest) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None
        self._unsent = bytearray()
        self.has_any = False

    def add(self, report: dict[str, Any]) -> None:
        self.has_any = True
        self._unsent += dump_json(report)
        self._unsent += b"\n"

    async def send(self) -> None:
        """Send the reports so far; from here on the answer is a stream."""
        if not self._unsent:
            return
        if self._response is None:
            self._response = await self._request.open_stream(JSON)
        data, self._unsent = bytes(self._unsent), bytearray()
        await self._request.write(self._response, data)

    async def send_if_many(self) -> None:
        """Send the reports so far if they are too many for one answer."""
        if self._response is not None or len(self._unsent) > _REPORTS_KEPT_BYTES:
            await self.send()

    async def finish(self) -> web.StreamResponse:
        """Return the answer."""
        if self._response is None:
            return self._request.encoded(bytes(self._unsent))
        await self.send()
        return self._response


class _RecordStream:
    """The records of one request."""

    def __init__(self, request: RestRequest, topic: str) -> None:
        self._request = request
        self._topic = topic
        self._cluster_id = request.broker.cluster_id
        self._producer = Producer(request.kafka, topic, request.slices)
        self._frames = StreamFrames(
            bytes_max=REST_RECORD_BYTES_MAX,
            tokens_max=REST_RECORD_TOKENS_MAX,
            depth_max=REST_JSON_DEPTH_MAX,
        )
        self._reports = _Reports(request)
        self._waiting: list[EmbeddedRecord | EmbeddingError] = []
        self._waiting_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        """When the incomplete record began to arrive, without the time of this broker's writes."""

    async def run(self) -> web.StreamResponse:
        """Take records until the body ends."""
        try:
            await self._take_all()
        except JsonError as error:
            status = 413 if isinstance(error, OversizedError) else 400
            await self._end(ProblemError(status, f"the body is no JSON of use: {error}"))
        except ProblemError as error:
            await self._end(error)
        return await self._reports.finish()

    async def _take_all(self) -> None:
        request = self._request
        content = request.http.content
        async for chunk in request.body.chunks(deadline_s=self._deadline_s):
            for piece in chunk:
                await self._take(piece)
            await self._write()
            if content.at_eof():
                await self._reports.send_if_many()
            else:
                await self._reports.send()
            if request.stopping.is_set():
                raise ProblemError(503, "this broker is stopping")
        self._frames.finish()
        if not self._reports.has_any:
            raise ProblemError(422, "the body has no record")

    def _deadline_s(self) -> float:
        """Return the deadline of the next part: a large incomplete record is kept in memory."""
        partial_bytes = self._frames.partial_bytes
        if partial_bytes <= STEP_BYTES:
            # The client may have flushed only a part of its buffer, and may send the rest later.
            return self._loop.time() + REST_STREAM_IDLE_S
        return self._began_s + FRAME_DEADLINE_S + partial_bytes / FRAME_RATE_MIN_BYTES_PER_S

    async def _take(self, piece: bytes) -> None:
        await self._request.slices.rest()
        found: list[bytes] = []
        if not self._frames.partial_bytes:
            self._began_s = self._loop.time()
        try:
            self._frames.feed(piece, found)
        finally:
            # Records before data that cannot be read are written all the same.
            for frame in found:
                self._waiting.append(await self._read(frame))
                self._waiting_bytes += len(frame)
        if found:
            self._began_s = self._loop.time()
        self._request.body.keep(self._frames.partial_bytes + self._waiting_bytes)
        if (
            len(self._waiting) >= REST_BATCH_RECORDS_MAX
            or self._waiting_bytes >= REST_BATCH_BYTES_MAX
        ):
            await self._write()

    async def _read(self, frame: bytes) -> EmbeddedRecord | EmbeddingError:
        try:
            if len(frame) > SMALL_BYTES:
                return await self._request.slices.aside(_read_large, frame)
            return read_v3_record(load_json(frame))
        except JsonError as error:
            return EmbeddingError(f"the record is no JSON of use: {error}", 400)
        except EmbeddingError as error:
            return error

    async def _write(self) -> None:
        """Write the records that wait, and report on them."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return
        records = [each for each in waiting if not isinstance(each, EmbeddingError)]
        now_s = self._loop.time()
        deadline_s = now_s + REST_REQUEST_TIMEOUT_MS / 1000
        outcomes: Iterator[Written | Refused] | None = self._hold_back(records)
        if outcomes is None:
            outcomes = iter(await self._producer.write(records, deadline_s))
        self._began_s += self._loop.time() - now_s
        self._request.body.keep_at_most(self._frames.partial_bytes)
        for each in waiting:
            if isinstance(each, EmbeddingError):
                self._reports.add(_refusal(each.code, each.message))
                continue
            outcome = next(outcomes)
            if isinstance(outcome, Refused):
                self._reports.add(_refusal(outcome.code, outcome.message))
            else:
                self._reports.add(self._report(each, outcome))
        await self._request.slices.rest()

    def _hold_back(self, records: list[EmbeddedRecord]) -> Iterator[Written | Refused] | None:
        """Return refusals for the records while a quota is used up; None if none is."""
        quotas = self._request.kafka.quotas
        throttle_ms = 0 if quotas is None else quotas.produce_throttle_ms()
        if quotas is None or not throttle_ms:
            return None
        quotas.note("produce", throttle_ms)
        return repeat(Refused(TOO_MUCH, throttle_text(throttle_ms)), len(records))

    def _report(self, record: EmbeddedRecord, written: Written) -> dict[str, Any]:
        return {"error_code": OK, **place_of(record, written, self._cluster_id, self._topic)}

    async def _end(self, problem: ProblemError) -> None:
        """End the stream with a report; raise the problem if there is no report yet."""
        await self._write()
        if not self._reports.has_any:
            problem.closes = True
            raise problem
        self._reports.add(_refusal(problem.code, problem.message))
        self._request.http.protocol.keep_alive(False)


def _read_large(frame: bytes) -> EmbeddedRecord:
    return read_v3_record(load_json(frame), is_large=True)


def place_of(
    record: EmbeddedRecord, written: Written, cluster_id: str, topic: str
) -> dict[str, Any]:
    """Return the members of a report on a record that was written."""
    return {
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": written.partition,
        "offset": written.offset,
        "timestamp": format_timestamp(written.timestamp),
        "key": _size(record.key_type, record.key),
        "value": _size(record.value_type, record.value),
    }


def _size(data_type: str | None, data: bytes | None) -> dict[str, Any] | None:
    return None if data_type is None else {"type": data_type, "size": len(data or b"")}


def _refusal(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": shown(message)}


async def produce_records(request: RestRequest) -> web.StreamResponse:
    """Write records to a topic."""
    topic = request.path["topic_name"]
    request.body_type()
    require_topic(request.kafka, topic)
    return await _RecordStream(request, topic).run()


_DATA: Schema = {
    "anyOf": [
        {"type": "null"},
        object_of({"type": {"const": "JSON"}}, {"data": {}}),
        object_of({"type": {"const": "STRING"}}, {"data": TEXT_OR_NULL}),
        object_of(
            {"type": {"const": "BINARY"}},
            {"data": {"type": ["string", "null"], "contentEncoding": "base64"}},
        ),
    ]
}
RECORD: Schema = object_of(
    optional={
        "partition_id": {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX},
        "headers": {
            "type": ["array", "null"],
            "items": object_of(
                {"name": TEXT},
                {"value": {"type": ["string", "null"], "contentEncoding": "base64"}},
            ),
        },
        "key": _DATA,
        "value": _DATA,
        "timestamp": {"type": ["string", "integer", "null"], "minimum": 0},
    }
)
_PART: Schema = {"anyOf": [{"type": "null"}, object_of({"type": TEXT, "size": INT})]}
PLACE: Final = {
    "cluster_id": TEXT,
    "topic_name": TEXT,
    "partition_id": INT,
    "offset": OFFSET,
    "timestamp": TEXT,
    "key": _PART,
    "value": _PART,
}
REPORT: Schema = {
    "anyOf": [
        object_of({"error_code": {"const": OK}, **PLACE}),
        object_of({"error_code": INT, "message": TEXT}),
    ]
}

OPERATIONS = (
    Operation(
        "produceRecords",
        "POST",
        "/v3/clusters/{cluster_id}/topics/{topic_name}/records",
        "Write a record, or a stream of records one after the other, to a topic. There is a report "
        "for each, in their order; the status is 200 whatever became of them.",
        produce_records,
        {200: Answer("A report on each record, one after the other.", REPORT)},
        body=Body(
            {JSON: RECORD},
            example={"key": {"type": "STRING", "data": "a"}, "value": {"type": "JSON", "data": 1}},
        ),
        is_stream=True,
    ),
)
