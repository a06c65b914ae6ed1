"""Small files that are put in place at once and fsynced later, many together, in a thread.

A new leader writes its epoch file before it appends (R4), and a broker that takes over a thousand
partitions must not fsync a thousand times on its event loop. So the rename happens at once, and the
fsyncs of contents and directories are collected. Until they have run, a power loss may leave an
empty or old file. Every reader of these files treats that as damage and derives the content again.
"""

from fairlead_broker.disk import Disk, replace_file


class DeferredFiles:
    """Files that were replaced since the last job was taken, and directories that changed."""

    __slots__ = ("_directories", "_disk", "_files")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: set[str] = set()
        self._directories: set[str] = set()

    def replace(self, path: str, content: bytes) -> None:
        """Replace a file; the next job fsyncs it."""
        replace_file(self._disk, path, content, durable=False)
        self._files.add(path)
        self._directories.add(path.rpartition("/")[0])

    def note_directory(self, path: str) -> None:
        """Note that names were created, renamed or removed in a directory."""
        self._directories.add(path)

    def begin_sync(self) -> "SyncJob | None":
        """Return everything collected so far, as a job for a thread."""
        if not self._files and not self._directories:
            return None
        job = SyncJob(self._disk, sorted(self._files), sorted(self._directories))
        self._files, self._directories = set(), set()
        return job


class SyncJob:
    """Runs in a thread and uses no objects of the event loop."""

    __slots__ = ("_directories", "_disk", "_files", "refused")

    def __init__(self, disk: Disk, files: list[str], directories: list[str]) -> None:
        self._disk = disk
        self._files = files
        self._directories = directories
        self.refused: dict[str, OSError] = {}
        """Errors of `run` by path: these files and directories are not durable."""

    def run(self) -> None:
        """Fsync contents, then names. A file that no longer exists needs no fsync.

        After an error the others are still fsynced, and the first error is raised at the end. A
        failed fsync is not repeated: the next one would succeed although the pages are lost.
        """
        refused = self.refused
        for paths, sync in ((self._files, self._sync_file), (self._directories, self._sync_names)):
            for path in paths:
                try:
                    sync(path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    refused[path] = error
        if refused:
            raise next(iter(refused.values()))

    def _sync_file(self, path: str) -> None:
        fd = self._disk.open_read(path)
        try:
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)

    def _sync_names(self, path: str) -> None:
        self._disk.fsync_directory(path)
