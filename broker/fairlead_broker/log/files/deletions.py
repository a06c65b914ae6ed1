"""Deleted files and directories of logs that wait for the end of their delay.

If the disk fails to remove a path, the removal is tried again, after twice as long each time.
Otherwise the path would silently use room until the next start.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from fairlead_broker.disk import Disk, remove_tree, unlink_if_present
from fairlead_broker.log.files.file_names import RETENTION_SUFFIX

FIRST_RETRY_MS: Final = 30_000
LONGEST_RETRY_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class _Pending:
    """Paths to remove at `due_ms`; `waited_ms` is the wait before this retry, 0 if it is none."""

    due_ms: int
    paths: list[str]
    waited_ms: int = 0


class Refusal(NamedTuple):
    """Paths that the disk failed to remove; they are tried again in `wait_ms`."""

    paths: int
    wait_ms: int
    error: OSError


class Remove(Protocol):
    """Removes one path; it is no error if the path does not exist. OSError."""

    def __call__(self, disk: Disk, path: str, /) -> object: ...


def remove_tree_if_present(disk: Disk, path: str) -> bool:
    """Remove a directory with its content; return whether it existed."""
    if not disk.exists(path):
        return False
    remove_tree(disk, path)
    return True


class DeletionJob:
    """Removes paths in a thread; after an error the others are still removed."""

    __slots__ = ("_disk", "_due", "_remove", "refused")

    def __init__(self, disk: Disk, due: list[_Pending], remove: Remove) -> None:
        self._disk = disk
        self._due = due
        self._remove = remove
        self.refused: list[tuple[_Pending, OSError]] = []
        """Paths that remain after `run`, with the last error."""

    @property
    def paths(self) -> list[str]:
        return [path for pending in self._due for path in pending.paths]

    def run(self) -> None:
        """Remove the paths. The caller must call `Deletions.complete`, which keeps failed ones."""
        synced: set[str] = set()
        for pending in self._due:
            left: list[str] = []
            last_error: OSError | None = None
            for path in pending.paths:
                try:
                    if path.endswith(RETENTION_SUFFIX):
                        self._sync_directory(path, synced)
                    self._remove(self._disk, path)
                except OSError as error:
                    left.append(path)
                    last_error = error
            if last_error is not None:
                self.refused.append((replace(pending, paths=left), last_error))

    def _sync_directory(self, path: str, synced: set[str]) -> None:
        """Make removals of older segments durable, before a `.retention.deleted` name goes."""
        directory = path.rpartition("/")[0]
        if directory not in synced:
            self._disk.fsync_directory(directory)
            synced.add(directory)


class Deletions:
    """Renamed files, or directories, that wait for the end of their delay."""

    __slots__ = ("_pending", "_remove", "_seen_ms")

    def __init__(self, remove: Remove = unlink_if_present) -> None:
        self._remove = remove
        self._pending: list[_Pending] = []
        self._seen_ms = 0

    @property
    def refused_count(self) -> int:
        """Number of paths whose last removal failed."""
        return sum(len(pending.paths) for pending in self._pending if pending.waited_ms)

    def add(self, paths: list[str], due_ms: int) -> None:
        self._pending.append(_Pending(due_ms, paths))

    def begin(self, disk: Disk, now_ms: int) -> DeletionJob | None:
        """Return a job with everything that is due."""
        self._follow_clock(now_ms)
        due = [pending for pending in self._pending if pending.due_ms <= now_ms and pending.paths]
        if not due:
            return None
        self._pending = [pending for pending in self._pending if pending.due_ms > now_ms]
        return DeletionJob(disk, due, self._remove)

    def _follow_clock(self, now_ms: int) -> None:
        """Move due times back with the clock, if it was set back: else the delay may be years."""
        back_ms = self._seen_ms - now_ms
        self._seen_ms = now_ms
        if back_ms > 0:
            self._pending = [
                replace(pending, due_ms=pending.due_ms - back_ms) for pending in self._pending
            ]

    def complete(self, job: DeletionJob, now_ms: int) -> Refusal | None:
        """Have failed removals tried again later. On the event loop."""
        if not job.refused:
            return None
        for pending, _ in job.refused:
            wait_ms = min(max(pending.waited_ms * 2, FIRST_RETRY_MS), LONGEST_RETRY_MS)
            self._pending.append(_Pending(now_ms + wait_ms, pending.paths, wait_ms))
        paths = sum(len(pending.paths) for pending, _ in job.refused)
        return Refusal(paths, wait_ms, job.refused[-1][1])
