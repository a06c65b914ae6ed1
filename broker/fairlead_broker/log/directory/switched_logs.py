"""Which directory has a log that was moving when the last process ended. Used at start.

The old log has a mark that names the target directory. If the target has the log, too, the move was
switched, and the old log is outdated. If the target does not have it, the move was not switched,
and the mark is removed. If the target directory is missing, this is unknown: the mark stays, and
the log is not opened (`log_loader`).
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from fairlead_broker.disk import unlink_if_present
from fairlead_broker.log.directory.scan import scan_directory
from fairlead_broker.log.files.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    FILE_NAME_BYTES_MAX,
    MOVED_MARK,
)
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.moving.copied_segments import forget_copied
from fairlead_broker.log.moving.segment_copies import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.log.directory.log_directory import LogDirectory

logger = logging.getLogger(__name__)


def settle_switches(directories: Sequence[LogDirectory], now_ms: int) -> None:
    """Remove old logs that were switched, and marks of logs that were not. Blocks.

    If a disk fails, its logs stay as they are, and loading them reports the error. The same holds
    for a mark that cannot be read: loading refuses a log that is in both directories by name.
    """
    by_id = {each.directory_id: each for each in directories}
    for directory in directories:
        try:
            names = scan_directory(directory.disk, directory.path).partitions.values()
        except OSError as error:
            logger.error("marks of moved logs in %s: %s", directory.path, error)
            continue
        for name in names:
            try:
                _settle(directory, name, by_id, now_ms)
            except (OSError, ValueError) as error:
                logger.error("the mark of a move in %s/%s: %s", directory.path, name, error)


def _settle(
    directory: LogDirectory, name: str, by_id: dict[str, LogDirectory], now_ms: int
) -> None:
    disk, path = directory.disk, f"{directory.path}/{name}"
    mark = f"{path}/{MOVED_MARK}"
    if not disk.exists(mark):
        return
    target = by_id.get(read_small_file(disk, mark).decode())
    if target is None or target is directory:
        return
    if not target.disk.exists(f"{target.path}/{name}"):
        unlink_if_present(disk, mark)
        disk.fsync_directory(path)
        return
    # A power loss may still undo the rename in the target: make it durable before the old log goes.
    target.disk.fsync_directory(target.path)
    forget_copied(Place(target.disk, f"{target.path}/{name}"))
    ending = f".{uuid.uuid4().hex}{DELETE_DIRECTORY_SUFFIX}"
    gone = f"{directory.path}/{name[: FILE_NAME_BYTES_MAX - len(ending)]}{ending}"
    disk.rename(path, gone)
    disk.fsync_directory(directory.path)
    directory.removals.add([gone], now_ms)
    logger.info("%s has moved to %s and is removed", path, target.path)
