"""A disk in memory that loses what a power cut may lose.

Code must survive what POSIX allows and file systems do. Pages without an fsync are kept or lost one
by one (granules of 512 bytes or 4 KiB), and the last write may be torn at any byte. A file may have
its new size without its data (zeros) or its data without its new size. Creates, renames and unlinks
are undone, each by itself, unless the directory was fsynced. Directories themselves are durable at
once, and so are their new names unless `may_lose_directory_names` is set.
A process that is killed loses nothing.
"""

import errno
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, TypeVar, cast

from fairlead_broker.disk import DirectoryEntry, FileVersion

F = TypeVar("F", bound=Callable[..., Any])


INODE_NUMBERS = count(1)


class PowerCut(BaseException):
    """Raised at the chosen operation; the test that runs the scenario catches it."""


@dataclass(eq=False)
class Inode:
    """`durable` is the content as of the last fsync; `lost` are ranges whose fsync failed.

    `changes` counts changes, as the time of a file's last change does; a power cut takes it back to
    what it was at the last fsync.
    """

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    lost: list[tuple[int, int]] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(INODE_NUMBERS))
    changes: int = 0
    durable_changes: int = 0


def mutating(method: F) -> F:
    """Mark an operation: a power cut may come before or after it, and it may fail."""

    @functools.wraps(method)
    def wrapper(self: "SimulatedDisk", *arguments: object) -> object:
        self.operations += 1
        if self.operations == self.cut_before:
            raise PowerCut
        try:
            self._fail_if_told(method.__name__)
            return method(self, *arguments)
        finally:
            if self.operations == self.cut_after:
                raise PowerCut

    return cast("F", wrapper)


class SimulatedDisk:
    """Set `cut_before` or `cut_after` to the number of an operation; `operations` counts them."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.directories: set[str] = set()
        self.operations = 0
        self.cut_before = -1
        self.cut_after = -1
        self.failures: dict[str, OSError] = {}
        self.free_bytes: int | None = None
        self.short_writes = 0
        self.may_lose_directory_names = False
        self._directory_renames: list[tuple[str, str]] = []
        self._durable_names: dict[str, Inode] = {}
        self._name_changes: dict[str, list[tuple[str, str, Inode | None]]] = {}
        self._descriptors: dict[int, Inode] = {}
        self._next_descriptor = 100

    def open_read(self, path: str) -> int:
        return self._descriptor(self._inode(path))

    def open_write(self, path: str) -> int:
        if path not in self.names:
            self._create(path)
        return self._descriptor(self.names[path])

    open_private = open_write

    def close(self, fd: int) -> None:
        self._descriptors.pop(fd, None)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._fail_if_told("pread")
        return bytes(self._descriptors[fd].content[position : position + size])

    @mutating
    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        data = bytes(data)
        if self.short_writes and len(data) > 1:
            self.short_writes -= 1
            data = data[: len(data) // 2]
        self._descriptors[fd].changes += 1
        content = self._descriptors[fd].content
        growth = max(position + len(data) - len(content), 0)
        if self.free_bytes is not None:
            if growth > self.free_bytes:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.free_bytes -= growth
        content.extend(bytes(growth))
        content[position : position + len(data)] = data
        return len(data)

    def size(self, fd: int) -> int:
        return len(self._descriptors[fd].content)

    @mutating
    def truncate(self, fd: int, size: int) -> None:
        self._descriptors[fd].changes += 1
        content = self._descriptors[fd].content
        if self.free_bytes is not None:
            self.free_bytes += max(len(content) - size, 0)
        del content[size:]
        content.extend(bytes(size - len(content)))

    @mutating
    def fsync(self, fd: int) -> None:
        _write_back(self._descriptors[fd])

    def start_write_out(self, fd: int, position: int, size: int) -> None:
        assert position + size <= len(self._descriptors[fd].content)

    def drop_cache(self, fd: int) -> None:
        inode = self._descriptors[fd]
        for start, end in inode.lost:
            inode.content[start:end] = inode.durable[start:end].ljust(end - start, b"\0")
        inode.lost.clear()

    @mutating
    def rename(self, source: str, target: str) -> None:
        if source in self.directories:
            if self.may_lose_directory_names:
                self._rename_directory(source, target)
                self._directory_renames.append((source, target))
                return
            for path in [p for p in self.names if p.startswith(source + "/")]:
                moved = target + path[len(source) :]
                self.names[moved] = self.names.pop(path)
                self._durable_names.pop(path, None)
                self._durable_names[moved] = self.names[moved]
            self.directories.remove(source)
            self.directories.add(target)
            return
        inode = self._inode(source)
        inode.changes += 1
        del self.names[source]
        self.names[target] = inode
        self._note(source, ("rename", f"{source}\0{target}", inode))

    @mutating
    def unlink(self, path: str) -> None:
        inode = self._inode(path)
        del self.names[path]
        self._note(path, ("unlink", path, inode))

    def make_directory(self, path: str) -> None:
        while path and path not in self.directories:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def remove_directory(self, path: str) -> None:
        self.directories.remove(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        prefix = path + "/"
        files = [
            DirectoryEntry(name[len(prefix) :], False, len(inode.content))
            for name, inode in self.names.items()
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        ]
        folders = [
            DirectoryEntry(name[len(prefix) :], True, 0)
            for name in self.directories
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        ]
        return files + folders

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def modified_ms(self, path: str) -> int:
        self._inode(path)
        return 0

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._inode(path).changes += 1

    def version(self, path: str) -> FileVersion | None:
        inode = self._inode(path)
        return FileVersion(inode.number, inode.changes)

    @mutating
    def fsync_directory(self, path: str) -> None:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        for change in self._name_changes.pop(path, []):
            _apply(self._durable_names, change)
        self._directory_renames = [
            each for each in self._directory_renames if each[0].rpartition("/")[0] != path
        ]

    def bytes_free(self, path: str) -> int:
        return 1 << 40 if self.free_bytes is None else self.free_bytes

    def file_system_id(self, path: str) -> int:
        return id(self)

    @mutating
    def sync_file_system(self, path: str) -> None:
        for inode in self.names.values():
            _write_back(inode)
        for changes in self._name_changes.values():
            for change in changes:
                _apply(self._durable_names, change)
        self._name_changes.clear()
        self._directory_renames.clear()

    def fail(self, operation: str, number: int = errno.EIO) -> None:
        """Let this operation fail from now on."""
        self.failures[operation] = OSError(number, os.strerror(number))

    def fail_fsync_of(self, path: str) -> None:
        """Lose the dirty pages of a file at its fsync: the kernel then counts them as clean."""
        inode = self._inode(path)
        dirty = [
            at
            for at in range(0, len(inode.content), 512)
            if inode.content[at : at + 512] != inode.durable[at : at + 512]
        ]
        inode.lost += [(at, min(at + 512, len(inode.content))) for at in dirty]
        self.fail("fsync")

    def _fail_if_told(self, operation: str) -> None:
        error = self.failures.get(operation)
        if error is not None:
            raise OSError(error.errno, error.strerror)

    def after_kill(self) -> "SimulatedDisk":
        """Return the disk after the process was killed: the page cache remains."""
        disk = SimulatedDisk()
        disk.directories = set(self.directories)
        disk.names = self.names
        disk._durable_names = self._durable_names
        disk._name_changes = self._name_changes
        disk.may_lose_directory_names = self.may_lose_directory_names
        disk._directory_renames = list(self._directory_renames)
        return disk

    def after_power_cut(self, random: Random, granule: int = 4096) -> "SimulatedDisk":
        """Return the disk in one of the states that are possible after a power cut."""
        names = dict(self._durable_names)
        mood = random.choice(("none", "all", "some"))
        for changes in self._name_changes.values():
            for change in changes:
                if mood == "all" or (mood == "some" and random.random() < 0.5):
                    _apply(names, change)
        disk = SimulatedDisk()
        disk.directories = set(self.directories)
        survivors: dict[Inode, Inode] = {}
        for path, inode in names.items():
            if inode not in survivors:
                content = _surviving_content(inode, random, granule)
                survivors[inode] = Inode(
                    bytearray(content),
                    content,
                    number=inode.number,
                    changes=inode.durable_changes,
                    durable_changes=inode.durable_changes,
                )
            disk.names[path] = survivors[inode]
        disk._durable_names = dict(disk.names)
        disk.may_lose_directory_names = self.may_lose_directory_names
        for source, target in reversed(self._directory_renames):
            if random.random() < 0.5:
                disk._undo_rename(source, target)
        return disk

    def _undo_rename(self, source: str, target: str) -> None:
        # Not if another one has the name by now: the device keeps changes of a directory in order.
        if source not in self.directories and target in self.directories:
            self._rename_directory(target, source)

    def _rename_directory(self, source: str, target: str) -> None:
        """Rename a directory; names in it that are not durable yet remain so."""
        self.directories.remove(source)
        self.directories.add(target)
        for names in (self.names, self._durable_names):
            for path in [path for path in names if path.startswith(source + "/")]:
                names[target + path[len(source) :]] = names.pop(path)
        changes = self._name_changes.pop(source, [])
        self._name_changes.setdefault(target, []).extend(
            (kind, path.replace(source + "/", target + "/"), inode) for kind, path, inode in changes
        )

    def _inode(self, path: str) -> Inode:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.names[path]

    @mutating
    def _create(self, path: str) -> None:
        inode = self.names[path] = Inode()
        self._note(path, ("create", path, inode))

    def _descriptor(self, inode: Inode) -> int:
        self._next_descriptor += 1
        self._descriptors[self._next_descriptor] = inode
        return self._next_descriptor

    def _note(self, path: str, change: tuple[str, str, Inode | None]) -> None:
        self._name_changes.setdefault(path.rpartition("/")[0], []).append(change)


def _write_back(inode: Inode) -> None:
    durable = bytearray(inode.content)
    for start, end in inode.lost:
        durable[start:end] = inode.durable[start:end].ljust(end - start, b"\0")
    inode.durable = bytes(durable)
    inode.durable_changes = inode.changes


def _apply(names: dict[str, Inode], change: tuple[str, str, Inode | None]) -> None:
    """Apply a change of a name; a rename of a file whose creation was lost is lost, too."""
    kind, path, inode = change
    if kind == "create" and inode is not None:
        names[path] = inode
    elif kind == "unlink" and names.get(path) is inode:
        del names[path]
    elif kind == "rename":
        source, _, target = path.partition("\0")
        if names.get(source) is inode and inode is not None:
            del names[source]
            names[target] = inode


def _surviving_content(inode: Inode, random: Random, granule: int) -> bytes:
    durable, current = inode.durable, bytes(inode.content)
    low, high = sorted((len(durable), len(current)))
    size = random.choice((len(durable), len(current), random.randint(low, high)))
    result = bytearray(durable[:size].ljust(size, b"\0"))
    mood = random.choice(("none", "all", "some", "some"))
    dirty = [
        at
        for at in range(0, len(current), granule)
        if current[at : at + granule] != durable[at : at + granule]
    ]
    torn = random.choice(dirty) if dirty and random.random() < 0.3 else -1
    for at in dirty:
        if mood == "all" or (mood == "some" and random.random() < 0.5):
            length = random.randint(0, granule) if at == torn else granule
            piece = current[at : at + length][: max(size - at, 0)]
            result[at : at + len(piece)] = piece
    return bytes(result)
