"""The operations that storage asks of a disk: the seam between the log and the kernel.

`Disk` is all that `fairlead_broker.log` knows of files. `RealDisk` is the kernel; tests put a
simulated disk behind the same interface, which loses un-synced pages, renames and creates as a
power cut would. Paths are plain strings, because opening a thousand logs at start-up is too hot
for path objects; descriptors are small integers. Errors are `OSError`.
"""

import ctypes
import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from fairlead_wire.segments import Buffer

SYNC_FILE_RANGE_WRITE: Final = 2
"""Linux: start write-out of dirty pages of a range, do not wait for it."""
SETTLED_NS: Final = 2_000_000_000
"""The clocks of file systems tick at least once in this time."""


class DirectoryEntry(NamedTuple):
    """One name in a directory; `size` is 0 for directories.

    A symbolic link counts as its target, so that an operator may move a partition elsewhere and
    leave a link.
    """

    name: str
    is_directory: bool
    size: int
    is_link: bool = False


class FileVersion(NamedTuple):
    """Differs after each change of a file, and for another file of the same name.

    `number` is that of the inode, `changed_ns` the time of its last change, which nobody can set.
    """

    number: int
    changed_ns: int


class Disk(Protocol):
    """What storage may do. Data and names that were not fsynced may be gone after a crash."""

    def open_read(self, path: str, /) -> int:
        """Open an existing file read-only."""
        ...

    def open_write(self, path: str, /) -> int:
        """Open for positioned writes, creating an empty file if there is none."""
        ...

    def open_private(self, path: str, /) -> int:
        """Open as `open_write` does; only the owner may read a file that this creates."""
        ...

    def close(self, fd: int, /) -> None: ...

    def pread(self, fd: int, size: int, position: int, /) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        ...

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        """Write at a position; may write less than asked, as the system call does."""
        ...

    def size(self, fd: int, /) -> int: ...

    def truncate(self, fd: int, size: int, /) -> None: ...

    def fsync(self, fd: int, /) -> None: ...

    def start_write_out(self, fd: int, position: int, size: int, /) -> None:
        """Ask the kernel to begin writing dirty pages of a range; durability is not promised."""
        ...

    def drop_cache(self, fd: int, /) -> None:
        """Forget clean cached pages, so that the next read comes from the device."""
        ...

    def rename(self, source: str, target: str, /) -> None: ...

    def unlink(self, path: str, /) -> None: ...

    def make_directory(self, path: str, /) -> None:
        """Make a directory (and its parents); no error if it exists."""
        ...

    def remove_directory(self, path: str, /) -> None:
        """Remove an empty directory; with a link to one, remove both."""
        ...

    def list_directory(self, path: str, /) -> list[DirectoryEntry]: ...

    def exists(self, path: str, /) -> bool: ...

    def modified_ms(self, path: str, /) -> int:
        """Return time of the last modification, milliseconds since the epoch."""
        ...

    def set_modified_ms(self, path: str, time_ms: int, /) -> None:
        """Set the time of a file's last modification."""
        ...

    def version(self, path: str, /) -> FileVersion | None:
        """Return what the next change of a file changes; None if the file changed just now.

        Then the next change may come in the same tick of the file system's clock.
        """
        ...

    def fsync_directory(self, path: str, /) -> None:
        """Make creates, renames and unlinks in a directory durable."""
        ...

    def bytes_free(self, path: str, /) -> int:
        """Return what users without privileges may write to a file system; no device I/O."""
        ...

    def file_system_id(self, path: str, /) -> int:
        """Return a number that directories of the same file system share."""
        ...

    def sync_file_system(self, path: str, /) -> None:
        """Make everything durable that was written to the file system of a directory.

        This also raises errors of earlier writes, even of earlier processes, that the kernel has
        not reported yet. It reports each error only once.
        """
        ...


class RealDisk:
    """The kernel's files. The hot calls are the system calls themselves, without a wrapper."""

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    fsync = staticmethod(os.fsync)
    truncate = staticmethod(os.ftruncate)

    def open_read(self, path: str, /) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_write(self, path: str, /) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def open_private(self, path: str, /) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def size(self, fd: int, /) -> int:
        return os.fstat(fd).st_size

    def start_write_out(self, fd: int, position: int, size: int, /) -> None:
        if _sync_file_range is None:
            # The hint also begins write-out of dirty pages; it drops clean ones, which costs a
            # lagging reader a disk read, so it is only the second choice.
            os.posix_fadvise(fd, position, size, os.POSIX_FADV_DONTNEED)
        elif _sync_file_range(fd, position, size, SYNC_FILE_RANGE_WRITE) != 0:
            errno = ctypes.get_errno()
            raise OSError(errno, os.strerror(errno))

    def drop_cache(self, fd: int, /) -> None:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def rename(self, source: str, target: str, /) -> None:
        Path(source).replace(target)

    def unlink(self, path: str, /) -> None:
        Path(path).unlink()

    def make_directory(self, path: str, /) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def remove_directory(self, path: str, /) -> None:
        directory = Path(path)
        if directory.is_symlink():
            directory.resolve().rmdir()
            directory.unlink()
        else:
            directory.rmdir()

    def list_directory(self, path: str, /) -> list[DirectoryEntry]:
        entries = []
        with os.scandir(path) as scan:
            for entry in scan:
                try:
                    is_directory = entry.is_dir()
                    size = 0 if is_directory else entry.stat().st_size
                except FileNotFoundError:
                    if not entry.is_symlink():
                        continue  # A thread has removed it meanwhile.
                    is_directory, size = False, 0
                entries.append(DirectoryEntry(entry.name, is_directory, size, entry.is_symlink()))
        return entries

    def exists(self, path: str, /) -> bool:
        return Path(path).exists()

    def modified_ms(self, path: str, /) -> int:
        return Path(path).stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int, /) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def version(self, path: str, /) -> FileVersion | None:
        status = Path(path).stat()
        if time.time_ns() - status.st_ctime_ns < SETTLED_NS:
            return None
        return FileVersion(status.st_ino, status.st_ctime_ns)

    def fsync_directory(self, path: str, /) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def bytes_free(self, path: str, /) -> int:
        room = os.statvfs(path)
        return room.f_bavail * room.f_frsize

    def file_system_id(self, path: str, /) -> int:
        return Path(path).stat().st_dev

    def sync_file_system(self, path: str, /) -> None:
        if _syncfs is None:
            raise OSError(errno.ENOSYS, "there is no syncfs here", path)
        # A new descriptor gets errors that the kernel has not reported yet (Linux 5.8 and later).
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _syncfs(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)


def write_fully(disk: Disk, fd: int, data: Buffer, position: int) -> None:
    """Write every byte or raise; the kernel may take fewer than offered."""
    rest = memoryview(data)
    while rest:
        written = disk.pwrite(fd, rest, position)
        rest = rest[written:]
        position += written


def read_file(disk: Disk, path: str, *, size_max: int) -> bytes:
    """Return a whole small file; FileNotFoundError, or ValueError above `size_max`."""
    fd = disk.open_read(path)
    try:
        # `pread` allocates a buffer of this size, however small the file is.
        content = disk.pread(fd, min(disk.size(fd), size_max) + 1, 0)
    finally:
        disk.close(fd)
    if len(content) > size_max:
        raise ValueError(f"{path} is larger than {size_max} bytes")
    return content


def replace_file(disk: Disk, path: str, content: bytes, *, durable: bool) -> None:
    """Put a small file in place in one step: readers see the old or the new content, never half.

    With `durable` the content and its name are on the device when this returns; that blocks, so it
    belongs in a thread. Without it the caller has to fsync both later; until then the content may
    be empty after a power cut.
    """
    temporary = path + ".tmp"
    fd = disk.open_write(temporary)
    try:
        disk.truncate(fd, 0)
        write_fully(disk, fd, content, 0)
        if durable:
            disk.fsync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, path)
    if durable:
        disk.fsync_directory(path.rpartition("/")[0] or ".")


def unlink_if_present(disk: Disk, path: str) -> bool:
    """Remove a file; answers whether it was there."""
    with suppress(FileNotFoundError):
        disk.unlink(path)
        return True
    return False


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory and everything in it (in a thread: freeing large files takes long).

    Links in it are removed, but not their targets.
    """
    for entry in disk.list_directory(path):
        child = f"{path}/{entry.name}"
        if entry.is_directory and not entry.is_link:
            remove_tree(disk, child)
        else:
            unlink_if_present(disk, child)
    disk.remove_directory(path)


def _load_sync_file_range() -> "ctypes._NamedFuncPointer | None":
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "sync_file_range", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]


def _load_syncfs() -> "ctypes._NamedFuncPointer | None":
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]


_sync_file_range: Final = _load_sync_file_range()
_syncfs: Final = _load_syncfs()
