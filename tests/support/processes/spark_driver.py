"""A Spark driver in its own session of processes, which is killed or paused as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from spark_source import DEADLINE_S


class SparkDriver:
    """Runs a program of PySpark in `folder`."""

    def __init__(self, program: Path, *arguments: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._log = folder / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                cwd=folder,
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to Python, the JVM, and the Python processes of the JVM."""
        signal_session(self._process.pid, number)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        return self._process.wait(timeout_s)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def last_words(self) -> str:
        return self.log()[-4000:]

    def end(self) -> None:
        self.signal_all(signal.SIGKILL)
        self._process.wait()


def signal_session(session: int, number: signal.Signals) -> None:
    """Send a signal to all processes of a session, to the caller's own last."""
    processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    processes.sort(key=lambda process: process == os.getpid())
    for process in processes:
        try:
            if os.getsid(process) == session:
                os.kill(process, number)
        except ProcessLookupError:
            continue
