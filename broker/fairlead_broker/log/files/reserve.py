"""A small reserve of disk space, so that a broker can start on a full disk.

A start first writes its id to the disk, and recovery writes indexes. Without any room both would
fail, and no broker would run to serve reads, or to free room by retention. So each log directory
has a reserve file, which a start removes if the disk is full. Such a start takes no records until
there is room (`room_watch`): else they would fill the room of the reserve.
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
"""More than the reserve: after one start has removed it, the disk still counts as full."""


def give_up_if_full(directory: str) -> bool:
    """Remove the reserve if the disk is full; tell whether it is full."""
    try:
        is_full = _free_bytes(directory) < FULL_BELOW_BYTES
    except FileNotFoundError:
        return False  # The directory does not exist yet; its parent may have room.
    if is_full:
        with suppress(FileNotFoundError):
            Path(directory, RESERVE).unlink()
            logger.warning("%s is full: what was kept back for a start is given up", directory)
    return is_full


def keep(directory: str) -> None:
    """Create the reserve if there is enough room. Blocks: in a thread, or at a start."""
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
