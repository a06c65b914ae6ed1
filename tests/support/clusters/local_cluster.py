"""A real local cluster, run by the `fairlead` command, which tests call as a user does."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead_bench.peers.own_ports import take_base
from fairlead_cli.client import access
from fairlead_cli.local.layout import Ports

ROOT = Path(__file__).resolve().parents[3]
TOPICS = ROOT / "examples" / "topics.yaml"
COMMAND_TIMEOUT_S = 180.0
# Where the HTTP ports begin, behind all that follow the first Kafka port.
HTTP_SHIFT = 220
BROKERS_MAX = 4
PATIENT = ("--set", "broker.session.timeout.ms=60000")
"""For `up`: no broker is given up because it is silent, as one is that gets no processor on a busy
machine. A killed broker is given up as soon as ever: its port refuses connections."""


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
        """Start a patient, detached cluster in which an empty group without offsets lives on.

        By default, the check for expired offsets every ten minutes removes these groups.
        """
        lasting = ("--set", "offsets.retention.check.interval.ms=86400000")
        return self.up(*PATIENT, *lasting, *arguments)

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


def take_cluster_ports() -> tuple[int, int]:
    """The first Kafka port and the first HTTP port of a cluster, secure or not, proxy or not."""
    shifts = {
        shift
        for is_secure in (False, True)
        for shift, _ in Ports(0, HTTP_SHIFT, is_secure).purposes(BROKERS_MAX, fault_proxy=True)
    }
    kafka = take_base(sorted(shifts))
    return kafka, kafka + HTTP_SHIFT


def log_in_to(cli: Cli) -> None:
    """Let the clients of this process log in to this cluster, and to no earlier one."""
    log_out()
    access.note_local_cluster(cli.data)


def log_out() -> None:
    """Let the clients of this process log in nowhere: clusters of other tests are not secure."""
    access._settings.clear()
    access._files.clear()
