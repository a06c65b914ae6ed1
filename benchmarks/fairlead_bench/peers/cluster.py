"""Several brokers under measurement, as scenarios and tests see them, and their processes."""

import re
import subprocess
import time
from pathlib import Path
from typing import Final, Protocol

STOP_TIMEOUT_S: Final = 60
BROKERS: Final = 3


class Cluster(Protocol):
    """Brokers are named by their index, from 0. Ports and data outlive a stop."""

    name: str
    data: Path
    ports: list[int]
    """Where each broker serves clients."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pids(self) -> list[int]:
        """All processes that run: brokers and whatever controls them."""

    def broker_id(self, index: int) -> int:
        """What the protocol calls this broker."""

    def controller_index(self) -> int | None:
        """The broker whose process is the active controller as well. None where controllers have
        processes of their own, and while nobody is."""

    def prepare(self) -> None:
        """Writes settings and identities, once; `start` does it otherwise."""

    def start(self) -> None:
        """Starts the processes and returns at once."""

    def stop(self) -> None:
        """Ends them cleanly and waits."""

    def start_broker(self, index: int = 0) -> None: ...
    def stop_broker(self, index: int = 0) -> None: ...
    def kill_broker(self, index: int = 0) -> None: ...
    def failure(self) -> str | None:
        """Why a process that should run does not; None while all do."""

    def fencings(self) -> list[str]:
        """What the controller has said, since the first start, of brokers that it gave up."""


class Child:
    """A process that is started again and again; its output goes to the end of one file."""

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
        """Whether it was started and nobody stopped it; it may have ended by itself."""
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
        """Waits for the end; one that takes too long is killed."""
        if self._process is not None:
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """kill -9: no shutdown code runs."""
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
        """What it has printed so far that matches."""
        if not self.output.exists():
            return []
        text = self.output.read_text(errors="replace")
        return [line for line in text.splitlines() if pattern.search(line)]


def stop_all(children: list[Child]) -> None:
    """All at once, as a machine that goes down stops them."""
    for child in children:
        child.begin_stop()
    for child in children:
        child.finish_stop()


def wait_for(what: str, condition: object, timeout_s: float, interval_s: float = 0.02) -> float:
    """Seconds until a callable gives true; TimeoutError otherwise."""
    assert callable(condition)
    started_s = time.monotonic()
    while not condition():
        if time.monotonic() - started_s > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(interval_s)
    return time.monotonic() - started_s
