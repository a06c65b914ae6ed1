"""A disk that counts the bytes that are read from it."""

from __future__ import annotations

from fairlead_broker.disk import RealDisk


class CountingDisk(RealDisk):
    """Counts the bytes that are read."""

    read_bytes = 0

    def pread(self, fd: int, size: int, position: int, /) -> bytes:
        content = super().pread(fd, size, position)
        self.read_bytes += len(content)
        return content
