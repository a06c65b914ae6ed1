"""Copies of the segments of a log in another directory, and the jobs, for threads, that make them.

A segment's files only grow, except when the log is truncated, which changes the generation of its
flush state. So the copied part is right as long as the log has the segment object that it is from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.disk import unlink_if_present, write_fully
from fairlead_broker.limits import MOVE_READ_BYTES
from fairlead_broker.log.files.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.disk import Disk
    from fairlead_broker.log.segment import Segment


class Place(NamedTuple):
    """A directory on a disk."""

    disk: Disk
    path: str


class Piece(NamedTuple):
    """A range of a file to copy. If `is_last`, the whole file is made durable."""

    source: str
    target: str
    start: int
    end: int
    is_last: bool = False


@dataclass(slots=True)
class SegmentCopy:
    """How much of each file of a segment is copied."""

    segment: Segment
    copied: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SEGMENT_SUFFIXES, 0))
    is_durable: bool = False
    """The whole segment is copied and durable, and was sealed before that."""

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the segment's files now."""
        segment = self.segment
        return {
            LOG_SUFFIX: segment.size,
            INDEX_SUFFIX: segment.offset_index.size,
            TIME_INDEX_SUFFIX: segment.time_index.size,
            TRANSACTION_INDEX_SUFFIX: segment.transaction_index.size,
        }

    @property
    def missing_bytes(self) -> int:
        """Bytes of records that are not copied yet."""
        return self.segment.size - self.copied[LOG_SUFFIX]

    @property
    def is_outdated(self) -> bool:
        """True if more was copied of a file than it has now.

        If all was copied, also if there is more now: a lookup has built the indexes anew.
        """
        if self.is_durable:
            return self.copied != self.sizes()
        return any(self.copied[suffix] > size for suffix, size in self.sizes().items())

    def paths(self, directory: str) -> list[str]:
        """Return the paths of the segment's files in a directory."""
        stem = f"{directory}/{offset_name(self.segment.base_offset)}"
        return [stem + suffix for suffix in SEGMENT_SUFFIXES]

    def next_piece(self, directory: str, size_max: int) -> Piece:
        """Return the next range of records, of a bounded size."""
        start = self.copied[LOG_SUFFIX]
        end = min(self.segment.size, start + size_max)
        return self._piece(directory, LOG_SUFFIX, end, is_last=False)

    def last_pieces(self, directory: str) -> list[Piece]:
        """Return the missing range of each file. An empty file has to be created, too."""
        return [
            self._piece(directory, suffix, size, is_last=True)
            for suffix, size in self.sizes().items()
            if size or suffix != TRANSACTION_INDEX_SUFFIX
        ]

    def note(self, pieces: Iterable[Piece]) -> None:
        """Note the pieces that a job has copied."""
        for piece in pieces:
            suffix = piece.target[piece.target.rindex(".") :]
            self.copied[suffix] = piece.end

    def _piece(self, directory: str, suffix: str, end: int, *, is_last: bool) -> Piece:
        name = offset_name(self.segment.base_offset) + suffix
        return Piece(
            f"{self.segment.directory}/{name}",
            f"{directory}/{name}",
            self.copied[suffix],
            end,
            is_last,
        )


def copy_piece(source: Disk, target: Disk, piece: Piece) -> None:
    """Copy a range. OSError, also if the source is shorter than it was."""
    reading = source.open_read(piece.source)
    try:
        writing = target.open_write(piece.target)
        try:
            position = piece.start
            while position < piece.end:
                size = min(MOVE_READ_BYTES, piece.end - position)
                content = source.pread(reading, size, position)
                if not content:
                    raise OSError(f"{piece.source} ends at {position}")
                write_fully(target, writing, content, position)
                position += len(content)
            if piece.is_last:
                # Retention uses this time for records without timestamps: do not set a new one.
                target.set_modified_ms(piece.target, source.modified_ms(piece.source))
                target.fsync(writing)
            elif piece.end > piece.start:
                target.start_write_out(writing, piece.start, piece.end - piece.start)
        finally:
            target.close(writing)
    finally:
        source.close(reading)


def copy_snapshots(source: Disk, path: str, target: Disk, copy_path: str) -> None:
    """Copy the producer snapshots of the log, and remove all others from the copy. OSError."""
    wanted = {
        each.name: each.size for each in source.list_directory(path) if _is_snapshot(each.name)
    }
    there = {
        each.name: each.size for each in target.list_directory(copy_path) if _is_snapshot(each.name)
    }
    stale = sorted(name for name, size in there.items() if wanted.get(name) != size)
    for name in stale:
        unlink_if_present(target, f"{copy_path}/{name}")
    for name in sorted(wanted.keys() - (there.keys() - stale)):
        piece = Piece(f"{path}/{name}", f"{copy_path}/{name}", 0, wanted[name], is_last=True)
        copy_piece(source, target, piece)


def _is_snapshot(name: str) -> bool:
    return parse_offset_name(name, SNAPSHOT_SUFFIX) is not None
