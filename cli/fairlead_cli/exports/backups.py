"""A folder of exports of the metadata; the oldest exports are removed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fairlead_cli.exports.folders import Folder

TIME_FORMAT: Final = "%Y%m%dT%H%M%S.%fZ"
"""Names in this format sort by time; they have no ':', which some file systems refuse."""


def save(folder: Folder, cluster: str, document: dict[str, Any]) -> str:
    """Write an export durably, completely or not at all; return its place. CliError."""
    name = f"{cluster}-{datetime.now(UTC).strftime(TIME_FORMAT)}.json"
    return folder.write(name, json.dumps(document) + "\n")


def remove_oldest(folder: Folder, cluster: str, *, keep: int) -> list[str]:
    """Remove the oldest exports of a cluster, and keep `keep`; return the removed names."""
    name = re.compile(rf"{re.escape(cluster)}-\d{{8}}T\d{{6}}\.\d{{6}}Z\.json")
    exports = sorted(each for each in folder.list_names(f"{cluster}-") if name.fullmatch(each))
    old = exports[:-keep]
    for each in old:
        folder.remove(each)
    return old
