"""What is in the images, as CycloneDX.

Fairlead's bill is made of an installation, which knows licences and who needs whom; Spark's, which
would be half a gigabyte, of its lock.
"""

import sys
from pathlib import Path
from typing import Final

from fairlead_release.commands import run
from fairlead_release.project import LOCKS, ROOT

FORMAT: Final = ("--output-format", "JSON", "--output-reproducible", "--pyproject")


def write_bills(folder: Path, installed_python: Path) -> None:
    """Write both into a folder; `installed_python` is the interpreter of the installation."""
    tool = (sys.executable, "-m", "cyclonedx_py")
    flags = (*FORMAT, ROOT / "pyproject.toml", "--output-file")
    run((*tool, "environment", *flags, folder / "fairlead.cdx.json", installed_python))
    lock = LOCKS / "spark.txt"
    run((*tool, "requirements", *flags, folder / "fairlead-spark.cdx.json", lock))
