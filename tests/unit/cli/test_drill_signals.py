"""What signals do to a drill: what was broken is healed, whoever ends it."""

import subprocess
import sys

import pytest

DRILL = """
import asyncio, os, signal
import click
from fairlead_cli.drill.command import run_until_signalled

signal.signal(signal.SIGHUP, signal.{disposition})


class Drill:
    async def run(self):
        try:
            os.kill(os.getpid(), signal.{number})
            await asyncio.sleep(0.2)
            return "went on"
        finally:
            os.kill(os.getpid(), signal.{number})
            await asyncio.sleep(0.2)
            print("healed", flush=True)


try:
    print(asyncio.run(run_until_signalled(Drill())))
except click.Abort:
    print("ended")
"""


def run_drill(number: str, disposition: str = "SIG_DFL") -> str:
    code = DRILL.format(number=number, disposition=disposition)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_a_second_signal_does_not_end_the_healing(number: str) -> None:
    """A terminal that closes sends SIGHUP twice, by its shell and by the kernel."""
    assert run_drill(number) == "healed\nended\n"


def test_a_drill_that_was_started_with_nohup_goes_on_without_its_terminal() -> None:
    assert run_drill("SIGHUP", "SIG_IGN") == "healed\nwent on\n"
