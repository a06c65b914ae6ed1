"""A partition followed as server-sent events (WHATWG HTML, section 9.2).

The id of an event is the offset of its record. A client that connects again sends the last id that
it has seen (`Last-Event-ID`), and the stream goes on after it. Browsers do so when a stream ends.
It ends if no leader is found, or if this broker stops. For an error that will not pass, the stream
ends with an event `problem`, and the next request gets its status.
Nothing is read ahead for a slow client: its records stay in the log.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import REST_HEARTBEAT_S, REST_READ_HOP_MS, REST_TAIL_BYTES
from fairlead_broker.rest.documents.json_text import dump_json
from fairlead_broker.rest.operations import EVENT_STREAM, INT64_MAX
from fairlead_broker.rest.problems import ProblemError, problem_of, shown
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from fairlead_broker.rest.reading import PartitionReader
    from fairlead_broker.rest.records.rendering import RenderedRecord
    from fairlead_broker.rest.request import RestRequest

RETRY_MS: Final = 1_000
"""How long a browser waits before it connects again."""
_LAST_EVENT_ID: Final = "Last-Event-ID"
_HEARTBEAT: Final = b":\n\n"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def last_event_offset(headers: Mapping[str, str]) -> int | None:
    """Return the offset after the last event of an earlier stream, None if there was none.

    ProblemError 400 for an id that no stream sends.
    """
    text = headers.get(_LAST_EVENT_ID, "")
    if not text:
        return None
    digits = text.removeprefix("-")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= 19
    if not is_number or not -1 <= int(text) < INT64_MAX:
        raise ProblemError(400, f"{_LAST_EVENT_ID}: {shown(text)} is the id of no event here")
    return int(text) + 1


async def follow(request: RestRequest, reader: PartitionReader) -> web.StreamResponse:
    """Send each record as soon as it is there, until the client or the leader is gone."""
    loop = asyncio.get_running_loop()
    # An error of the first read is an answer with its own status instead of a stream.
    told = reader.offset
    with ExitStack() as held:
        records = await reader.read(loop.time(), min_bytes=0, bytes_max=REST_TAIL_BYTES, held=held)
        response = await request.open_stream(f"{EVENT_STREAM}; charset=utf-8", _HEADERS)
        if request.http.method == "HEAD":
            return response
        # So a client that gets no record before the stream ends also knows where to go on.
        head = b"retry: %d\nid: %d\n\n" % (RETRY_MS, told - 1)
        await request.write(response, head + _events(records))
    while not request.stopping.is_set():
        if await _hold_back(request, response):
            continue
        told = reader.offset
        request.deadline_s = loop.time() + REST_HEARTBEAT_S + REST_READ_HOP_MS / 1000
        with ExitStack() as held:
            try:
                records = await reader.read(
                    loop.time() + REST_HEARTBEAT_S,
                    min_bytes=1,
                    bytes_max=REST_TAIL_BYTES,
                    held=held,
                )
            except KafkaError as error:
                await _end(request, response, problem_of(error))
                break
            except ProblemError as error:
                await _end(request, response, error)
                break
            if records:
                await request.write(response, _events(records))
            elif reader.offset != told:
                await request.write(response, b"id: %d\n\n" % (reader.offset - 1))
            else:
                await request.write(response, _HEARTBEAT)
    return response


async def _hold_back(request: RestRequest, response: web.StreamResponse) -> bool:
    """Wait while the client exceeds its fetch quota, at most one heartbeat; tell whether it did.

    The stream stays open, as a Kafka client's connection does, and its records stay in the log.
    """
    quotas = request.kafka.quotas
    throttle_ms = 0 if quotas is None else quotas.read_throttle_ms()
    if quotas is None or not throttle_ms:
        return False
    wait_s = min(throttle_ms / 1000, REST_HEARTBEAT_S)
    quotas.note("fetch", round(wait_s * 1000))
    request.deadline_s = asyncio.get_running_loop().time() + wait_s + REST_READ_HOP_MS / 1000
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await request.stopping.wait()
    await request.write(response, _HEARTBEAT)
    return True


def _events(records: list[RenderedRecord]) -> bytes:
    return b"".join([b"id: %d\ndata: %b\n\n" % (each.offset, each.data) for each in records])


async def _end(request: RestRequest, response: web.StreamResponse, problem: ProblemError) -> None:
    """Send the problem that ends a stream, unless it is temporary."""
    if problem.status not in (429, 503):
        document = dump_json(problem.document())
        await request.write(response, b"event: problem\ndata: %b\n\n" % document)
