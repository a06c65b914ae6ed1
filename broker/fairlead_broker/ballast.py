"""The one file with which a drill fills a disk, and whether a disk may be filled at all.

A drill fills only a whole file system that the broker alone uses. In a folder of a shared file
system (the machine's own, a hostPath, an emptyDir) it would take the room of others, too. The file
always has the same name, so that both the process that made it and a starting broker can remove it.

Process 1 of a container imports this module, so it imports almost nothing itself.
"""

import errno
import os

BALLAST = "fairlead-drill-ballast"
FILLED_TYPES = ("ext4", "xfs")
"""File systems on which `fallocate` really takes the room without writing a byte."""
ROOM_BYTES_MIN = 64 << 20
"""Bytes that have to be free before: otherwise the disk would be nearly full again afterwards."""
_CHUNK_MIN = 4096
MOUNTS = "/proc/self/mountinfo"


class _Mount:
    """One line of the kernel's list: the part `root` of a file system is mounted at `point`."""

    def __init__(self, line: str) -> None:
        left, _, right = line.partition(" - ")
        fields = left.split()
        self.device = fields[2]
        self.root, self.point = _unescaped(fields[3]), _unescaped(fields[4])
        self.type = right.split()[0]


def fill(directory: str) -> None:
    """Take all the room of the file system that a directory is in. OSError."""
    descriptor = os.open(f"{directory}/{BALLAST}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        room = os.fstatvfs(descriptor)
        chunk = room.f_bfree * room.f_frsize
        while chunk >= _CHUNK_MIN:
            try:
                os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, chunk)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                chunk //= 2
    finally:
        os.close(descriptor)


def remove(directory: str) -> bool:
    """Remove the ballast; tell whether there was one."""
    try:
        os.unlink(f"{directory}/{BALLAST}")  # noqa: PTH108 (process 1 does without pathlib)
    except FileNotFoundError:
        return False
    return True


def find_obstacle(directory: str) -> str:
    """Say why the file system of a directory may not be filled; empty if it may."""
    try:
        with open(MOUNTS, encoding="utf-8") as file:  # noqa: PTH123
            mounts = file.read()
        room = os.statvfs(directory)
        path = os.path.realpath(directory)
    except OSError as error:
        return f"{directory} cannot be looked at: {error}"
    return judge_mounts(mounts, path) or judge_room(directory, room.f_bavail * room.f_frsize)


def judge_room(directory: str, free_bytes: int) -> str:
    """Say why a disk has too little free room for a drill; empty if it has enough."""
    if free_bytes >= ROOM_BYTES_MIN:
        return ""
    return (
        f"only {free_bytes >> 20} MiB are free in {directory}: a disk that is nearly full is not "
        f"filled, it takes {ROOM_BYTES_MIN >> 20}"
    )


def judge_mounts(mounts: str, path: str) -> str:
    """Say who else uses the file system of a path, by /proc/self/mountinfo; empty: nobody. Pure."""
    known = [_Mount(line) for line in mounts.splitlines() if " - " in line]
    found = max(
        (each for each in reversed(known) if _is_within(path, each.point)),
        key=lambda each: len(each.point),
        default=None,
    )
    why = "a drill fills only a whole file system that nothing else uses"
    if found is None or found.point == "/":
        return f"{path} is a folder of the machine's file system: {why}"
    if found.root != "/":
        return f"{found.point} is only the folder {found.root} of a file system: {why}"
    for other in known:
        if other.device == found.device and not _is_within(other.point, found.point):
            return f"{found.point} and {other.point} are on one file system: {why}"
    if found.type not in FILLED_TYPES:
        return f"{found.point} is of type {found.type}: a drill fills {' and '.join(FILLED_TYPES)}"
    return ""


def _is_within(path: str, point: str) -> bool:
    return point in ("/", path) or path.startswith(point + "/")


def _unescaped(text: str) -> str:
    """Undo the kernel's octal escapes of blanks and backslashes."""
    for code, meant in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, meant)
    return text
