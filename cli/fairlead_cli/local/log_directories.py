"""Where the brokers of a local cluster keep their logs: in the data directory, or on other disks.

`fairlead up --set log.dirs=/disk1,/disk2` gives each broker a folder of its own in each of them.
Brokers that come back without one of their folders have lost what is in it, as far as the cluster
knows. So a start that leaves one out is refused; a forgotten argument must not cost replicas. One
that has been emptied (`fairlead broker disks ID --drain`) may go.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairlead_broker.log.files.file_names import parse_partition_directory
from fairlead_cli.advice import data_arguments
from fairlead_cli.errors import InputError
from fairlead_model.configs.setting_sources import read_properties

if TYPE_CHECKING:
    from fairlead_cli.local.layout import Layout

LOG_DIRS: Final = "log.dirs"
_ROOTED: Final = "fairlead.cluster.secret.file"
"""A setting whose file lies in the data directory."""


def choose_log_directories(layout: Layout, settings: dict[str, str]) -> tuple[str, ...]:
    """Take the folders out of the settings; InputError if one is left out that has been used."""
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
    """Return the folders that a broker was started with last.

    In a copy of a data directory the settings name the folder of the original, which may be there
    yet, and serve. The copy has its own.
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
