"""What a candidate keeps outside of ZooKeeper: its cluster, and the highest epoch that it has seen.

ZooKeeper can go back in time: a majority of its servers with empty or older disks still forms a
quorum. Then its epoch is lower than one that was seen, and continuing from there would truncate
records that were acknowledged since. This file proves it. It is written before a controller acts
under a new epoch, and its folder is locked: two processes of one identity would consider each other
their own predecessor.
"""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead_controller.decisions.tables.stored_table import StoreError

FILE: Final = "candidate.json"
LOCK: Final = "candidate.lock"


class MemoryFileError(StoreError):
    """The file cannot be read or written, or another process has it open; the text says which."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The file's content; an empty cluster id and epoch 0 for a new candidate."""

    cluster_id: str = ""
    controller_epoch: int = 0


class CandidateMemory:
    """The file of one candidate; `close` unlocks its folder."""

    def __init__(self, directory: Path) -> None:
        """Lock the folder and read the file; MemoryFileError if that fails."""
        self._path = directory / FILE
        self._lock = -1
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise MemoryFileError(f"another controller runs in {directory}") from None
        except OSError as error:
            self.close()
            raise MemoryFileError(f"{directory} cannot be used: {error}") from error
        try:
            self.remembered = self._read()
        except MemoryFileError:
            self.close()
            raise

    def remember(self, cluster_id: str, controller_epoch: int) -> None:
        """Write a cluster and an epoch durably, if they are new; MemoryFileError if that fails."""
        known = self.remembered
        news = Remembered(
            cluster_id or known.cluster_id, max(controller_epoch, known.controller_epoch)
        )
        if news == known:
            return
        record = {
            "version": 1,
            "cluster_id": news.cluster_id,
            "controller_epoch": news.controller_epoch,
        }
        partial = self._path.with_suffix(".partial")
        try:
            with partial.open("w") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise MemoryFileError(f"{self._path} cannot be written: {error}") from error
        self.remembered = news

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _read(self) -> Remembered:
        try:
            record = json.loads(self._path.read_text())
            return Remembered(str(record["cluster_id"]), int(record["controller_epoch"]))
        except FileNotFoundError:
            return Remembered()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MemoryFileError(f"{self._path} cannot be read: {error!r}") from error
