"""Small file systems that a test may fill, which only root can mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from needed_tools import missing

BALLAST = "ballast"


class SmallDisk:
    """A mounted file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def free_bytes(self) -> int:
        room = os.statvfs(self.path)
        return room.f_bavail * room.f_frsize

    def fill(self) -> None:
        """Use all free space, also space that others free meanwhile."""
        with (self.path / BALLAST).open("ab") as ballast:
            while self.free_bytes:
                with suppress(OSError):
                    os.posix_fallocate(ballast.fileno(), ballast.tell(), self.free_bytes)
                ballast.seek(0, os.SEEK_END)

    def empty(self) -> None:
        """Free the space again."""
        (self.path / BALLAST).unlink()


@contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mount a tmpfs at a path; skip the test if that is not allowed, except in CI."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "fairlead-test", str(path)]
    with _mounted(path, command) as disk:
        yield disk


@contextmanager
def small_device(path: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mount an ext4 at a path: a separate device, in a file beside the path."""
    path.mkdir(parents=True, exist_ok=True)
    image = path.with_name(path.name + ".img")
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    with _mounted(path, ["mount", "-o", "loop", str(image), str(path)]) as disk:
        yield disk


@contextmanager
def _mounted(path: Path, command: list[str]) -> Iterator[SmallDisk]:
    path.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        missing(f"no file system of its own for a test: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
