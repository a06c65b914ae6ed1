"""Paths of log directories, as brokers keep them and tell them to clients."""

import posixpath
import re
from pathlib import Path

from fairlead_model.configs.cordoned_directories import EVERY_DIRECTORY


def absolute_directory(path: str) -> str:
    """Return the path of a log directory; a relative one begins where the broker was started.

    Slashes at the end and repeated ones go, as Kafka's `File.getAbsolutePath` leaves them out. All
    else stays as it is written: `.`, `..`, links, and the `*` for every one.
    """
    if path in ("", EVERY_DIRECTORY):
        return path
    whole = path if posixpath.isabs(path) else f"{Path.cwd()}/{path}"
    return re.sub("/{2,}", "/", whole).removesuffix("/") or "/"


def absolute_directories(text: str) -> str:
    """Return a value of `log.dirs` or `cordoned.log.dirs` with absolute paths."""
    return ",".join(absolute_directory(part.strip()) for part in text.split(","))
