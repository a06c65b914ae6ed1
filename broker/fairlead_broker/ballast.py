"""The one file with which a drill fills a disk, and whether a disk may be filled at all.

Only a whole file system that nobody else sees is filled: a folder of one that others use (the
machine's own, a hostPath, an emptyDir) would take their room, too. The file has one name, so that
whoever comes by removes it: who has made it, and the broker itself whenever it starts.

Process 1 of a container imports this, so that it does with next to no modules.
"""

import errno
import os

BALLAST = "fairlead-drill-ballast"
FILLED_TYPES = ("ext4", "xfs")
"""Where room is taken without a byte written, and is really taken."""
ROOM_BYTES_MIN = 64 << 20
"""What has to be free before: a disk that is nearly full would hardly have room again after."""
_CHUNK_MIN = 4096
MOUNTS = "/proc/self/mountinfo"


class _Mount:
    """One line of the kernel's list: `root` is what of the file system is mounted at `point`."""

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
    """Give the room back; tell whether there was a ballast."""
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
    """Say why there is too little room to take it away; empty if there is enough."""
    if free_bytes >= ROOM_BYTES_MIN:
        return ""
    return (
        f"only {free_bytes >> 20} MiB are free in {directory}: a disk that is nearly full is not "
        f"filled, it takes {ROOM_BYTES_MIN >> 20}"
    )


def judge_mounts(mounts: str, path: str) -> str:
    """Say why others would miss the room of a path, by the lines of /proc/self/mountinfo. Pure."""
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
