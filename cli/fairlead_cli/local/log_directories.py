"""The log directories of a local cluster's brokers: in the data directory, or on other disks.

`fairlead up --set log.dirs=/disk1,/disk2` gives each broker its own folder in each of them. If a
broker starts without one of its folders, the cluster takes the replicas in it for lost. So a start
that omits a folder is refused: a forgotten argument must not cost replicas. A folder that was
emptied (`fairlead broker disks ID --drain`) may be omitted.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairlead_broker.log.files.file_names import parse_partition_directory
from fairlead_cli.advice import data_arguments
from fairlead_cli.errors import InputError
from fairlead_model.configs.property_files import read_properties

if TYPE_CHECKING:
    from fairlead_cli.local.layout import Layout

LOG_DIRS: Final = "log.dirs"
_ROOTED: Final = "fairlead.cluster.secret.file"
"""A setting with a file in the data directory."""


def choose_log_directories(layout: Layout, settings: dict[str, str]) -> tuple[str, ...]:
    """Remove the folders from the settings; InputError if a used folder is omitted."""
    said = settings.pop(LOG_DIRS, "")
    chosen = tuple(str(Path(each.strip()).resolve()) for each in said.split(",") if each.strip())
    for broker_id in layout.known_brokers():
        folders = [str(each) for each in build_log_directories(layout, chosen, broker_id)]
        for folder in find_log_directories(layout, broker_id):
            if str(folder) not in folders and _has_logs(folder):
                raise InputError(
                    f"broker {broker_id} has logs in {folder}, and log.dirs leaves it out",
                    hint=f"Name {folder.parent} in --set {LOG_DIRS}=…, too, and empty it:  "
                    f"fairlead broker disks {broker_id} --drain {shlex.quote(str(folder))} --wait"
                    f"{data_arguments(layout.root)}\n"
                    "To lose what is in there, rename it.",
                )
    return chosen


def _has_logs(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    return any(parse_partition_directory(each.name) is not None for each in folder.iterdir())


def build_log_directories(
    layout: Layout, chosen: tuple[str, ...], broker_id: int
) -> tuple[Path, ...]:
    """Return the folders of a broker."""
    own = layout.broker_directory(broker_id)
    return tuple(Path(each, own.name) for each in chosen) or (own,)


def find_log_directories(layout: Layout, broker_id: int) -> tuple[Path, ...]:
    """Return the folders of a broker's last start.

    In a copy of a data directory, the settings name the original's folder, which may still exist
    and be in use. The copy has its own folder.
    """
    try:
        text = layout.broker_config(broker_id).read_text(encoding="utf-8")
    except FileNotFoundError:
        return (layout.broker_directory(broker_id),)
    settings = read_properties(text)
    own = layout.broker_directory(broker_id)
    said = tuple(
        Path(each.strip()) for each in settings.get(LOG_DIRS, "").split(",") if each.strip()
    )
    original = Path(settings.get(_ROOTED, layout.secret_file)).parent
    if original != layout.root.resolve():
        said = tuple(own if each == original / own.name else each for each in said)
    return said or (own,)
