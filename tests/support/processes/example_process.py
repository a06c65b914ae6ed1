"""An example of `examples/consumers` as a user runs it: a process, with log and signals."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fairlead_bench.peers.kafka_distribution import ensure_kafka

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "consumers"
KILL_AT_LINE = Path(__file__).with_name("kill_at_line.py")
DEADLINE_S = 60.0


class ExampleProcess:
    """One run of `name`.py, or of a file with another suffix. `kill_at` is a line of a Python
    program, and after how many executions of it the process is killed."""

    def __init__(
        self, directory: Path, name: str, *arguments: str, kill_at: tuple[int, int] | None = None
    ) -> None:
        if name.endswith(".java"):
            # Java compiles a program that is given as its source.
            program = str(EXAMPLES / name)
            started = ensure_kafka().java_command(program, heap_mb=256, options=())
        else:
            killer = [] if kill_at is None else [str(KILL_AT_LINE), *map(str, kill_at)]
            started = [sys.executable, *killer, str(EXAMPLES / f"{name}.py")]
        self.command = [*started, *arguments]
        self.output = directory / f"{name}-{time.monotonic_ns()}.log"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running: {self.command}\n{self.text}") from error

    def succeed(self) -> str:
        """Wait for an end without an error; return the output."""
        assert self.wait() == 0, self.text
        return self.text

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true, while the example runs."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert self.is_running, self.text
            assert time.monotonic() < deadline, self.text
            time.sleep(0.002)

    def kill(self) -> None:
        """Send SIGKILL: it cannot finish anything."""
        assert self.is_running, self.text
        self.process.kill()
        assert self.wait() == -signal.SIGKILL

    def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Stop it as a supervisor or Ctrl-C does; it must end cleanly."""
        assert self.is_running, self.text
        self.process.send_signal(number)
        return self.succeed()

    def clean_up(self) -> None:
        if self.is_running:
            self.process.kill()
        self.process.wait()
