"""The shared cache for sealed segments of all logs: index pages and open files, both bounded.

Sealed indexes are not mapped: if a mapped file is truncated, the process dies, and a cold page
blocks the event loop without a trace. Their files are not kept open either. `pread` reads a page
when a lookup needs it, and the page stays here until 1,024 newer ones have been read. The active
index is in memory and does not use this cache.
"""

from collections import OrderedDict
from typing import Final

from fairlead_broker.disk import Disk
from fairlead_broker.limits import INDEX_PAGES_MAX, SEALED_FILES_OPEN_MAX
from fairlead_broker.log.files.file_slice import SegmentFile

PAGE_ENTRIES: Final = 512
"""Entries of a cached page: 4 KiB of an offset index, 6 KiB of a time index, 17 KiB of aborts."""


class ReadCache:
    """Least recently used index pages and read descriptors of sealed segments."""

    __slots__ = ("_disk", "_files", "_pages")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._pages: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._files: OrderedDict[str, SegmentFile] = OrderedDict()

    def index_page(self, path: str, page: int, entry_size: int) -> bytes:
        """Return the bytes of one page of an index file; shorter at the end of the file."""
        key = (path, page)
        content = self._pages.get(key)
        if content is None:
            fd = self._disk.open_read(path)
            try:
                size = PAGE_ENTRIES * entry_size
                content = self._disk.pread(fd, size, page * size)
            finally:
                self._disk.close(fd)
            self._pages[key] = content
            if len(self._pages) > INDEX_PAGES_MAX:
                self._pages.popitem(last=False)
        else:
            self._pages.move_to_end(key)
        return content

    def segment_file(self, path: str) -> SegmentFile:
        """Return an open read descriptor of a sealed segment."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = SegmentFile(self._disk, path)
            if len(self._files) > SEALED_FILES_OPEN_MAX:
                self._files.popitem(last=False)
        else:
            self._files.move_to_end(path)
        return file

    def forget_file(self, path: str) -> None:
        """Drop a file that is renamed or deleted; slices in flight keep their descriptor."""
        self._files.pop(path, None)

    def forget_directory(self, path: str) -> None:
        """Drop all files and pages of a log that has moved."""
        prefix = path + "/"
        for name in [name for name in self._files if name.startswith(prefix)]:
            del self._files[name]
        for key in [key for key in self._pages if key[0].startswith(prefix)]:
            del self._pages[key]

    def forget_page(self, path: str, page: int) -> None:
        """Drop one page of an index that grows."""
        self._pages.pop((path, page), None)

    def forget_index(self, path: str) -> None:
        """Drop the pages of an index that is rewritten, truncated or deleted."""
        for key in [key for key in self._pages if key[0] == path]:
            del self._pages[key]
