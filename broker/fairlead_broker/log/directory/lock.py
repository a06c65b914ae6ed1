"""One process per data directory: a lock file that names the process that holds it.

The lock is the kernel's (`flock`), so it ends with the process, however that ends. The text in the
file is only for the error message of a second process. It is written in a step of its own: on a
full disk the process that has the lock makes room first.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from fairlead_broker.log.files.file_names import LOCK


class DirectoryInUseError(Exception):
    """Another process has the data directory; `str()` says which."""


class DirectoryLock:
    """Held from construction until `release`."""

    def __init__(self, directory: str) -> None:
        """Take the lock. DirectoryInUseError if another process holds it; OSError."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        self._fd = os.open(f"{directory}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            other = os.pread(self._fd, 256, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise DirectoryInUseError(
                f"{directory} is held by {other or 'another process'}"
            ) from error

    def name_holder(self, holder: str) -> None:
        """Describe this process to others, e.g. `node.id=0 pid=4711`. OSError."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{holder}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock. The file stays: removing it would cause a race.

        A disk that fails keeps the text; a directory is also released because its disk has failed.
        """
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        os.close(self._fd)
