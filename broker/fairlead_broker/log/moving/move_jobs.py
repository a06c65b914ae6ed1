"""The jobs of a move that run in a thread. They use no objects of the event loop."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from fairlead_broker.disk import replace_file, unlink_if_present
from fairlead_broker.log.files.cut_start import encode_cut_start
from fairlead_broker.log.files.deferred_files import SyncJob
from fairlead_broker.log.files.file_names import (
    CHECKPOINTED_MARK,
    CUT_START,
    HOLES_MARK,
    LEADER_EPOCH_CHECKPOINT,
    MOVED_MARK,
    PARTITION_METADATA,
)
from fairlead_broker.log.files.text_files import (
    encode_epoch_checkpoint,
    encode_partition_metadata,
)
from fairlead_broker.log.moving.copied_segments import forget_copied, keep_copied
from fairlead_broker.log.moving.segment_copies import copy_piece, copy_snapshots

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.disk import Disk
    from fairlead_broker.log.moving.copied_segments import Sizes
    from fairlead_broker.log.moving.segment_copies import Piece, Place
    from fairlead_broker.log.segmented_log import SegmentedLog


class Job(Protocol):
    """A job for a thread; `error` is set if it failed."""

    error: OSError | None

    def run(self) -> None:
        """Do the job. Runs in a thread."""
        ...


class MoveJob:
    """Calls `act` in a thread; `error` is set if it failed."""

    __slots__ = ("_act", "error")

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.error: OSError | None = None

    def run(self) -> None:
        """Call `act`. Runs in a thread."""
        try:
            self._act()
        except OSError as error:
            self.error = error


class KeepJob:
    """Removes all of a copy but the segments that it has whole; `kept` are their base offsets."""

    __slots__ = ("_copy", "_old", "_sealed", "error", "kept")

    def __init__(self, old: Place, copy: Place, sealed: dict[int, Sizes]) -> None:
        self._old = old
        self._copy = copy
        self._sealed = sealed
        self.kept: list[int] = []
        self.error: OSError | None = None

    def run(self) -> None:
        """Look at the list of segments. Runs in a thread."""
        try:
            self.kept = keep_copied(self._old, self._copy, self._sealed)
        except OSError as error:
            self.error = error


def unlink_all(disk: Disk, paths: list[str]) -> None:
    """Remove files; it is no error if some do not exist."""
    for path in paths:
        unlink_if_present(disk, path)


def copy_pieces(old: Place, copy: Place, pieces: list[Piece]) -> None:
    """Copy ranges of files."""
    for piece in pieces:
        copy_piece(old.disk, copy.disk, piece)


def sync(old: Place, copy: Place, pieces: list[Piece]) -> None:
    """Copy pieces and snapshots, and make the copy durable."""
    copy_pieces(old, copy, pieces)
    copy_snapshots(old.disk, old.path, copy.disk, copy.path)
    copy.disk.fsync_directory(copy.path)


def small_files(log: SegmentedLog) -> dict[str, bytes]:
    """Return the files beside the segments, by name."""
    files = {
        PARTITION_METADATA: encode_partition_metadata(log.topic_id),
        LEADER_EPOCH_CHECKPOINT: encode_epoch_checkpoint(log.epochs.entries()),
        CHECKPOINTED_MARK: b"",
    }
    if log.has_holes:
        files[HOLES_MARK] = b""
    if log.start_before_cut is not None:
        files[CUT_START] = encode_cut_start(log.start_before_cut)
    return files


def announce(
    old: Place, copy: Place, pieces: list[Piece], files: dict[str, bytes], target_id: str
) -> None:
    """Complete the copy so far and make it durable, then mark the old log with the target."""
    for name, content in files.items():
        replace_file(copy.disk, f"{copy.path}/{name}", content, durable=False)
    SyncJob(copy.disk, [f"{copy.path}/{name}" for name in files], []).run()
    sync(old, copy, pieces)
    copy.disk.fsync_directory(copy.path.rpartition("/")[0])
    replace_file(old.disk, f"{old.path}/{MOVED_MARK}", target_id.encode(), durable=True)


def unmark(old: Place) -> None:
    """Remove the mark from the old log; do nothing if the log was deleted meanwhile."""
    with suppress(FileNotFoundError):
        unlink_if_present(old.disk, f"{old.path}/{MOVED_MARK}")
        old.disk.fsync_directory(old.path)


def leave(old: Place, gone: str, new: Place) -> None:
    """Rename the old log durably; what only the copy needed goes first."""
    with suppress(OSError):
        # If it stays, it means nothing in a log.
        forget_copied(new)
    rename_durably(old.disk, old.path, gone)


def rename_durably(disk: Disk, source: str, target: str) -> None:
    """Rename a directory within its parent, durably."""
    disk.rename(source, target)
    disk.fsync_directory(source.rpartition("/")[0])
