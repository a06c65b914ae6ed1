"""One process of the cluster: start it, wait until it serves, stop it.

A child writes to a file, not to a pipe: if the supervisor dies, its children keep serving and never
block or fail on their output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_cli.errors import CliError
from fairlead_cli.local.plan import OWN_SETTINGS
from fairlead_cli.local.process_table import identify
from fairlead_cli.local.readiness import http_get

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.local.cluster_file import ProcessEntry

READY_POLL_S = 0.02
OUTPUT_BYTES_MAX = 16 << 20
OUTPUT_LINES_SHOWN = 8
RESTART_DELAY_FIRST_S = 0.1
RESTART_DELAY_MAX_S = 10.0
# A process that ran this long is stable: after its next crash the first delay is used again.
STABLE_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to run one process. `ready_path` answers 200 once the process serves."""

    command: tuple[str, ...]
    output: Path
    ready_path: str


def restart_delay_s(crashes_in_a_row: int) -> float:
    """Return a delay that doubles up to the longest; `crashes_in_a_row` starts at 1."""
    return min(RESTART_DELAY_MAX_S, RESTART_DELAY_FIRST_S * 2.0 ** min(crashes_in_a_row - 1, 16))


def build_environment() -> dict[str, str]:
    """Return our environment without variables that would override a broker's own settings."""
    from fairlead_model.configs.setting_sources import environment_name

    own = {environment_name(name) for name in OWN_SETTINGS}
    inherited = {name: value for name, value in os.environ.items() if name not in own}
    return inherited | {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}


def explain_exit(returncode: int) -> str:
    """Return `exit code 1`, or the name of the signal."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"killed by signal {-returncode}"


class LocalProcess:
    """A process and its `entry` in the cluster file, which only this object writes."""

    def __init__(self, spec: ChildSpec, entry: ProcessEntry) -> None:
        self.spec = spec
        self.entry = entry
        self.process: asyncio.subprocess.Process | None = None
        self.output_began_at = 0

    @property
    def name(self) -> str:
        """The name: `broker-0` or `controller`."""
        return self.entry.name

    async def start(self) -> None:
        """Start the process in its own session.

        A terminal's Ctrl-C then reaches only the supervisor, which stops brokers before the
        controller.
        """
        self.rotate_output()
        with self.spec.output.open("ab") as output:
            self.output_began_at = output.tell()
            self.process = await asyncio.create_subprocess_exec(
                *self.spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=build_environment(),
                start_new_session=True,
            )
        identity = identify(self.process.pid)
        self.entry.pid = self.process.pid
        self.entry.start_time = identity.start_time if identity else None
        self.entry.state = "starting"

    def rotate_output(self) -> None:
        """Keep one older file, so that years of restarts do not fill the disk."""
        with contextlib.suppress(FileNotFoundError):
            if self.spec.output.stat().st_size > OUTPUT_BYTES_MAX:
                self.spec.output.replace(self.spec.output.with_suffix(".log.1"))

    async def wait_until_ready(self) -> bool:
        """Return True once the process serves, False if it ended; recovery may take long."""
        process = self.running_process()
        while process.returncode is None:
            reply = await http_get(self.entry.host, self.entry.http_port, self.spec.ready_path)
            if reply is not None and reply[0] == 200:
                self.entry.state = "running"
                return True
            await asyncio.sleep(READY_POLL_S)
        self.forget_process()
        return False

    async def wait(self) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        returncode = await self.running_process().wait()
        self.forget_process()
        return returncode

    async def stop(self, *, timeout_s: float) -> bool:
        """Send SIGTERM, then SIGKILL after the time-out; return False if it had to be killed."""
        process = self.process
        if process is None or process.returncode is not None:
            self.forget_process()
            return True
        self.entry.state = "stopping"
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            process.send_signal(signal.SIGCONT)  # A paused process would not handle SIGTERM.
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            self.kill()
            await process.wait()
            return False
        finally:
            self.forget_process()
        return True

    def kill(self) -> None:
        """Kill the process at once."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    def forget_process(self) -> None:
        """Note that no process runs under this name any more."""
        self.entry.pid = None
        self.entry.start_time = None
        self.entry.state = "stopped"

    def running_process(self) -> asyncio.subprocess.Process:
        """Return the process object; only valid after `start`."""
        if self.process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self.process

    def last_lines(self, count: int) -> list[str]:
        """Return the end of the output of this run, for an error message."""
        try:
            with self.spec.output.open("rb") as output:
                size = output.seek(0, os.SEEK_END)
                output.seek(max(self.output_began_at, size - 64 * 1024))
                text = output.read().decode(errors="replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-count:]


def stopped_early(child: LocalProcess, what: str = "it") -> CliError:
    """Return the error for a process that ended while the cluster was starting."""
    returncode = child.running_process().returncode or 0
    lines = "\n".join(f"  {line}" for line in child.last_lines(OUTPUT_LINES_SHOWN))
    return CliError(
        f"{child.name} stopped before {what} was ready ({explain_exit(returncode)})",
        hint=f"Its last lines, from {child.spec.output}:\n{lines}"
        if lines
        else f"It had not printed anything yet to {child.spec.output}.",
    )
