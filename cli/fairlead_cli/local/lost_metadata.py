"""Refuse to begin a new cluster if brokers have data whose metadata is lost.

A controller without metadata begins a new cluster with a new id. The brokers would then refuse to
start on data of another cluster, and the new cluster would not have their topics anyway.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from fairlead_cli.advice import data_arguments
from fairlead_cli.errors import InputError
from fairlead_cli.local.log_directories import build_log_directories, find_log_directories
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.property_files import read_properties

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.local.layout import Layout

META_PROPERTIES: Final = "meta.properties"


def refuse_lost_metadata(layout: Layout, store: str | None, chosen: tuple[str, ...]) -> None:
    """Raise InputError if brokers have data of a cluster whose metadata is not in its files.

    `store` is the address of the metadata in ZooKeeper; there the controller itself checks this.
    `chosen` are the folders in `log.dirs`.
    """
    if store is not None or any(layout.controller_directory.glob("metadata-*.journal")):
        return
    used = _used_directories(layout, chosen)
    if not used:
        return
    folders = " ".join(shlex.quote(str(folder)) for folder in used)
    data = data_arguments(layout.root)
    raise InputError(
        f"{layout.root} holds data of brokers, and no metadata: a new cluster would begin over it",
        hint="Put the metadata back, from an export or from a copy of the folder:\n"
        f"  fairlead metadata restore metadata.json{data}\n"
        f"  cp -r COPY {shlex.quote(str(layout.controller_directory))}\n"
        "or name where in ZooKeeper it is with --store, or take another folder with --data DIR.\n"
        "To begin anew without what the brokers have, rename it first:\n"
        # In the same place: on several disks the names are the same, and /tmp may be emptied.
        f'  for each in {folders}; do mv "$each" "$each.old"; done',
    )


def _used_directories(layout: Layout, chosen: tuple[str, ...]) -> list[Path]:
    """Return the folders with which a broker of any cluster has registered."""
    folders: dict[Path, None] = {}
    for broker_id in layout.known_brokers():
        folders |= dict.fromkeys(build_log_directories(layout, chosen, broker_id))
        folders |= dict.fromkeys(find_log_directories(layout, broker_id))
    return [folder for folder in folders if _cluster_id(folder)]


def _cluster_id(folder: Path) -> str:
    """Return the cluster id of a log directory; empty if no controller has sent one yet."""
    try:
        text = (folder / META_PROPERTIES).read_text(encoding="utf-8", errors="replace")
        return read_properties(text).get("cluster.id", "")
    except (FileNotFoundError, NotADirectoryError, ConfigError):
        return ""  # The broker will report what cannot be read.
