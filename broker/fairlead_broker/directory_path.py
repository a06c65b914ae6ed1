"""Paths of log directories, as brokers keep them and tell them to clients."""

import posixpath
from pathlib import Path

from fairlead_model.configs.cordoned_directories import EVERY_DIRECTORY


def absolute_directory(path: str) -> str:
    """Return the path of a log directory; a relative one begins where the broker was started.

    All else stays as it is written: `..`, links, slashes at the end, and the `*` for every one.
    """
    stays = posixpath.isabs(path) or path in ("", EVERY_DIRECTORY)
    return path if stays else f"{Path.cwd()}/{path}"


def absolute_directories(text: str) -> str:
    """Return a value of `log.dirs` or `cordoned.log.dirs` with absolute paths."""
    return ",".join(absolute_directory(part.strip()) for part in text.split(","))
