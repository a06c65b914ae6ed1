"""Print what the Spark image installs: the extra `spark`, and what our source needs of the rest.

The broker's and the operator's dependencies stay out of drivers and executors.
"""

import sys
import tomllib
from pathlib import Path

OF_THE_WIRE = ("cramjam", "google-crc32c")


def main(pyproject: str) -> None:
    """`requirements.py PYPROJECT`"""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    wanted = [line for line in project["dependencies"] if line.startswith(OF_THE_WIRE)]
    print("\n".join(wanted + project["optional-dependencies"]["spark"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
