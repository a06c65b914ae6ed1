"""The locked requirements of the images: exact versions, with a hash of every file of each.

`python -m fairlead_release.locks` asks the package index and writes them. A lock has the files of
all platforms; it is written only if amd64 and arm64 find a wheel for each requirement, but for
what comes as sources alone.
"""

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead_release.commands import CommandError, run
from fairlead_release.project import LOCKS, ROOT

PYTHON: Final = "3.11"
"""The oldest Python that Fairlead runs on; a lock serves newer ones, too."""
PLATFORMS: Final = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
OF_THE_WIRE: Final = ("cramjam", "google-crc32c")
"""What the Spark source needs of the broker's dependencies."""
HEADER: Final = "# Made by `make lock`, which asks the package index. Do not edit.\n"


@dataclass(frozen=True, slots=True)
class Lock:
    """One file of locked requirements."""

    name: str
    requirements: tuple[str, ...]
    from_sources: tuple[str, ...] = ()
    """Packages without wheels; an image builds them with what `build` locks."""


def declared_locks(project: dict[str, Any]) -> tuple[Lock, ...]:
    """Return what is locked, from the `[project]` of pyproject.toml and its build system."""
    dependencies, extras = project["project"]["dependencies"], project["project"]
    extras = extras["optional-dependencies"]
    wire = [each for each in dependencies if each.startswith(OF_THE_WIRE)]
    return (
        Lock("build", (*project["build-system"]["requires"], "setuptools", "wheel")),
        Lock("fairlead", (*dependencies, *extras["operator"], *extras["s3"])),
        Lock("spark", (*wire, *extras["spark"]), from_sources=("pyspark",)),
    )


def read_project(root: Path = ROOT) -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def resolve(lock: Lock, upgrade: bool) -> str:
    """Return the text of a lock; CommandError names what has no wheel for a platform."""
    path = LOCKS / f"{lock.name}.txt"
    command = ["uv", "pip", "compile", "--quiet", "--no-config", "--no-header"]
    command += ["--no-emit-index-url", "--no-annotate", "--python-version", PYTHON, "-"]
    stated = "\n".join(lock.requirements)
    universal = [*command, "--universal", "--generate-hashes"]
    if path.exists() and not upgrade:
        universal += ["--constraint", str(path)]
    text = run(universal, text=stated, folder=ROOT)
    binary = ["--only-binary", ":all:"]
    for package in lock.from_sources:
        binary += ["--no-binary", package]
    for platform in PLATFORMS.values():
        run([*command, *binary, "--python-platform", platform], text=_without_hashes(text))
    return HEADER + text


def _without_hashes(text: str) -> str:
    return "\n".join(
        line.removesuffix(" \\") for line in text.splitlines() if not line.startswith(" ")
    )


def main(arguments: Sequence[str]) -> int:
    """Write every lock; with --upgrade with the newest versions, else with those it has."""
    try:
        texts = {
            LOCKS / f"{lock.name}.txt": resolve(lock, "--upgrade" in arguments)
            for lock in declared_locks(read_project())
        }
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    LOCKS.mkdir(exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {text.count('==')} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
