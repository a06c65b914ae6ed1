"""A pipe that breaks: the reader of the output has what it wanted; any other break is a failure."""

import subprocess
import sys

import pytest

COMMAND = """
import socket, sys
import click
from fairlead_cli.command_line import run_command_line
from fairlead_cli.output import note, print_json, print_table, tell
from fairlead_cli.verb_group import VerbGroup

@click.group(cls=VerbGroup)
def group():
    pass

@group.command()
def connection():
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.sendall(b"request")

@group.command()
def output():
    while True:
        click.echo("line")

@group.command()
def remark():
    while True:
        note("line")

@group.command()
def work():
    for name in "abc":
        tell(f"deleted {name}")
        note(f"asked for {name}")
    print_json([name])
    print_table(["name"], [[name]])
    return 1

sys.exit(run_command_line(group, sys.argv[1:], "fairlead"))
"""


def run_piped(verb: str, pipe: str) -> subprocess.CompletedProcess[str]:
    """Run a verb whose output goes into a pipe; the exit code is that of the verb."""
    script = f'set -o pipefail; "$0" -c "$1" {verb} {pipe}'
    return subprocess.run(
        ["bash", "-c", script, sys.executable, COMMAND],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("pipe", ["| cat", "> /dev/null"])
def test_a_connection_that_breaks_is_a_failure(pipe: str) -> None:
    done = run_piped("connection", pipe)
    assert done.returncode == 1
    assert "BrokenPipeError" in done.stderr


def test_a_reader_that_has_what_it_wanted_is_no_failure() -> None:
    done = run_piped("output", "| head -1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "line\n", "")


@pytest.mark.parametrize("arguments", ["--help", "work --help"])
def test_help_that_nobody_reads_is_no_failure(arguments: str) -> None:
    """`fairlead --help | head -3` in a script with pipefail ended it, and other verbs do not."""
    done = run_piped(arguments, "| true")
    assert (done.returncode, done.stderr) == (0, "")


def test_remarks_that_nobody_reads_any_more_are_a_failure() -> None:
    """The verb has stopped in the middle of its work."""
    done = run_piped("remark", "2>&1 > /dev/null | head -1")
    assert (done.returncode, done.stdout) == (1, "line\n")


@pytest.mark.parametrize("pipe", ["| true", "| head -1 > /dev/null"])
def test_what_is_left_to_do_is_done_whoever_reads(pipe: str) -> None:
    """So is what the exit code says: `topic delete a b c | true` once hid a refusal."""
    done = run_piped("work", pipe)
    assert (done.returncode, done.stderr) == (1, "asked for a\nasked for b\nasked for c\n")
