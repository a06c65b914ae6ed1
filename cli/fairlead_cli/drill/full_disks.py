"""Fills the disks of local brokers for as long as a drill wants, and not a moment longer.

The ballast is held by a process of its own, which removes it when it is told to, when its time is
up, and when whoever has started it is gone: a drill that is killed leaves no full disk behind.
"""

from __future__ import annotations

import select
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from fairlead_broker import ballast
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOLD_MAX_S: Final = 600
_FILLED: Final = "filled"
_END_S: Final = 30.0


def check_all(directories: Sequence[Path]) -> None:
    """Raise CliError unless each directory is a whole file system that nobody else uses."""
    for directory in directories:
        obstacle = ballast.find_obstacle(str(directory))
        if obstacle:
            raise CliError(
                f"this disk cannot be filled: {obstacle}",
                hint=f"Mount a file system of its own at {directory}, ext4 or xfs, and start the "
                "cluster there.",
            )


def check_any(directories: Sequence[Path]) -> None:
    """Raise CliError unless there is one at least: no target could be chosen."""
    if all(ballast.find_obstacle(str(each)) for each in directories):
        check_all(directories)


class FullDisks:
    """Disks that are full until `empty`."""

    def __init__(self, directories: Sequence[Path]) -> None:
        """CliError unless all are filled."""
        command = [sys.executable, "-m", "fairlead_cli.drill.full_disks", *map(str, directories)]
        # In a session of its own: Ctrl-C is for the drill, which then closes its input.
        self._keeper = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        said = self._keeper.stdout.readline().strip() if self._keeper.stdout is not None else ""
        if said != _FILLED:
            self.empty()
            raise CliError(f"the disk was not filled: {said or 'no answer'}")

    def empty(self) -> None:
        """Give the room back; harmless if it was given back before."""
        for stream in (self._keeper.stdin, self._keeper.stdout):
            if stream is not None:
                stream.close()
        self._keeper.wait(_END_S)


def main(directories: Sequence[str]) -> int:
    """Keep disks full until standard input ends, or for as long as any drill may last."""
    try:
        try:
            for directory in directories:
                ballast.fill(directory)
        except OSError as error:
            print(error, flush=True)
            return 1
        print(_FILLED, flush=True)
        select.select([sys.stdin], [], [], HOLD_MAX_S)
        return 0
    finally:
        for directory in directories:
            ballast.remove(directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
