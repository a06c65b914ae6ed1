"""The project's folder, and the environment in which child processes find its modules."""

import os
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]


def child_environment() -> dict[str, str]:
    """Return this process's environment, with the benchmark's modules on the child's path."""
    return os.environ | {"PYTHONPATH": str(PROJECT / "benchmarks")}
