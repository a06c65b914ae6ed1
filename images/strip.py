"""Remove from a virtual environment what no process reads when it runs.

Tests, type stubs, C sources, command-line shims of libraries and scripts that make activation
convenient: together about a tenth of the installed size.
"""

import shutil
import sys
from pathlib import Path

FOLDERS = ("tests", "test", "__pycache__", "include")
SUFFIXES = (".pyi", ".pyx", ".pxd", ".c", ".h", ".cpp")


def main(root: str) -> None:
    """Run `strip.py VENV`."""
    environment = Path(root)
    for packages in environment.glob("lib/python*/site-packages"):
        for name in FOLDERS:
            for folder in sorted(packages.rglob(name)):
                if folder.is_dir():
                    shutil.rmtree(folder)
        for file in sorted(packages.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                file.unlink()
    for script in (environment / "bin").iterdir():
        if not script.name.startswith("python"):
            script.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
