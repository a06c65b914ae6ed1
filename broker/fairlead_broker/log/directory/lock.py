"""One process per data directory: a lock file that says who holds it.

The lock is the kernel's (`flock`), so it falls with the process, however that ended; the text in
the file only serves the message to the second one.
"""

import fcntl
import os
from pathlib import Path

from fairlead_broker.log.files.file_names import LOCK


class DirectoryInUseError(Exception):
    """Another process has the data directory; `str()` says which."""


class DirectoryLock:
    """Held from construction until `release`."""

    def __init__(self, directory: str, holder: str) -> None:
        """`holder` describes us, e.g. `node.id=0 pid=4711`."""
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
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{holder}\n".encode(), 0)

    def release(self) -> None:
        """Let the next process in. The file stays: removing it would open a race."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
