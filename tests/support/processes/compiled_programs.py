"""Test programs in languages that have to be compiled."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

BUILD_TIMEOUT_S: Final = 600


class MissingError(Exception):
    """A program cannot run here; the text says what is missing."""


def build(command: list[str], folder: Path) -> None:
    """Run a compiler, at a low priority; MissingError if it, or a module, is not available."""
    if shutil.which(command[0]) is None:
        raise MissingError(f"no `{command[0]}` on the path")
    built = subprocess.run(
        ["nice", *command],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    if built.returncode:
        raise MissingError(f"{' '.join(command)}: {built.stderr[-1000:]}")
