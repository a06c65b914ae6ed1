"""At start: of a log that was moving, which directory has it.

The old log has a mark that names the directory it goes to. If that has the log, too, it was
switched, and what is here is older. If it has not, it was not, and the mark goes. If that directory
is not here nobody can tell: the mark stays, and with it the log is not opened (`log_loader`).
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.log.directory.log_directory import LogDirectory

logger = logging.getLogger(__name__)


def settle_switches(directories: Sequence[LogDirectory], now_ms: int) -> None:
    """Remove old logs that were switched, and marks of those that were not. Blocks.

    A disk that refuses keeps its logs as they are; loading them says what is wrong. So does a mark
    that makes no sense: a log that is in both directories is then refused by name.
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
    # A power cut may still undo the name that tells of the switch; then this one would miss.
    target.disk.fsync_directory(target.path)
    ending = f".{uuid.uuid4().hex}{DELETE_DIRECTORY_SUFFIX}"
    gone = f"{directory.path}/{name[: FILE_NAME_BYTES_MAX - len(ending)]}{ending}"
    disk.rename(path, gone)
    disk.fsync_directory(directory.path)
    directory.removals.add([gone], now_ms)
    logger.info("%s has moved to %s and is removed", path, target.path)
