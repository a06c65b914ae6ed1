"""How much of a file is in the kernel's memory, for tests of code that asks the same.

A test that depends on the kernel's eviction of pages must not rely on the code that it tests.
"""

import ctypes
import mmap
import os
import time
from pathlib import Path

from needed_tools import missing

EVICTION_DEADLINE_S = 10.0
POLL_S = 0.01


def count_resident_pages(fd: int, position: int = 0, length: int | None = None) -> int:
    """Return how many pages of a range are in memory; by default of the whole file.

    `position` is the beginning of a page.
    """
    size = os.fstat(fd).st_size - position if length is None else length
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    access = mmap.PROT_READ | mmap.PROT_WRITE
    with mmap.mmap(fd, size, mmap.MAP_PRIVATE, access, offset=position) as mapping:
        start = ctypes.c_char.from_buffer(mapping)
        address = ctypes.c_void_p(ctypes.addressof(start))
        failed = ctypes.CDLL(None).mincore(address, ctypes.c_size_t(size), pages)
        del start  # It would keep the mapping.
    assert not failed, "mincore failed"
    return sum(page & 1 for page in pages)


def evict(fd: int, position: int = 0, length: int | None = None) -> None:
    """Let the kernel evict a range from memory; by default the whole file.

    The test is skipped if the kernel keeps it, as it does for file systems in memory.
    """
    # The kernel keeps pages that are not on the disk yet.
    os.fsync(fd)
    deadline = time.monotonic() + EVICTION_DEADLINE_S
    while True:
        os.posix_fadvise(fd, position, length or 0, os.POSIX_FADV_DONTNEED)
        if not count_resident_pages(fd, position, length):
            return
        if time.monotonic() > deadline:
            missing("the kernel keeps pages that it was told to let go: nothing is cold here")
        time.sleep(POLL_S)


def evict_file(path: Path) -> None:
    """Let the kernel evict a whole file from memory."""
    fd = os.open(path, os.O_RDWR)
    try:
        evict(fd)
    finally:
        os.close(fd)
