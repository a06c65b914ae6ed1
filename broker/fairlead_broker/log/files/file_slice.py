"""A piece of a segment file that waits to be sent, without its bytes in memory.

The two-descriptor rule: a segment writes through one descriptor, at positions that it tracks
itself, and gives a read-only one to senders. Sending may move the descriptor's file position
(asyncio's sendfile does); with the writer's descriptor that would overwrite the log.

A slice may outlive its segment: retention renames and unlinks files while a slow reader still
reads them. So the descriptor belongs to a `SegmentFile`, which closes it when neither the segment
nor any slice refers to it any more, and never earlier.
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
    """The read-only descriptor of a segment's `.log` file, and its path when it was opened."""

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
