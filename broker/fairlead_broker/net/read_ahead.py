"""Keeps cold file reads off the event loop.

`sendfile` on pages that aren't cached blocks the whole loop on the disk, non-blocking socket or
not. So the page cache is asked first, without waiting; what isn't there is read by a thread, which
fills the page cache, and sent afterwards.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.limits import READ_AHEAD_THREADS
from fairlead_broker.net.page_cache import PageCache

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_CHUNK_BYTES: Final = 256 * 1024


class OpenSegment(Protocol):
    """Keeps `read_fd` open for as long as it is referred to."""

    @property
    def read_fd(self) -> int: ...
    @property
    def path(self) -> str:
        """Name of the file, for errors."""
        ...


class Slice(Protocol):
    """A range of a segment file: the broker's `FileSlice`."""

    @property
    def file(self) -> OpenSegment: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...


class SliceLostError(Exception):
    """A segment holds less than a reply has promised: the connection can't go on."""


class ReadAhead:
    """Asks what the page cache holds, and fills it in a bounded pool of threads.

    At most one job for each connection is in flight, each of at most READ_AHEAD_BYTES.
    """

    __slots__ = ("_loop", "_on_unreadable", "_page_cache", "_pool", "bytes_count", "jobs_count")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_unreadable: Callable[[str, OSError], None] = lambda path, error: None,
    ) -> None:
        """`on_unreadable` is told, on the loop, of a file that the disk does not read."""
        self._loop = loop
        self._on_unreadable = on_unreadable
        self._pool: ThreadPoolExecutor | None = None
        self._page_cache = PageCache()
        self.jobs_count = 0
        """Reads that would have waited for the disk, since the start: page-cache misses."""
        self.bytes_count = 0

    def read_if_cached(self, file_slice: Slice, buffer: memoryview) -> bool:
        """Fill `buffer` with the whole of a small slice; False where that would wait for disk."""
        fd = file_slice.file.read_fd
        position = file_slice.position
        length = len(buffer)
        if self._page_cache.read(fd, [buffer], length, position):
            return True
        if not self._page_cache.holds(fd, position, length):
            return False
        read_exactly(fd, buffer, position)
        return True

    def is_cached(self, fd: int, position: int, length: int) -> bool:
        """Tell whether sending this range (not an empty one) will not wait for the disk."""
        return self._page_cache.holds(fd, position, length)

    def start(
        self,
        file_slice: Slice,
        position: int,
        length: int,
        done: Callable[[BaseException | None], None],
    ) -> None:
        """Read a range in a thread, then call `done` on the loop with the error, if any."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(READ_AHEAD_THREADS, "read-ahead")
        self.jobs_count += 1
        self.bytes_count += length

        def finished(future: Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(tell, error)

        def tell(error: BaseException | None) -> None:
            if isinstance(error, OSError):
                self._on_unreadable(file_slice.file.path, error)
            done(error)

        # The slice goes along, so that its descriptor stays open while the thread reads.
        self._pool.submit(_bring_in, file_slice, position, length).add_done_callback(finished)

    def close(self) -> None:
        """Let running jobs end; those that wait never start."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def read_exactly(fd: int, buffer: memoryview, position: int) -> None:
    """Fill `buffer` from the file, waiting for the disk if need be."""
    filled = 0
    while filled < len(buffer):
        count = os.preadv(fd, [buffer[filled:]], position + filled)
        if count == 0:
            raise SliceLostError(f"the file ends {len(buffer) - filled} bytes early")
        filled += count


def _bring_in(file_slice: Slice, position: int, length: int) -> None:
    scratch = memoryview(bytearray(min(length, _CHUNK_BYTES)))
    fd = file_slice.file.read_fd
    end = position + length
    while position < end:
        count = os.preadv(fd, [scratch[: end - position]], position)
        if count == 0:
            return
        position += count
