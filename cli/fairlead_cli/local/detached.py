"""The supervisor that `fairlead up --detach` starts in the background.

The waiting command starts `python -m fairlead_cli.local.detached`, sends the plan to its stdin, and
reads one JSON event a line from its stdout until the cluster is ready or has failed. After that
the supervisor is alone: its stdout is closed, and its own output goes to `logs/supervisor.log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.local.cluster_file import ClusterFile, decode_cluster_file
from fairlead_cli.local.live_log import format_line, format_ready
from fairlead_cli.local.plan import LaunchPlan, decode_plan, encode_plan
from fairlead_cli.local.preflight import build_unusable_error

if TYPE_CHECKING:
    from collections.abc import Callable


class PipeReporter:
    """Sends events to the waiting command while there is one, and logs everything (stderr)."""

    def __init__(self, pipe: IO[str]) -> None:
        self.pipe: IO[str] | None = pipe

    def progress(self, name: str, text: str) -> None:
        self.log(name, text)
        self.send({"event": "progress", "name": name, "text": text})

    def warning(self, name: str, text: str) -> None:
        self.log(name, text)
        self.send({"event": "warning", "name": name, "text": text})

    def ready(self, cluster: ClusterFile, seconds: float) -> None:
        self.log("fairlead", f"ready in {seconds:.1f} s")
        self.send({"event": "ready", "cluster": asdict(cluster), "seconds": seconds})
        self.hang_up()

    def failed(self, error: CliError) -> None:
        self.log("fairlead", f"{error.message}\n{error.hint or ''}")
        document = {"message": error.message, "hint": error.hint, "code": int(error.exit_code)}
        self.send({"event": "failed", **document})
        self.hang_up()

    def output(self, lines: list[tuple[str, str]]) -> None:
        """Do nothing: each child has its own log file."""

    def settle(self) -> None:
        """Do nothing: no line is held back."""

    def log(self, name: str, text: str) -> None:
        """Write to the log; ignore a full disk, because the brokers still need the supervisor."""
        with contextlib.suppress(OSError):
            print(time.strftime("%Y-%m-%d %H:%M:%S"), name, text, file=sys.stderr, flush=True)

    def send(self, event: dict[str, Any]) -> None:
        if self.pipe is None:
            return
        try:
            print(json.dumps(event), file=self.pipe, flush=True)
        except OSError:
            self.pipe = None

    def hang_up(self) -> None:
        """Close stdout: the waiting command waits for its end."""
        if self.pipe is not None:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.pipe.fileno())
            os.close(null)
            self.pipe = None


def start_detached(plan: LaunchPlan, *, data_option: str, say: Callable[[str], None]) -> None:
    """Start a supervisor in its own session, and wait until its cluster serves."""
    log_file = plan.layout.output_file("supervisor")
    try:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        log = log_file.open("ab")
    except OSError as error:
        raise build_unusable_error(plan.layout, error) from error
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead_cli.local.detached"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
        )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a pipe was asked for")
    try:
        with process.stdout:
            # A supervisor that ended at once is reported below; its closed pipe is not our stdout.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(encode_plan(plan) + "\n")
            for line in process.stdout:
                if show_event(json.loads(line), data_option=data_option, say=say):
                    # It outlives this process on purpose, so there is nothing to wait for.
                    process.returncode = 0
                    return
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    process.wait()
    raise CliError(
        f"the supervisor ended with exit code {process.returncode} before the cluster was ready",
        hint=f"Its log says why: {log_file}",
    )


def show_event(event: dict[str, Any], *, data_option: str, say: Callable[[str], None]) -> bool:
    """Show one event of the supervisor; return True for the last one. CliError for a failure."""
    match event["event"]:
        case "ready":
            cluster = decode_cluster_file(event["cluster"])
            say(format_ready(cluster, event["seconds"], data_option))
            return True
        case "failed":
            error = CliError(event["message"], hint=event["hint"])
            error.exit_code = ExitCode(event["code"])
            raise error
        case level:
            shown = "WARNING" if level == "warning" else "INFO"
            say(format_line(event["name"], event["text"], level=shown))
            return False


def main() -> None:
    """Run the supervisor in the detached process."""
    from fairlead_cli.local.cluster_supervisor import ClusterSupervisor

    plan = decode_plan(sys.stdin.readline())
    sys.stdin.close()
    reporter = PipeReporter(sys.stdout)
    os.chdir("/")

    async def supervise() -> None:
        await ClusterSupervisor(plan, reporter).run()

    try:
        asyncio.run(supervise())
    except CliError as error:
        reporter.failed(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
