"""The applications under test: each program runs as two instances, which are separate processes.

A program ends by itself if its client reports an error after which a new client is needed, and is
killed by the fault driver; `tend` starts it again, as a supervisor would.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from compiled_programs import MissingError, build
from workload import Input, Values, copies_of, counts_of

from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka

PROGRAMS: Final = Path(__file__).parent / "programs"
INSTANCES: Final = 2
END_TIMEOUT_S: Final = 60
# An instance lives for seconds: no time to compile much, little garbage to collect.
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
JVM_HEAP_MB: Final = 256


class Trial(NamedTuple):
    """The arguments of every instance of an application."""

    bootstrap: str
    input: str
    output: str
    group: str
    folder: Path


Command = Callable[[Trial, str], list[str]]
"""Returns the command that starts the instance with this name."""


class Program(NamedTuple):
    """One client's program: how it is built, and what it must write for an input."""

    name: str
    prepare: Callable[[Path], Command]
    expected: Callable[[Sequence[Input]], Values]
    begins_at_the_groups_offsets: bool = True
    """True if its transactions include the group's offsets; else it commits them now and then."""


def prepare_confluent(_folder: Path) -> Command:
    def command(trial: Trial, name: str) -> list[str]:
        script = str(PROGRAMS / "copy_confluent.py")
        return [sys.executable, script, *trial[:4], name]

    return command


def prepare_java(main_class: str, libraries: str, home: Path) -> Callable[[Path], Command]:
    def prepare(folder: Path) -> Command:
        try:
            kafka = ensure_kafka(pom=home / "pom.xml", folder=libraries)
        except KafkaUnavailableError as error:
            raise MissingError(str(error)) from error
        source = str(home / f"{main_class}.java")
        build(["javac", "-cp", kafka.classpath, "-d", str(folder), source], folder)

        def command(trial: Trial, name: str) -> list[str]:
            java = kafka.java_command(main_class, heap_mb=JVM_HEAP_MB, options=JVM_OPTIONS)
            java[java.index("-cp") + 1] += f":{folder}"
            return [*java, *trial[:4], name, str(trial.folder / name)]

        return command

    return prepare


def prepare_franz(folder: Path) -> Command:
    binary = folder / "franz"
    build(["go", "build", "-o", str(binary), "."], PROGRAMS / "franz")

    def command(trial: Trial, name: str) -> list[str]:
        return [str(binary), *trial[:4], name]

    return command


ALL: Final = {
    program.name: program
    for program in (
        Program("confluent", prepare_confluent, copies_of),
        Program("java", prepare_java("CopyExactlyOnce", "streams", PROGRAMS), copies_of),
        Program("franz", prepare_franz, copies_of),
        Program("streams", prepare_java("WordCount", "streams", PROGRAMS), counts_of),
        Program(
            "flink",
            prepare_java("CopyByFlink", "flink", PROGRAMS / "flink"),
            copies_of,
            begins_at_the_groups_offsets=False,
        ),
    )
}


class Instance:
    """One process under a name; when it ends, another one takes its place."""

    def __init__(self, command: list[str], output: Path) -> None:
        self._command, self.output = command, output
        self._process: subprocess.Popen[bytes] | None = None
        self._is_held = False
        self.starts = 0

    def start(self) -> None:
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self.starts += 1
        self._is_held = False

    def tend(self) -> None:
        """Start it again if it has ended, and was not killed or stopped by the test."""
        if not self._is_held and self._process is not None and self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Send SIGKILL; it stays down until `start` is called."""
        self._is_held = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def begin_stop(self) -> None:
        self._is_held = True
        self._signal(signal.SIGTERM)

    def finish_stop(self) -> None:
        """Wait for its end; kill it if that takes too long."""
        if self._process is not None:
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)

    def last_words(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines() if self.starts else []
        return " | ".join(lines[-4:])


class Application:
    """The instances of one program in one trial."""

    def __init__(self, program: Program, command: Command, trial: Trial) -> None:
        self.program, self.trial = program, trial
        trial.folder.mkdir(parents=True)
        names = [f"{trial.group}-{index}" for index in range(INSTANCES)]
        self.instances = [
            Instance(command(trial, name), trial.folder / f"{name}.out") for name in names
        ]

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def starts(self) -> int:
        return sum(instance.starts for instance in self.instances)

    def start(self) -> None:
        for instance in self.instances:
            instance.start()

    def tend(self) -> None:
        for instance in self.instances:
            instance.tend()

    def stop(self) -> None:
        for instance in self.instances:
            instance.begin_stop()
        for instance in self.instances:
            instance.finish_stop()

    def kill(self) -> None:
        for instance in self.instances:
            instance.kill()

    def last_words(self) -> str:
        return "; ".join(instance.last_words() for instance in self.instances)
