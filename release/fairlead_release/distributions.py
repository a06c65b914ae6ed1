"""The wheel and the sdist, by hatchling; nothing is asked of the network."""

import os
import sys
from pathlib import Path

from fairlead_release.commands import run


def build_distributions(project: Path, folder: Path, epoch: int) -> None:
    """Build both out of a project's sources into a folder."""
    run(
        (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", folder),
        folder=project,
        environment={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
    )
