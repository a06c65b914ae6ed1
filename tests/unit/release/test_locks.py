"""The locks hold what pyproject.toml asks for, with hashes, and images install nothing else."""

import hashlib
import re
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from fairlead_release import wheelhouse
from fairlead_release.locks import Lock, declared_locks, read_project
from fairlead_release.project import LOCKS, ROOT

DECLARED = declared_locks(read_project())


def locked(lock: Lock) -> str:
    return (LOCKS / f"{lock.name}.txt").read_text()


@pytest.mark.parametrize("lock", DECLARED, ids=lambda lock: lock.name)
def test_a_lock_satisfies_what_is_declared(lock: Lock) -> None:
    versions = wheelhouse.locked_packages(locked(lock))
    for line in lock.requirements:
        requirement = Requirement(line)
        name = re.sub(r"[-_.]+", "_", requirement.name).lower()
        assert versions[name] in requirement.specifier, "make lock"


@pytest.mark.parametrize("lock", DECLARED, ids=lambda lock: lock.name)
def test_each_requirement_is_exact_and_has_hashes(lock: Lock) -> None:
    text = locked(lock)
    entries = [each for each in re.split(r"\n(?=\S)", text) if not each.startswith("#")]
    for entry in entries:
        requirement = Requirement(entry.split("\\")[0].strip())
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", entry
        assert wheelhouse.locked_hashes(entry), f"{requirement.name} has no hash"
    assert "://" not in text, "where packages come from is the machine's own"


def test_images_install_locked_files_only() -> None:
    for name in ("images/Dockerfile", "images/spark/Dockerfile"):
        text = (ROOT / name).read_text().replace("\\\n", " ")
        installs = re.findall(r"pip (?:--python \S+ )?(?:install|wheel) [^&\n]*", text)
        assert len(installs) >= 4
        for install in installs:
            is_own = (
                "/src/dist" in install or "-w /src/dist" in install or "/src/wheels/*" in install
            )
            assert is_own or "--require-hashes" in install, f"{name}: {install}"


def test_a_cached_wheel_counts_only_with_a_hash_of_the_lock(tmp_path: Path) -> None:
    good, changed = b"a wheel", b"a wheel that somebody changed"
    lock = "\n".join(
        f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(good).hexdigest()}" for name in "abc"
    )
    for name, version, content in (("a", "1.0", good), ("b", "1.0", changed), ("c", "2.0", good)):
        (tmp_path / f"{name}-{version}-py3-none-any.whl").write_bytes(content)
    assert wheelhouse._usable(tmp_path, lock).keys() == {"a"}


def test_names_of_wheels_are_names_of_locks() -> None:
    text = (LOCKS / "fairlead.txt").read_text()
    versions = wheelhouse.locked_packages(text)
    assert "jsonschema_specifications" in versions
    assert versions["pyjwt"].replace(".", "").isdigit(), "no backslash, no marker"
    assert default_environment()["implementation_name"] == "cpython", "markers of PyPy are not ours"
