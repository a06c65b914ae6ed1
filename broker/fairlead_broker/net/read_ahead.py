"""Keeps cold file reads off the event loop.

`sendfile` on pages that aren't cached blocks the whole loop on the disk, non-blocking socket or
not. So a slice is probed first, without waiting (`RWF_NOWAIT`); what isn't there is read by a
thread, which fills the page cache, and sent afterwards.

Some file systems (overlayfs, tmpfs) refuse the probe. Their devices are remembered; there, the end
of a file counts as cached and everything else goes through a thread.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.limits import (
    MIB,
    PROBE_STRIDE_BYTES,
    READ_AHEAD_THREADS,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_TAIL_BYTES: Final = 64 * MIB
_CHUNK_BYTES: Final = 256 * 1024


class OpenSegment(Protocol):
    """Keeps `read_fd` open for as long as it is referred to."""

    @property
    def read_fd(self) -> int: ...


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
    """Probes the page cache, and fills it in a bounded pool of threads.

    At most one job for each connection is in flight, each of at most READ_AHEAD_BYTES.
    """

    __slots__ = ("_device_refuses_probe", "_loop", "_pool", "_probe", "bytes_count", "jobs_count")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None
        self._device_refuses_probe: set[int] = set()
        self._probe = [bytearray(1)]
        self.jobs_count = 0
        """Reads that would have waited for the disk, since the start: page-cache misses."""
        self.bytes_count = 0

    def read_if_cached(self, file_slice: Slice, buffer: memoryview) -> bool:
        """Fill `buffer` with the whole of a small slice; False where that would wait for disk."""
        fd = file_slice.file.read_fd
        position = file_slice.position
        if self._may_probe(fd):
            try:
                if os.preadv(fd, [buffer], position, os.RWF_NOWAIT) == len(buffer):
                    return True
            except BlockingIOError:
                return False
            except OSError as error:
                self._note_refusal(fd, error)
            else:
                return False
        if not self._is_tail(fd, position, len(buffer)):
            return False
        read_exactly(fd, buffer, position)
        return True

    def is_cached(self, fd: int, position: int, length: int) -> bool:
        """Whether sending this range will most likely not wait for the disk.

        Its ends are asked, and a page every PROBE_STRIDE_BYTES: the kernel reads, and mostly
        drops, long runs. A wrong yes costs one short wait.
        """
        if self._may_probe(fd):
            end = position + length
            try:
                for probe in range(position, end, PROBE_STRIDE_BYTES):
                    os.preadv(fd, self._probe, probe, os.RWF_NOWAIT)
                os.preadv(fd, self._probe, end - 1, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                self._note_refusal(fd, error)
            else:
                return True
        return self._is_tail(fd, position, length)

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
                self._loop.call_soon_threadsafe(done, error)

        # The slice goes along, so that its descriptor stays open while the thread reads.
        self._pool.submit(_bring_in, file_slice, position, length).add_done_callback(finished)

    def close(self) -> None:
        """Let running jobs end; those that wait never start."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _may_probe(self, fd: int) -> bool:
        refusing = self._device_refuses_probe
        return not refusing or os.fstat(fd).st_dev not in refusing

    def _note_refusal(self, fd: int, error: OSError) -> None:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise error
        self._device_refuses_probe.add(os.fstat(fd).st_dev)

    def _is_tail(self, fd: int, position: int, length: int) -> bool:
        return position + length + _TAIL_BYTES >= os.fstat(fd).st_size


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
