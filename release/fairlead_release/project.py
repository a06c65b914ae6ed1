"""The project that a release is made of: where its parts lie, its version, its date."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LOCKS: Final = ROOT / "images" / "locks"
CHARTS: Final = (ROOT / "charts" / "fairlead", ROOT / "charts" / "fairlead-cluster")
OPERATOR_CHART: Final = CHARTS[0]
FIRST_EPOCH: Final = 1_580_601_600
"""Where nobody names a date, files of archives have the one that hatchling gives them."""


def read_version(root: Path = ROOT) -> str:
    """Return the version that pyproject.toml declares."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def source_date_epoch(environment: Mapping[str, str] = os.environ) -> int:
    """Return the time of every file in an archive, so that equal sources make equal archives.

    Source: https://reproducible-builds.org/specs/source-date-epoch.
    """
    return int(environment.get("SOURCE_DATE_EPOCH") or FIRST_EPOCH)
