"""Programs of tests in JavaScript, with the clients that they use."""

import shutil
from pathlib import Path
from typing import Final

from compiled_programs import build

from fairlead_bench.project import PROJECT

_PROGRAMS: Final = PROJECT / "tests/clients/node_clients"


def install_node_programs(folder: Path) -> Path:
    """Copy the programs to a folder beside what they use, and return it.

    MissingError where there is no npm, or no package can be had.
    """
    installed = folder / "programs"
    shutil.copytree(_PROGRAMS, installed)
    build(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], installed)
    return installed
