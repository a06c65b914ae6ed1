"""What was deleted and waits for the end of its grace: files, and directories of whole logs."""

from typing import NamedTuple

from fairlead_broker.disk import Disk, remove_tree, unlink_if_present


class DeletionJob:
    """Unlinks files in a thread; files that are gone already are no error."""

    __slots__ = ("_disk", "paths")

    def __init__(self, disk: Disk, paths: list[str]) -> None:
        self._disk = disk
        self.paths = paths

    def run(self) -> None:
        for path in self.paths:
            unlink_if_present(self._disk, path)


class RemovalJob:
    """Removes directories of deleted logs, in a thread."""

    def __init__(self, disk: Disk, paths: list[str]) -> None:
        self._disk = disk
        self.paths = paths

    def run(self) -> None:
        for path in self.paths:
            if self._disk.exists(path):
                remove_tree(self._disk, path)


class _Pending(NamedTuple):
    due_ms: int
    paths: list[str]


class Deletions:
    """Renamed files that wait for the end of their grace, in order of it."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: list[_Pending] = []

    def add(self, paths: list[str], due_ms: int) -> None:
        self._pending.append(_Pending(due_ms, paths))

    def begin(self, disk: Disk, now_ms: int) -> DeletionJob | None:
        """A job with all files that are due."""
        due = [
            path for pending in self._pending if pending.due_ms <= now_ms for path in pending.paths
        ]
        if not due:
            return None
        self._pending = [pending for pending in self._pending if pending.due_ms > now_ms]
        return DeletionJob(disk, due)
