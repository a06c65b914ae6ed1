"""A folder of exports of the metadata, of which the oldest are removed."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from pathlib import Path

TIME_FORMAT: Final = "%Y%m%dT%H%M%S.%fZ"
"""Names sort as the times do; no ':' stands in them, which not every file system takes."""


def save(directory: Path, cluster: str, document: dict[str, Any]) -> Path:
    """Write an export durably, all of it or nothing; return where. CliError."""
    path = directory / f"{cluster}-{datetime.now(UTC).strftime(TIME_FORMAT)}.json"
    temporary = path.with_suffix(".partial")
    try:
        with temporary.open("w") as file:
            file.write(json.dumps(document) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CliError(f"cannot write {path}: {error}") from error
    return path


def remove_oldest(directory: Path, cluster: str, *, keep: int) -> list[Path]:
    """Remove exports of a cluster until so many are left, the newest; return the others."""
    name = re.compile(rf"{re.escape(cluster)}-\d{{8}}T\d{{6}}\.\d{{6}}Z\.json")
    exports = sorted(path for path in directory.iterdir() if name.fullmatch(path.name))
    old = exports[:-keep]
    for path in old:
        path.unlink(missing_ok=True)
    return old
