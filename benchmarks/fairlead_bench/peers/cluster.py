"""Several measured brokers and their processes, as scenarios and tests use them."""

import re
import subprocess
import time
from pathlib import Path
from typing import Final, Protocol

STOP_TIMEOUT_S: Final = 60
BROKERS: Final = 3


class Cluster(Protocol):
    """Brokers are identified by their index, from 0. Ports and data outlive a stop."""

    name: str
    data: Path
    ports: list[int]
    """The client port of each broker."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pids(self) -> list[int]:
        """All running processes: brokers and controllers."""

    def broker_id(self, index: int) -> int:
        """Return the broker's id in the protocol."""

    def controller_index(self) -> int | None:
        """The broker whose process is also the active controller. None if controllers have their
        own processes, and if there is no active one."""

    def prepare(self) -> None:
        """Write settings and identities, once; otherwise `start` does it."""

    def start(self) -> None:
        """Start the processes and return at once."""

    def stop(self) -> None:
        """Stop them cleanly and wait."""

    def start_broker(self, index: int = 0) -> None: ...
    def stop_broker(self, index: int = 0) -> None: ...
    def kill_broker(self, index: int = 0) -> None: ...
    def failure(self) -> str | None:
        """Why a process that should run does not; None if all do."""

    def fencings(self) -> list[str]:
        """Return the controller's messages, since the first start, about fenced brokers."""


class Child:
    """A process that is restarted repeatedly; its output is appended to one file."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.output.stem} is not running")
        return self._process.pid

    @property
    def is_started(self) -> bool:
        """Whether it was started and not stopped; it may have ended by itself."""
        return self._process is not None

    def start(self, command: list[str]) -> None:
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def begin_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def finish_stop(self) -> None:
        """Wait for the end; kill it if that takes too long."""
        if self._process is not None:
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """Send SIGKILL: no shutdown code runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def failure(self) -> str | None:
        if self._process is None or self._process.poll() is None:
            return None
        tail = "\n".join(self.output.read_text(errors="replace").splitlines()[-8:])
        return f"exit code {self._process.returncode}: {tail}"

    def lines(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the lines of its output that match."""
        if not self.output.exists():
            return []
        text = self.output.read_text(errors="replace")
        return [line for line in text.splitlines() if pattern.search(line)]


def stop_all(children: list[Child]) -> None:
    """Stop all at once, as a machine that shuts down does."""
    for child in children:
        child.begin_stop()
    for child in children:
        child.finish_stop()


def wait_for(what: str, condition: object, timeout_s: float, interval_s: float = 0.02) -> float:
    """Return the seconds until a callable returns true; TimeoutError otherwise."""
    assert callable(condition)
    started_s = time.monotonic()
    while not condition():
        if time.monotonic() - started_s > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(interval_s)
    return time.monotonic() - started_s
