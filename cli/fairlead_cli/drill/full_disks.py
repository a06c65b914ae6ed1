"""Fills the disks of local brokers for the duration of a drill, and no longer.

Another process holds the ballast. It removes the ballast on request, when the time is up, and when
the process that started it ends: a killed drill leaves no full disk behind.
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
    """Raise CliError unless each directory is a whole file system without other users."""
    for directory in directories:
        obstacle = ballast.find_obstacle(str(directory))
        if obstacle:
            raise CliError(
                f"this disk cannot be filled: {obstacle}",
                hint=f"Mount a file system of its own at {directory}, ext4 or xfs, and start the "
                "cluster there.",
            )


def check_any(directories: Sequence[Path]) -> None:
    """Raise CliError unless at least one directory is suitable: else there is no target."""
    if all(ballast.find_obstacle(str(each)) for each in directories):
        check_all(directories)


class FullDisks:
    """Disks that stay full until `empty`."""

    def __init__(self, directories: Sequence[Path]) -> None:
        """Raise CliError unless all disks can be filled."""
        command = [sys.executable, "-m", "fairlead_cli.drill.full_disks", *map(str, directories)]
        # In another session, so that Ctrl-C reaches only the drill, which then closes the input.
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
        """Free the room again; do nothing if that was done."""
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
