"""The driver's process: start it, watch it, and end it when the user asks."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

LOOK_S: Final = 0.5
ANSWER_S: Final = 2.0
END_S: Final = 45.0
"""Longer than Spark's limit for the stop of a query."""
LOG_TAIL_BYTES: Final = 65_536
_PORT_LINE: Final = re.compile(r"progress at port (\d+)")


def require_spark() -> None:
    """Raise CliError that says what is missing and how to get it."""
    if find_spec("pyspark") is None:
        raise CliError("PySpark is not installed", hint="  pip install -e '.[spark]'")
    has_java = shutil.which("java") or (Path(os.environ.get("JAVA_HOME", "/none")) / "bin").is_dir()
    if not has_java:
        raise CliError(
            "Spark needs Java, and there is none", hint="  apt-get install default-jre-headless"
        )


class DriverProcess:
    """One run of a job. While it lasts, its folder is locked: another run would share its files."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self.log_file = folder / "driver.log"
        self._document = document
        self._document_file = folder / "job.json"
        self._lock_file = folder / "lock"
        self._lock = -1
        self._port: int | None = None
        self._process: subprocess.Popen[str]
        self._lines = 0
        self._is_writing = False
        self._unwritten: OSError | None = None
        """Why the job's output is dropped: its reader is gone, or a disk is full."""

    def prepare(self) -> None:
        """Lock the folder, write the driver's document and begin its log.

        CliError if another run of the job has the lock, or if the files cannot be written.
        """
        try:
            self._document_file.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._document_file.write_text(json.dumps(self._document, indent=1), encoding="utf-8")
            self.log_file.write_text("", encoding="utf-8")
        except OSError as error:
            raise CliError(
                f"cannot keep the job in {self.log_file.parent}: {error.strerror} "
                f"({error.filename})",
                hint="Name a folder that may be written with --data DIR; --bootstrap HOST:PORT "
                "then names the cluster.",
            ) from error

    def _take_lock(self) -> None:
        self._lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            name = self._document["name"]
            raise CliError(
                f"the job {name} runs already, with the files in {self._lock_file.parent}",
                hint="Wait for its end, or name this run with --name NAME.",
            ) from None

    def run(self, *, with_progress: bool) -> int:
        """Run to the end; return the exit code. Ctrl-C, SIGTERM and SIGHUP end the job, then this.

        So does output that cannot be written: OSError, or BrokenPipeError if its reader is gone.
        """
        from fairlead_cli.client.stop_signals import ends_as_interrupts
        from fairlead_cli.spark.job_progress import job_progress

        with self.log_file.open("w", encoding="utf-8") as log, ends_as_interrupts():
            self._start(log)
            pump = threading.Thread(target=self._pass_on_output, name="output", daemon=True)
            pump.start()
            try:
                with job_progress(self._document["name"], is_shown=with_progress) as show:
                    self._watch(show)
            except BaseException:
                # It has its own session, and would go on after this process.
                self._end()
                raise
            self._finish_output(pump)
        return self._process.returncode

    def describe_failure(self) -> str:
        """Return the last error in Spark's log, in a line."""
        text = self.log_file.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        # Py4J writes Java's error on a line of its own, behind a colon.
        told = [line for line in lines if re.match(r"(: )?[\w.]*(Error|Exception)\b.*: ", line)]
        return (
            told[-1].removeprefix(": ")[:500] if told else f"exit code {self._process.returncode}"
        )

    def _start(self, log: TextIO) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fairlead_spark.job", str(self._document_file)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            errors="replace",
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"},
            # Only this process handles Ctrl-C: the JVM must not end before the queries have.
            start_new_session=True,
            # The driver goes on if this process is killed: the lock is to last as long.
            pass_fds=(self._lock,),
        )

    def _pass_on_output(self) -> None:
        output = self._process.stdout
        if output is None:
            return
        for line in output:
            found = _PORT_LINE.fullmatch(line.strip())
            self._lines += 1
            if found is not None and self._port is None:
                self._port = int(found[1])
            elif self._unwritten is None:
                self._is_writing = True
                try:
                    click.echo(line, nl=False)
                except OSError as error:
                    # Read the rest anyway: otherwise the job would block forever.
                    self._unwritten = error
                self._is_writing = False

    def _finish_output(self, pump: threading.Thread) -> None:
        """Wait until all is written, however slow the reader is; OSError if that fails.

        Processes that the driver leaves behind may keep the pipe open and print nothing more.
        """
        seen = -1
        while pump.is_alive() and (self._is_writing or self._lines != seen):
            seen = self._lines
            pump.join(timeout=LOOK_S)
        if self._unwritten is not None:
            raise self._unwritten

    def _watch(self, show: Callable[[list[dict[str, Any]]], None]) -> None:
        while True:
            try:
                self._process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                if self._unwritten is not None:
                    raise self._unwritten from None
                queries = self._ask()
                if queries is not None:
                    show(queries)
                continue
            return

    def _ask(self) -> list[dict[str, Any]] | None:
        if self._port is None:
            return None
        url = f"http://127.0.0.1:{self._port}/progress"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
                return list(json.load(answer)["queries"])
        except OSError:
            return None  # The driver is ending.

    def _end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
