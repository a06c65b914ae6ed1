"""Modules in a zip get their compiled form beside them."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import pytest

from fairlead_spark.compile_pyspark import add_compiled, main


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A Spark's home with one zip, which has a package, a module and something else."""
    folder = tmp_path / "python" / "lib"
    folder.mkdir(parents=True)
    with ZipFile(folder / "some.zip", "w") as made:
        made.writestr("package/notes.txt", "kept" * 99, compress_type=ZIP_STORED)
        made.writestr("package/__init__.py", "WHERE = __file__\n")
        made.writestr("package/tests/test_it.py", "assert False")
        made.writestr("package/module.py", "def fail():\n    raise ValueError('here')\n")
    return folder / "some.zip"


def places(archive: Path) -> dict[str, int]:
    with ZipFile(archive) as made:
        return {entry.filename: entry.header_offset for entry in made.infolist()}


def python(archive: Path, code: str) -> str:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_python_loads_the_compiled_form_and_tracebacks_name_the_source(archive: Path) -> None:
    mode, before = archive.stat().st_mode, places(archive)
    assert add_compiled(archive) == 2
    # A process that has read the list of contents finds everything where it was.
    assert before.items() <= places(archive).items()
    assert archive.stat().st_mode == mode
    assert [each.name for each in archive.parent.iterdir()] == [archive.name]
    with ZipFile(archive) as made:
        assert made.read("package/notes.txt") == b"kept" * 99
    where = python(archive, "import package; print(package.WHERE)")
    assert where == f"{archive}/package/__init__.pyc\n"
    told = python(
        archive,
        "import traceback, package.module\n"
        "try: package.module.fail()\n"
        "except ValueError: print(traceback.format_exc())",
    )
    assert f'File "{archive}/package/module.py", line 2, in fail' in told


def test_a_second_time_changes_nothing(archive: Path) -> None:
    add_compiled(archive)
    before = archive.read_bytes()
    assert add_compiled(archive) == 0
    assert archive.read_bytes() == before


def test_a_python_of_another_version_goes_on_with_the_source(archive: Path) -> None:
    add_compiled(archive)
    with ZipFile(archive) as made:
        contents = {name: made.read(name) for name in made.namelist()}
    with ZipFile(archive, "w") as made:
        for name, content in contents.items():
            made.writestr(name, b"\x00\x01" + content[2:] if name.endswith(".pyc") else content)
    where = python(archive, "import package; print(package.WHERE)")
    assert where == f"{archive}/package/__init__.py\n"


def test_the_command_says_what_it_did(
    archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(archive.parents[2]))
    assert main() == 0
    assert "compiled 2 modules" in capsys.readouterr().out
    archive.unlink()
    assert main() == 1
    assert "correct SPARK_HOME" in capsys.readouterr().err
