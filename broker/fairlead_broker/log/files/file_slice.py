"""A piece of a segment file that waits to be sent, without its bytes in memory.

The two-descriptor rule: a segment writes through one descriptor, at positions it tracks itself,
and hands out another, read-only one. Sending may move the file position of the descriptor it is
given (asyncio's sendfile does); on the writer's descriptor that would overwrite the log.

A slice may outlive its segment: retention renames and unlinks files while a slow reader still
takes bytes from them. So the descriptor belongs to a `SegmentFile`, which closes it when the last
slice and the segment have let go of it, and never earlier.
"""

from dataclasses import dataclass

from fairlead_broker.disk import Disk


class OpenFile:
    """A descriptor that is closed with the last reference to it, and so is never reused early."""

    __slots__ = ("_disk", "fd")

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self.fd = fd

    def __del__(self) -> None:
        self._disk.close(self.fd)


class SegmentFile:
    """The read-only side of a segment's `.log` file; `path` is where it was when it was opened."""

    __slots__ = ("_disk", "path", "read_fd")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.read_fd = -1
        self.read_fd = disk.open_read(path)

    def __del__(self) -> None:
        if self.read_fd >= 0:
            self._disk.close(self.read_fd)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """`length` bytes of whole record batches from `position` of a segment file."""

    file: SegmentFile
    position: int
    length: int

    def __len__(self) -> int:
        return self.length
