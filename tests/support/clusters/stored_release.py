"""An earlier build of this repository, from its history, that supports one level less.

The commit is fixed here. When `lowest` of a feature (`fairlead_model.features`) is raised, a later
commit has to be chosen. The highest level of `fairlead.version` is lowered in the build's sources,
so that a level can be raised that it does not support: a real release would only differ in this.
"""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PREDECESSOR = "e1c728313eba675440c4d69c684a599b3b05f751"
PACKAGES = ("broker", "operator", "cli")
FEATURES = Path("broker", "fairlead_model", "features.py")
LEVELS, FEWER_LEVELS = (
    "        1,\n        2,\n        implied=1,",
    "        1,\n        1,\n        implied=1,",
)


def unpack_predecessor(folder: Path) -> Path:
    """Unpack the earlier build, once; skip the test where this clone does not have its commit."""
    if folder.exists():
        return folder
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", PREDECESSOR, *PACKAGES],
        capture_output=True,
        check=False,
    )
    if packed.returncode != 0:
        pytest.skip(
            f"the earlier build is commit {PREDECESSOR[:12]}, which this clone does not have "
            "(git fetch --unshallow brings it): " + packed.stderr.decode(errors="replace").strip()
        )
    partial = folder.with_name(f"{folder.name}.partial")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        # Python 3.11.2, as of Debian, has no filters; later ones warn where none is chosen.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(partial)
    features = (partial / FEATURES).read_text()
    assert features.count(LEVELS) == 1
    (partial / FEATURES).write_text(features.replace(LEVELS, FEWER_LEVELS))
    partial.rename(folder)
    return folder


def environment_of(build: Path | None) -> dict[str, str]:
    """Give what a Python process needs to import a build; None is the one that is tested."""
    if build is None:
        return {}
    environment = {"PYTHONPATH": os.pathsep.join(str(build / name) for name in PACKAGES)}
    code = "import fairlead_model; print(fairlead_model.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONSAFEPATH": "1"} | environment,
        capture_output=True,
        check=True,
        text=True,
    )
    assert found.stdout.startswith(str(build)), found.stdout
    return environment
