"""Wheels of what a lock names, so that a machine without a package index can install a release.

They are fetched once into `.cache`; a file is taken from there if the lock has its hash.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

from fairlead_release.archives import sha256_of
from fairlead_release.commands import run
from fairlead_release.locks import PYTHON
from fairlead_release.project import LOCKS, ROOT

CACHE: Final = ROOT / ".cache" / "release-wheels"
TAGS: Final = {
    "amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
}
_REQUIREMENT: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def locked_packages(lock: str) -> dict[str, str]:
    """Return the version of each package of a lock, by its name as files of wheels spell it."""
    return {
        _file_name_of(name): version.rstrip(" \\") for name, version in _REQUIREMENT.findall(lock)
    }


def locked_hashes(lock: str) -> frozenset[str]:
    """Return the SHA-256 of every file that a lock allows."""
    return frozenset(_HASH.findall(lock))


def collect_wheels(folder: Path) -> None:
    """Copy the wheels of every platform into a folder, and fetch those that the cache lacks."""
    path = LOCKS / "fairlead.txt"
    lock = path.read_text(encoding="utf-8")
    folder.mkdir(parents=True)
    for platform, tags in TAGS.items():
        cache = CACHE / platform
        wheels = _usable(cache, lock)
        if locked_packages(lock).keys() - wheels.keys():
            flags = [part for tag in tags for part in ("--platform", tag)]
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--disable-pip-version-check", "--require-hashes"]
            command += ["--only-binary", ":all:", "--python-version", PYTHON, *flags]
            run([*command, "--requirement", str(path), "--dest", str(cache)])
            wheels = _usable(cache, lock)
        for wheel in wheels.values():
            shutil.copy(wheel, folder / wheel.name)


def _usable(cache: Path, lock: str) -> dict[str, Path]:
    """Return the cached wheels that a lock allows, by the package's name."""
    packages, hashes = locked_packages(lock), locked_hashes(lock)
    found = {}
    for path in sorted(cache.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        package = _file_name_of(name)
        if packages.get(package) == version and sha256_of(path) in hashes:
            found[package] = path
    return found


def _file_name_of(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
