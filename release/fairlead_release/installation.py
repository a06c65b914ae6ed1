"""A release installed from its folder alone: no package index, no checkout."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from fairlead_release.commands import run

KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "KUBECONFIG")


def bare_environment(home: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment that says nothing of Python's paths or of a package index."""
    kept = {name: environment[name] for name in KEPT_VARIABLES if name in environment}
    return {**kept, "HOME": str(home)}


def install_release(dist: Path, folder: Path, extras: str = "operator,s3") -> Path:
    """Make a virtual environment with the release in it; return its interpreter.

    The lock gives versions and hashes of what others made; the release itself comes by its name.
    """
    environment = bare_environment(folder)
    venv = folder / "venv"
    run((sys.executable, "-m", "venv", venv), folder=folder, environment=environment)
    python = venv / "bin" / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    offline = ("--no-index", "--find-links", dist / "wheels", "--only-binary", ":all:")
    lock = dist / "requirements" / "fairlead.txt"
    run((*install, *offline, "--no-deps", "--require-hashes", "--requirement", lock),
        folder=folder, environment=environment)  # fmt: skip
    run((*install, *offline, "--find-links", dist, f"fairlead[{extras}]"),
        folder=folder, environment=environment)  # fmt: skip
    return python
