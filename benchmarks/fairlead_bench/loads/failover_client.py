"""An application as a child process that keeps writing while brokers die, and its output so far.

`failover_load.py` documents the output.
"""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from fairlead_bench.loads.failover_load import APPLICATIONS, RECORD_BYTES
from fairlead_bench.loads.failover_times import Acknowledgement
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka
from fairlead_bench.project import PROJECT, child_environment
from fairlead_cli.drill.history import UNKNOWN, History

JAVA: Final = "java"
JAVA_PROGRAM: Final = PROJECT / "benchmarks" / "java" / "FailoverLoad.java"
JAVA_HEAP_MB: Final = 256
NAMES: Final = (*APPLICATIONS, JAVA)
PARTITIONS: Final = 6
RATE: Final = 150
# It waits for outstanding answers, at most a minute.
END_TIMEOUT_S: Final = 90
SAID_LINES_MAX: Final = 8


class ClientFailedError(Exception):
    """The application ended by itself; the text is its output."""


class Telling:
    """The parsed output of one application. Pure."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acknowledgements: list[Acknowledgement] = []
        self.failures: list[str] = []
        """Errors that the application got, one for each record."""
        self.sent_counts: dict[int, int] = {}

    def take(self, line: str) -> None:
        """Parse a line; ValueError if no application prints it."""
        kind, _, rest = line.partition(" ")
        if kind == "acknowledged":
            partition, sequence, begun_ns, ended_ns, offset = map(int, rest.split())
            self.acknowledgements.append(
                Acknowledgement(partition, sequence, begun_ns, ended_ns, offset)
            )
        elif kind == "failed":
            _, _, why = rest.split(" ", 2)
            self.failures.append(why)
        elif kind == "sent":
            partition, count = map(int, rest.split())
            self.sent_counts[partition] = count
        else:
            raise ValueError(f"{self.name} says {line!r}")

    def since(self, count: int) -> list[Acknowledgement]:
        """Return the acknowledgements after the first `count`."""
        return self.acknowledgements[count:]

    def history(self) -> History:
        """Return the history for the drills' checker, once the application has ended."""
        history = History()
        for partition, count in self.sent_counts.items():
            key = history.add_key(f"{self.name}-{partition}", partition)
            key.offsets.extend([UNKNOWN] * count)
        for each in self.acknowledgements:
            key = history.keys[f"{self.name}-{each.partition}"]
            key.note_acknowledged(each.sequence, each.offset)
        return history


class FailoverClient:
    """Started once, with its own topic; `stop` waits until every record has its answer."""

    def __init__(self, name: str, bootstrap: str, topic: str, output: Path) -> None:
        self.name, self.topic = name, topic
        self.telling = Telling(name)
        self._output = output
        self._misunderstood = ""
        with output.open("wb") as errors:
            self._process = subprocess.Popen(
                command_of(name, bootstrap, topic),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=child_environment(),
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self.telling.take(line.rstrip("\n"))
            except ValueError as error:
                self._misunderstood = str(error)

    def check(self) -> None:
        """Raise ClientFailedError if it has ended, or prints an unknown line."""
        if self._process.poll() is not None:
            raise ClientFailedError(f"{self.name} ended: {self._said}")
        if self._misunderstood:
            raise ClientFailedError(self._misunderstood)

    @property
    def _said(self) -> str:
        lines = self._output.read_text(errors="replace").splitlines()
        return "\n".join(lines[-SAID_LINES_MAX:])

    def stop(self) -> None:
        """End it. ClientFailedError if it does not report what it has sent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        if self._process.returncode or len(self.telling.sent_counts) < PARTITIONS:
            raise ClientFailedError(
                f"{self.name}: exit code {self._process.returncode}: {self._said}"
            )


def runnable_names(say: Callable[[str], None]) -> tuple[str, ...]:
    """Return NAMES, without Java's if this machine has no compiler or library for it."""
    why = ""
    if shutil.which("javac") is None:
        why = "no `javac` on the path"
    else:
        try:
            ensure_kafka()
        except KafkaUnavailableError as error:
            why = str(error)
    if not why:
        return NAMES
    say(f"the Java producer is left out: {why}")
    return tuple(name for name in NAMES if name != JAVA)


def command_of(name: str, bootstrap: str, topic: str) -> list[str]:
    """Return the command of one of NAMES."""
    if name == JAVA:
        numbers = (str(number) for number in (PARTITIONS, RATE, RECORD_BYTES))
        # Java compiles a program that is given as its source.
        command = ensure_kafka().java_command(str(JAVA_PROGRAM), heap_mb=JAVA_HEAP_MB, options=())
        return [*command, name, topic, bootstrap, *numbers]
    arguments = {
        "name": name,
        "topic": topic,
        "bootstrap": bootstrap,
        "partitions": PARTITIONS,
        "rate": RATE,
    }
    return [sys.executable, "-m", "fairlead_bench.loads.failover_load", json.dumps(arguments)]


def stop_all(clients: Iterable[FailoverClient]) -> None:
    """Stop all, also after an error of one; raise the first error."""
    failures = []
    for client in clients:
        try:
            client.stop()
        except ClientFailedError as error:
            failures.append(error)
    if failures:
        raise failures[0]
