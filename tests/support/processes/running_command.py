"""A running command, and its output so far."""

import subprocess
import threading
from dataclasses import dataclass, field

from waiting import DEADLINE_S, wait_until


@dataclass
class RunningCommand:
    """Collects the lines of a process, which writes both of its streams into one pipe."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self.collect)
        self.reader.start()

    def collect(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self.has(text) or self.process.poll() is not None)
        assert self.has(text), self.lines

    def end(self, number: int | None = None) -> int:
        """Wait for the end, after a signal if one is given; return the exit code."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=DEADLINE_S)
        self.reader.join(timeout=DEADLINE_S)
        return code

    @property
    def records(self) -> list[str]:
        return [line for line in self.lines if line.startswith("record-")]
