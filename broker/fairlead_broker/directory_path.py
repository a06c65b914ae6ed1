"""Paths of log directories, as brokers keep them and tell them to clients."""

import posixpath
from pathlib import Path


def absolute_directory(path: str) -> str:
    """Return the path of a log directory; a relative one begins where the broker was started.

    All else stays as it is written: `..`, links, and slashes at the end.
    """
    return path if posixpath.isabs(path) else f"{Path.cwd()}/{path}"


def absolute_directories(text: str) -> str:
    """Return a value of `log.dirs` or `cordoned.log.dirs` with absolute paths; `*` stays."""
    paths = (part.strip() for part in text.split(","))
    return ",".join(absolute_directory(path) if path not in ("", "*") else path for path in paths)
