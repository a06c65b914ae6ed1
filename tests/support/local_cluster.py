"""A real local cluster, run by the `fairlead` command, and the means to call it as a user does."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOPICS = ROOT / "examples" / "topics.yaml"
COMMAND_TIMEOUT_S = 60.0
DEADLINE_S = 60.0
# Below the ports that the system hands out by itself (net.ipv4.ip_local_port_range).
LOWEST_PORT, HIGHEST_PORT = 20_000, 32_000
# Tests that run side by side look for ports in ranges of their own.
WORKERS_MAX = 3
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS_MAX


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Cli:
    """Runs `fairlead` against one data directory."""

    data: Path
    port: int
    http_port: int
    spawned: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(self, *arguments: str) -> list[str]:
        own = [] if arguments[0] == "log" else ["--data", str(self.data)]
        return [sys.executable, "-m", "fairlead_cli.main", *arguments, *own]

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Outcome:
        """Run to the end."""
        result = subprocess.run(
            self.command(*arguments),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return Outcome(result.returncode, result.stdout.decode(), result.stderr.decode())

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> Outcome:
        """Run, and expect success."""
        outcome = self(*arguments, stdin=stdin)
        assert outcome.code == 0, outcome
        return outcome

    def up_for_groups(self, *arguments: str) -> Outcome:
        """Start a detached cluster in which an empty group without offsets lives as long as a test.

        Its offsets' expiry, every ten minutes, ends such groups at once, as Kafka does.
        """
        return self.up("--set", "offsets.retention.check.interval.ms=86400000", *arguments)

    def up(self, *arguments: str) -> Outcome:
        """Start a detached cluster."""
        ports = ("--port", str(self.port), "--http-port", str(self.http_port))
        return self("up", "--detach", *ports, *arguments)

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that goes on; it is ended with the test."""
        process = subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self.spawned.append(process)
        return process

    def status(self) -> Any:
        return self("status", "-o", "json").json

    def close(self) -> None:
        for process in self.spawned:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=COMMAND_TIMEOUT_S)
        self("down", "--timeout-s", "10")


def find_free_ports() -> tuple[int, int]:
    """Kafka and HTTP ports whose whole ranges are free now."""
    while True:
        share = (HIGHEST_PORT - LOWEST_PORT) // WORKERS_MAX
        lowest = LOWEST_PORT + WORKER * share
        kafka = random.randrange(lowest, lowest + share - 400)
        http = kafka + 220
        wanted = [kafka + shift for shift in (0, 1, 2, 99, 100, 101, 102)]
        wanted += [http + shift for shift in (0, 1, 2, 90)]
        if all(is_free(port) for port in wanted):
            return kafka, http


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.05)
