"""Ctrl-C at any moment of a command's life: no traceback."""

import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fairlead_cli.command_line import run_command_line
from fairlead_cli.errors import ExitCode

START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this test runs under
sys.path.insert(0, {folder!r})
from fairlead_cli.entry import run_script
run_script("verb")
"""
INTERRUPT = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def run_verb(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a module of this text as a console script does."""
    (folder / "verb.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-c", START.format(folder=str(folder))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_ctrl_c_while_a_command_is_imported_just_ends_it(tmp_path: Path) -> None:
    done = run_verb(tmp_path, INTERRUPT)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_while_a_command_runs_is_the_command_s_affair(tmp_path: Path) -> None:
    text = f"""
def run():
    try:
        {INTERRUPT}
    except KeyboardInterrupt:
        return 130
"""
    done = run_verb(tmp_path, text)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_the_interpreter_ends_is_silent(tmp_path: Path) -> None:
    text = f"""
import atexit
def interrupt():
    {INTERRUPT}
def run():
    atexit.register(interrupt)
    return 3
"""
    done = run_verb(tmp_path, text)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_the_package_runs_as_the_command_does() -> None:
    command = [sys.executable, "-m", "fairlead_cli", "topic", "lst"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("Usage: fairlead topic ")
    assert "Did you mean 'list'?" in done.stderr


def test_ctrl_c_inside_of_a_class_body_is_no_defect() -> None:
    class Interrupting:
        def __set_name__(self, _owner: type, _name: str) -> None:
            raise KeyboardInterrupt

    @click.command()
    def verb() -> None:
        type("Imported", (), {"field": Interrupting()})

    assert run_command_line(verb, [], "fairlead") == ExitCode.INTERRUPTED


def test_a_defect_of_ours_keeps_its_traceback() -> None:
    @click.command()
    def verb() -> None:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run_command_line(verb, [], "fairlead")
