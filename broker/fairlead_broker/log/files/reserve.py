"""A little room that is kept back, so that a broker can start on a full disk.

A start notes itself on the disk before anything else, and recovery writes indexes. Without any room
neither would be possible, and nobody would be there to read, or to make room by retention. So each
log directory keeps a file that a start gives up if there is no room besides. Such a start takes no
records until there is room (`room_watch`), or it would fill what was given up.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from fairlead_broker.limits import LOG_DIRECTORY_ROOM_BYTES
from fairlead_broker.log.files.file_names import RESERVE

logger = logging.getLogger(__name__)

RESERVE_BYTES: Final = 1 << 20
FULL_BELOW_BYTES: Final = 4 << 20
"""More than the reserve: what one start has given up, and not used, is no room for the next."""


def give_up_if_full(directory: str) -> bool:
    """Give the reserve up if there is no room besides; tell whether there is none."""
    try:
        is_full = _free_bytes(directory) < FULL_BELOW_BYTES
    except FileNotFoundError:
        return False  # A new directory, in one that may have room.
    if is_full:
        with suppress(FileNotFoundError):
            Path(directory, RESERVE).unlink()
            logger.warning("%s is full: what was kept back for a start is given up", directory)
    return is_full


def keep(directory: str) -> None:
    """Keep a reserve, where there is none and much room. Blocks: in a thread, or at a start."""
    try:
        if _free_bytes(directory) < LOG_DIRECTORY_ROOM_BYTES:
            return
        path = f"{directory}/{RESERVE}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        logger.warning(
            "nothing is kept back in %s for a start on a full disk: %s", directory, error
        )


def _free_bytes(directory: str) -> int:
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize
