"""One HTTP request as its handler sees it, and the answers that it can give."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from aiohttp import web

from fairlead_broker.limits import (
    KIB,
    REST_DOCUMENT_BYTES_MAX,
    REST_DOCUMENT_COMMAS_MAX,
    REST_GZIP_BYTES_MIN,
    REST_JSON_DEPTH_MAX,
    REST_RECORD_TOKENS_MAX,
    REST_REQUEST_TIMEOUT_MS,
    REST_WRITE_STALL_S,
)
from fairlead_broker.rest.documents.json_frames import ObjectFrames, OversizedError
from fairlead_broker.rest.documents.json_text import (
    SMALL_BYTES,
    JsonError,
    dump_json,
    load_json,
)
from fairlead_broker.rest.documents.schema_validation import first_problem
from fairlead_broker.rest.negotiation import (
    accept_of,
    accepts_gzip,
    media_type_of,
    require_answer,
)
from fairlead_broker.rest.problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import ExitStack

    from fairlead_broker.broker import Broker
    from fairlead_broker.rest.bodies import BodyMemory, BodyReader
    from fairlead_broker.rest.calls import KafkaCalls
    from fairlead_broker.rest.instances.forwarding import Forwarding
    from fairlead_broker.rest.instances.registry import ConsumerInstances
    from fairlead_broker.rest.operations import Body, Handler, Operation
    from fairlead_broker.rest.slices import Slices

_LIST_STEP_BYTES: Final = 64 * KIB
"""Shorter lists are not counted: all connections together have at most some 64 MiB of them."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

RestOperation: TypeAlias = "Operation[RestRequest]"
RestHandler: TypeAlias = "Handler[RestRequest]"


class RestRequest:
    """A request whose operation is known. `deadline_s` is a time on the loop's clock."""

    def __init__(
        self,
        http: web.BaseRequest,
        operation: RestOperation,
        *,
        path: Mapping[str, Any],
        query: Mapping[str, Any],
        kafka: KafkaCalls,
        body: BodyReader,
        base_url: str,
        stopping: asyncio.Event,
        memory: BodyMemory,
        slices: Slices,
        held: ExitStack,
        decorate: Callable[[web.StreamResponse], None],
        instances: ConsumerInstances,
        forwarding: Forwarding,
    ) -> None:
        self.http = http
        self.slices = slices
        self.operation = operation
        self.path = path
        self.query = query
        self.kafka = kafka
        self.body = body
        self.base_url = base_url
        """`http://host:port` for links in answers; never taken from the Host of the request."""
        self.stopping = stopping
        """Set when this broker stops: reads that wait then answer with the records they have."""
        self.instances = instances
        """The consumer instances of this broker; `forwarding` reaches those of other brokers."""
        self.forwarding = forwarding
        self._memory = memory
        self._held = held
        self._decorate = decorate
        self.deadline_s = 0.0
        self.begin_time()
        self.answer_type = ""
        self.document_bytes = 0
        """Size of the body that `document` has read."""
        self.has_begun = False
        """True if the head of a streamed answer has been sent: no other answer is possible."""

    @property
    def broker(self) -> Broker:
        """The broker of this process: the request uses its image of the cluster."""
        return self.kafka.broker

    @property
    def timeout_ms(self) -> int:
        """Milliseconds that are left until the deadline."""
        return max(int((self.deadline_s - asyncio.get_running_loop().time()) * 1000), 0)

    def begin_time(self) -> None:
        """Start the time of the request now: reading the body has its own limit before."""
        self.deadline_s = asyncio.get_running_loop().time() + REST_REQUEST_TIMEOUT_MS / 1000

    def negotiate(self) -> None:
        """Choose the media type of the answer, before anything is done; ProblemError 406."""
        offered = self.operation.media_types
        if offered:
            self.answer_type = require_answer(accept_of(self.http), offered)

    def hold(self, size: int, held: ExitStack | None = None) -> None:
        """Count bytes until the answer is written, or until `held` is closed.

        ProblemError 429 beyond the limit.
        """
        self._memory.reserve(size)
        (self._held if held is None else held).callback(self._memory.release, size)

    def hold_anyway(self, size: int) -> None:
        """Count bytes until the answer is written, even if they exceed the limit."""
        self._memory.count(size)
        self._held.callback(self._memory.release, size)

    def when_answered(self, call: Callable[[], None]) -> None:
        """Have `call` called when the answer is written, or when that has failed."""
        self._held.callback(call)

    def if_unwritten(self, call: Callable[[], None]) -> None:
        """Have `call` called if the answer cannot be written to the client."""

        def on_exit(kind: object, error: BaseException | None, trace: object) -> None:
            if error is not None:
                call()

        self._held.push(on_exit)

    @property
    def _described_body(self) -> Body:
        body = self.operation.body
        if body is None:
            raise RuntimeError(f"{self.operation.name} is described without a body")
        return body

    def body_type(self) -> str:
        """Return the media type of the body; ProblemError 415."""
        schemas = self._described_body.schemas
        return media_type_of(self.http.headers.get("Content-Type"), tuple(schemas))

    async def document(self, code: int | None = None, *, has_records: bool = False) -> Any:
        """Read a body that is one JSON object of its schema; None if there is no body.

        With `has_records` numbers and texts stay as the client has written them: the code that
        makes records of them checks them. Otherwise all texts can be encoded, and whole numbers
        are ints. ProblemError 400, 413, 415 or 422; `code` is the error code of the 422.
        """
        body = self._described_body
        if not self.http.body_exists and not body.is_required:
            return None
        # An empty body needs no type, and whether a chunked body is empty is known only later.
        if body.is_required or "Content-Type" in self.http.headers:
            self.body_type()
        try:
            data = await self._read_object()
            if data is None and not body.is_required:
                return None
            if data is None:
                raise JsonError("the body is to be one object")
            if not has_records and data.count(b",") > REST_DOCUMENT_COMMAS_MAX:
                raise OversizedError(f"it has more than {REST_DOCUMENT_COMMAS_MAX} commas")
            self.document_bytes = len(data)
            document = await self._apart(load_json, data, has_ints=not has_records)
        except JsonError as error:
            raise ProblemError(400, f"the body is no JSON of use: {error}") from error
        schema = body.schemas[self.body_type()]
        if not has_records:
            try:
                is_large = self.document_bytes > SMALL_BYTES
                await self._apart(dump_json, document, is_large=is_large)
            except JsonError as error:
                raise ProblemError(422, str(error), code=code) from error
        problem = await self._apart(first_problem, document, schema)
        if problem is not None:
            where = "".join(f"/{part}" for part in problem.absolute_path) or "the body"
            raise ProblemError(422, f"{where}: {problem.message}", code=code)
        return document

    async def _apart(
        self,
        call: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Return the result of a call on the document, which does not run here if it is large."""
        if self.document_bytes <= SMALL_BYTES:
            return call(*arguments, **named)
        return await self.slices.aside(call, *arguments, **named)

    async def _read_object(self) -> bytes | None:
        """Return the body, which is one object, not parsed yet; None if it is empty."""
        frames = ObjectFrames(
            bytes_max=REST_DOCUMENT_BYTES_MAX,
            tokens_max=REST_RECORD_TOKENS_MAX,
            depth_max=REST_JSON_DEPTH_MAX,
        )
        found: list[bytes] = []
        async for piece in self.body.pieces(bytes_max=REST_DOCUMENT_BYTES_MAX):
            await self.slices.rest()
            frames.feed(piece, found)
        frames.finish()
        if len(found) > 1:
            raise JsonError("the body is to be one object")
        await self.slices.rest()
        return found[0] if found else None

    def answer(
        self, document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Return the answer with a JSON document in it."""
        return self.encoded(dump_json(document), status=status, headers=headers)

    async def answer_items(
        self, head: Mapping[str, Any], name: str, items: Iterable[Any]
    ) -> web.Response:
        """Return `head` with one more member, an array; other requests run in between.

        The memory of a long list is counted until it is written, as for records, so lists that
        clients do not read stay within the limit; ProblemError 429. A list may exceed the limit if
        nothing else is counted.
        """
        parts: list[bytes] = []
        held_bytes = more_bytes = 0
        for item in items:
            parts.append(dump_json(item))
            more_bytes += len(parts[-1])
            if more_bytes >= _LIST_STEP_BYTES:
                hold = self.hold_anyway if self._memory.used_bytes == held_bytes else self.hold
                hold(more_bytes)
                held_bytes, more_bytes = held_bytes + more_bytes, 0
            await self.slices.rest()
        start = dump_json(head)[:-1] + (b"," if head else b"") + dump_json(name)
        return self.encoded(start + b":[" + b",".join(parts) + b"]}")

    def encoded(
        self, data: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> web.Response:
        """Return the answer with a body that is already encoded."""
        response = web.Response(
            status=status,
            body=data,
            headers={"Content-Type": self.answer_type, **(headers or {})},
        )
        self.maybe_compress(response)
        return response

    def maybe_compress(self, response: web.Response) -> None:
        """Compress an answer if it is large enough and the client accepts that."""
        body = response.body
        size = len(body) if isinstance(body, bytes) else 0
        if size >= REST_GZIP_BYTES_MIN and accepts_gzip(self.http.headers.get("Accept-Encoding")):
            response.headers["Vary"] = "Accept-Encoding"
            response.enable_compression(web.ContentCoding.gzip)

    def done(self) -> web.Response:
        """Return the answer without a body: 204."""
        return web.Response(status=204)

    async def open_stream(
        self, content_type: str, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """Send the head of an answer whose body follows piece by piece."""
        response = web.StreamResponse(headers={"Content-Type": content_type, **(headers or {})})
        self._decorate(response)
        self.has_begun = True
        await response.prepare(self.http)
        return response

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        """Write a part of a streamed answer; close the connection if the client reads nothing."""
        try:
            async with asyncio.timeout(REST_WRITE_STALL_S):
                await response.write(data)
        except TimeoutError as error:
            self.abort()
            raise ConnectionResetError("the client takes nothing of its answer") from error

    def abort(self) -> None:
        """Close the connection at once: a partly written answer cannot be completed."""
        if self.http.transport is not None:
            self.http.transport.abort()
