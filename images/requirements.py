"""Print the dependencies of a pyproject.toml and of the extras named, a line each.

The image installs them before the sources are copied, so that a changed source file does not cost
an installation.
"""

import sys
import tomllib
from pathlib import Path


def main(pyproject: str, *extras: str) -> None:
    """`requirements.py PYPROJECT [EXTRA]...`"""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    print("\n".join(wanted))


if __name__ == "__main__":
    main(*sys.argv[1:])
