"""What of a file can be read without waiting for a disk: the kernel is asked, and reads nothing.

`cachestat` (Linux 6.5) counts the pages of a range that are in memory, for 1 to 3 µs a MiB. It
counts those that are still being read from the disk as well, and knows nothing of the files behind
an overlay. `mincore` knows both, on any kernel and for any file system that uses the page cache,
but costs 10 µs and 16 a MiB more: it needs a mapping, and looks at page by page. So the former
answers where it has found everything and the last byte can be had. Where not, and where it is
missing or forbidden (by the seccomp profile of an older container runtime), the latter decides.

A read without waiting (`preadv2` with RWF_NOWAIT) is no such question alone: it tells of one page,
starts to read where that is missing, and EAGAIN is no proof that it is missing. Some file
systems refuse it: overlayfs, tmpfs, and such as keep their cache elsewhere than in the page cache
(ZFS). Their devices are remembered; there, the end of a file counts as held besides.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
from typing import Any, Final

from fairlead_broker.limits import MIB

_TAIL_BYTES: Final = 64 * MIB
_CACHESTAT: Final = 451
"""The same number on all these."""
_CACHESTAT_MACHINES: Final = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x")
_NO_ACCESS: Final = 0
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_IN_MEMORY: Final = bytes(range(1, 256, 2))
"""What `mincore` may say of a page that is there: bit 0 counts, the others are reserved."""

# Calls that neither sleep nor take long keep the interpreter's lock.
_LIBC: Final = ctypes.PyDLL(None, use_errno=True)
_mmap = _LIBC.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_munmap = _LIBC.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_mincore = _LIBC.mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class PageCache:
    """Asks the kernel about ranges of open files. Of one thread: calls share their memory."""

    __slots__ = ("_count", "_counts", "_last_byte", "_range", "_refusing_devices")

    def __init__(self) -> None:
        self._last_byte = [bytearray(1)]
        self._range = (ctypes.c_uint64 * 2)()
        # Cached, dirty, in write-back, evicted, recently evicted.
        self._count = (ctypes.c_uint64 * 5)()
        has_it = platform.machine() in _CACHESTAT_MACHINES
        self._counts = _LIBC.syscall if has_it else None
        self._refusing_devices: set[int] = set()

    def read(self, fd: int, buffers: list[Any], length: int, position: int) -> bool:
        """Fill buffers of `length` bytes; False if that would wait, or it is unknown."""
        if self._is_on_refusing_device(fd):
            return False
        try:
            return os.preadv(fd, buffers, position, os.RWF_NOWAIT) == length
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            self._refusing_devices.add(os.fstat(fd).st_dev)
            return False

    def holds(self, fd: int, position: int, length: int) -> bool:
        """Tell whether `length` (not 0) bytes from `position` can be read without waiting.

        A yes may be wrong for pages in the middle that are being read from the disk just now.
        Reads go forward, so the end of a range comes last, and the end is looked at.
        """
        if self._has_all(fd, position, length) and self.read(
            fd, self._last_byte, 1, position + length - 1
        ):
            return True
        return _is_up_to_date(fd, position, length) or (
            self._is_on_refusing_device(fd) and _is_tail(fd, position, length)
        )

    def _has_all(self, fd: int, position: int, length: int) -> bool:
        """Tell whether `cachestat` finds as many pages as the range has."""
        if self._counts is None:
            return False
        self._range[0] = position
        self._range[1] = length
        if self._counts(_CACHESTAT, fd, self._range, self._count, 0):
            if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
                self._counts = None
            return False
        first = position // mmap.PAGESIZE
        last = (position + length - 1) // mmap.PAGESIZE
        return self._count[0] == last + 1 - first

    def _is_on_refusing_device(self, fd: int) -> bool:
        refusing = self._refusing_devices
        return bool(refusing) and os.fstat(fd).st_dev in refusing


def _is_tail(fd: int, position: int, length: int) -> bool:
    return position + length + _TAIL_BYTES >= os.fstat(fd).st_size


def _is_up_to_date(fd: int, position: int, length: int) -> bool:
    """Tell whether `mincore` finds each page of a range, in a mapping that nobody ever reads from.

    Such a mapping has no page of its own: a file that is cut short meanwhile does no harm.
    """
    start = position - position % mmap.PAGESIZE
    length += position - start
    address = _mmap(None, length, _NO_ACCESS, mmap.MAP_SHARED, fd, start)
    if address == _MAP_FAILED:
        return False
    try:
        pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
        if _mincore(address, length, pages):
            return False
        return not pages.raw.translate(None, _IN_MEMORY)
    finally:
        _munmap(address, length)
