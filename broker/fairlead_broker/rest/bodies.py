"""Bodies of requests: bounded in size, in memory and in time, decompressed here.

aiohttp sets no limits for bodies that are read piece by piece, so this module counts: the bytes
that arrived, the decompressed bytes, the memory of all requests together, and the time that the
client takes. The time limit of a body is that of Kafka's frames: half a minute, and a second more
for each quarter of a MiB.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Final

from aiohttp import HttpVersion11, web

from fairlead_broker.limits import (
    FRAME_DEADLINE_S,
    FRAME_RATE_MIN_BYTES_PER_S,
    REST_MEMORY_BYTES,
)
from fairlead_broker.rest.documents.json_frames import STEP_BYTES
from fairlead_broker.rest.problems import RETRY_AFTER, ProblemError, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

_GZIP_WINDOW: Final = 31
_ZLIB_WINDOW: Final = 15
_WINDOWS: Final = {"gzip": _GZIP_WINDOW, "x-gzip": _GZIP_WINDOW, "deflate": _ZLIB_WINDOW}


class BodyMemory:
    """The memory that the bodies of all requests use together."""

    def __init__(self) -> None:
        self.used_bytes = 0

    def reserve(self, size: int) -> None:
        """Count bytes that are kept; ProblemError 429 if they would exceed the limit."""
        if self.used_bytes + size > REST_MEMORY_BYTES:
            raise ProblemError(
                429, "too many bodies are being read; try again", headers=RETRY_AFTER, closes=True
            )
        self.used_bytes += size

    def count(self, size: int) -> None:
        """Count bytes that are in memory already, even if they exceed the limit."""
        self.used_bytes += size

    def release(self, size: int) -> None:
        """Release bytes that were reserved or counted."""
        self.used_bytes -= size


class BodyReader:
    """The body of one request. Call `release` when no part of it is kept any more."""

    def __init__(self, request: web.BaseRequest, memory: BodyMemory, *, bytes_max: int) -> None:
        """With `bytes_max` 0 the body is a stream of any length, and no part of it is kept here."""
        self._request = request
        self._memory = memory
        self._bytes_max = bytes_max
        self._reserved = 0
        self._unpacked_bytes = 0
        self._has_begun = False

    async def read(self, bytes_max: int = 0) -> bytes:
        """Return the whole body; the caller may set a lower limit with `bytes_max`."""
        pieces = [piece async for piece in self.pieces(bytes_max=bytes_max)]
        return b"".join(pieces)

    async def pieces(self, *, bytes_max: int = 0) -> AsyncIterator[bytes]:
        """Yield the body in pieces of at most 16 KiB. ProblemError as from `chunks`."""
        async for chunk in self.chunks(bytes_max=bytes_max):
            for piece in chunk:
                yield piece

    async def chunks(
        self, *, bytes_max: int = 0, deadline_s: Callable[[], float] | None = None
    ) -> AsyncIterator[Iterator[bytes]]:
        """Yield what has arrived, as pieces of at most 16 KiB. The caller must take all pieces.

        `deadline_s` returns the deadline of the next chunk. With it the whole body may take any
        time, and the caller counts what it keeps. Without it the whole body has a deadline, and
        all of it is counted as kept. ProblemError 400, 408, 413, 415 or 429.
        """
        limit = min(bytes_max or self._bytes_max, self._bytes_max or bytes_max)
        packed = self._decompressor()
        length = self._request.content_length
        if limit and length is not None and length > limit:
            raise _too_large(limit)
        await self._begin()
        wire = 0
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            if deadline_s is None:
                until_s = began_s + FRAME_DEADLINE_S + wire / FRAME_RATE_MIN_BYTES_PER_S
            else:
                until_s = deadline_s()
            data = await self._receive(until_s)
            if not data:
                break
            wire += len(data)
            steps = _in_steps(data) if packed is None else packed.unpack(data)
            yield self._counted(steps, limit, is_kept=deadline_s is None)
        if packed is not None and not packed.is_whole:
            raise ProblemError(400, "the compressed body is cut off")

    def _counted(self, steps: Iterator[bytes], limit: int, *, is_kept: bool) -> Iterator[bytes]:
        for piece in steps:
            self._unpacked_bytes += len(piece)
            if limit and self._unpacked_bytes > limit:
                raise _too_large(limit)
            if is_kept:
                self._memory.reserve(len(piece))
                self._reserved += len(piece)
            yield piece

    def keep(self, size: int) -> None:
        """Set how many bytes of a stream are kept now; ProblemError 429."""
        if size > self._reserved:
            self._memory.reserve(size - self._reserved)
            self._reserved = size
        else:
            self.keep_at_most(size)

    def keep_more(self, size: int) -> None:
        """Count bytes that were made from a body, beyond its own bytes; ProblemError 429."""
        if size > 0:
            self._memory.reserve(size)
            self._reserved += size

    def keep_at_most(self, size: int) -> None:
        """Release the memory of a stream beyond `size` bytes."""
        spare = max(self._reserved - size, 0)
        self._memory.release(spare)
        self._reserved -= spare

    def release(self) -> None:
        """Release all of the memory."""
        self._memory.release(self._reserved)
        self._reserved = 0

    async def _begin(self) -> None:
        """Answer `100 Continue` to a client that waits for that before it sends its body."""
        if not self._has_begun:
            self._has_begun = True
            expected = self._request.headers.get("Expect", "").lower()
            # A client of HTTP/1.0 would take an interim response for the final one.
            if expected == "100-continue" and self._request.version >= HttpVersion11:
                await self._request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                # The interim response is not part of the final one.
                self._request.writer.output_size = 0

    async def _receive(self, deadline_s: float) -> bytes:
        try:
            async with asyncio.timeout_at(deadline_s):
                return await self._request.content.readany()
        except TimeoutError as error:
            raise ProblemError(408, "the body did not arrive in time", closes=True) from error
        except web.RequestPayloadError as error:
            raise ProblemError(400, "the body is not framed as its head says", closes=True) from (
                error
            )

    def _decompressor(self) -> _Unpacker | None:
        encoding = self._request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding == "identity":
            return None
        window = _WINDOWS.get(encoding)
        if window is None:
            raise ProblemError(
                415,
                f"Content-Encoding {shown(encoding)} does not fit; it can be gzip or deflate",
                headers={"Accept-Encoding": "gzip, deflate"},
                closes=True,
            )
        return _Unpacker(window)


def require_known_coding(headers: Mapping[str, str]) -> None:
    """Raise ProblemError 501 for a transfer coding besides chunked (RFC 9112, section 6.1).

    aiohttp looks only at the last coding, so it would pass on a body that is still coded.
    """
    coding = headers.get("Transfer-Encoding", "chunked")
    if coding.strip().lower() != "chunked":
        raise ProblemError(
            501,
            f"Transfer-Encoding {shown(coding)} is not known here; it can be chunked. What is "
            "compressed has Content-Encoding",
            closes=True,
        )


class _Unpacker:
    """Decompresses a body. A gzip body may have several members, one after the other."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._member = zlib.decompressobj(window)

    @property
    def is_whole(self) -> bool:
        """Tell whether the body may end here."""
        return self._member.eof

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield decompressed bytes in steps: a small body may decompress to any size.

        A step may be empty, so that a body of many empty members does not take one long step.
        """
        while data or not self._member.eof:
            if self._member.eof:
                if self._window != _GZIP_WINDOW:
                    raise ProblemError(400, "there is something behind the compressed body")
                self._member = zlib.decompressobj(self._window)
            try:
                piece = self._member.decompress(data, STEP_BYTES)
            except zlib.error as error:
                raise ProblemError(400, "the compressed body is damaged") from error
            yield piece
            data = self._member.unused_data or self._member.unconsumed_tail
            if not data and len(piece) < STEP_BYTES:
                return


def _in_steps(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), STEP_BYTES):
        yield data[at : at + STEP_BYTES]


def _too_large(limit: int) -> ProblemError:
    return ProblemError(413, f"the body is larger than {limit} bytes", closes=True)
