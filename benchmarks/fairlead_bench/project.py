"""Where the project lies, and what child processes of the benchmark need to find its modules."""

import os
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]


def child_environment() -> dict[str, str]:
    """Return this process's environment, with the benchmark's modules on the child's path."""
    return os.environ | {"PYTHONPATH": str(PROJECT / "benchmarks")}
