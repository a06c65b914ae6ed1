"""What was deleted and waits for the end of its grace: files, and directories of whole logs.

What the disk does not let go is kept and tried again, after twice as long each time: forgotten, it
would take up room until the next start, and nobody would know.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from fairlead_broker.disk import Disk, remove_tree, unlink_if_present
from fairlead_broker.log.files.file_names import RETENTION_SUFFIX

FIRST_RETRY_MS: Final = 30_000
LONGEST_RETRY_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class _Pending:
    """Paths that may go at `due_ms`; `waited_ms` is how long they had to wait for that retry."""

    due_ms: int
    paths: list[str]
    waited_ms: int = 0


class Refusal(NamedTuple):
    """Paths that the disk has kept; they are tried again in `wait_ms`."""

    paths: int
    wait_ms: int
    error: OSError


class Remove(Protocol):
    """How one path goes; what is gone already is no error. OSError."""

    def __call__(self, disk: Disk, path: str, /) -> object: ...


def remove_tree_if_present(disk: Disk, path: str) -> bool:
    """Remove a directory with all that is in it; answers whether it was there."""
    if not disk.exists(path):
        return False
    remove_tree(disk, path)
    return True


class DeletionJob:
    """Removes in a thread; a path that cannot go does not keep the others."""

    __slots__ = ("_disk", "_due", "_remove", "refused")

    def __init__(self, disk: Disk, due: list[_Pending], remove: Remove) -> None:
        self._disk = disk
        self._due = due
        self._remove = remove
        self.refused: list[tuple[_Pending, OSError]] = []
        """What is left after `run`, with the last error."""

    @property
    def paths(self) -> list[str]:
        return [path for pending in self._due for path in pending.paths]

    def run(self) -> None:
        """`Deletions.complete` must be called afterwards: it keeps what the disk refused."""
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
        """Let a name go that tells of retention only when the older ones are gone for good."""
        directory = path.rpartition("/")[0]
        if directory not in synced:
            self._disk.fsync_directory(directory)
            synced.add(directory)


class Deletions:
    """Renamed files, or directories, that wait for the end of their grace."""

    __slots__ = ("_pending", "_remove", "_seen_ms")

    def __init__(self, remove: Remove = unlink_if_present) -> None:
        self._remove = remove
        self._pending: list[_Pending] = []
        self._seen_ms = 0

    @property
    def refused_count(self) -> int:
        """Paths that the disk did not let go when they were tried last."""
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
        """Let no grace grow by as much as the clock was set back: that may be years."""
        back_ms = self._seen_ms - now_ms
        self._seen_ms = now_ms
        if back_ms > 0:
            self._pending = [
                replace(pending, due_ms=pending.due_ms - back_ms) for pending in self._pending
            ]

    def complete(self, job: DeletionJob, now_ms: int) -> Refusal | None:
        """Back on the loop: what the disk refused is tried again later."""
        if not job.refused:
            return None
        for pending, _ in job.refused:
            wait_ms = min(max(pending.waited_ms * 2, FIRST_RETRY_MS), LONGEST_RETRY_MS)
            self._pending.append(_Pending(now_ms + wait_ms, pending.paths, wait_ms))
        paths = sum(len(pending.paths) for pending, _ in job.refused)
        return Refusal(paths, wait_ms, job.refused[-1][1])
