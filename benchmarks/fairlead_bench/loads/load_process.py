"""A load generator as a child process, and the resources of it and the broker while it ran.

The child connects and prepares, prints `ready`, waits for `go`, works, and prints one JSON line.
Only the time between `go` and the result is measured, for both.
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead_bench.loads.process_usage import read_cpu
from fairlead_bench.project import child_environment

FINISH_TIMEOUT_S: Final = 180
# Ten times the longest load on a slow machine: after that, the broker hangs or is gone.
LOAD_TIMEOUT_S: Final = 600
# A client is saturated if it is single-threaded and uses this share of a core, or if it has a
# sender thread and both together use more than this share: it could not have offered more load.
CLIENT_BOUND_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed run of one generator against one broker or cluster."""

    seconds: float
    broker_cpu_s: float
    client_cpu_s: float
    client_busiest_thread: float  # share of a core
    client_memory_mb: float  # the highest, of resident memory
    result: dict[str, Any]

    @property
    def is_client_bound(self) -> bool:
        return self.client_busiest_thread >= CLIENT_BOUND_SHARE


class LoadFailedError(Exception):
    """The generator ended without a result; the text is its output."""


def run_load(module: str, arguments: dict[str, object], *, pids: Sequence[int]) -> Sample:
    """Run `python -m fairlead_bench.loads.<module>` with these arguments as JSON.

    `pids` are the processes whose CPU is added up: the broker's, or all of a cluster.
    """
    environment = child_environment()
    process = subprocess.Popen(
        [sys.executable, "-m", f"fairlead_bench.loads.{module}", json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = threading.Timer(LOAD_TIMEOUT_S, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        if process.stdout.readline().strip() != "ready":
            raise LoadFailedError(f"{module} {arguments} did not get ready")
        before_s = read_cpu(pids)
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
        after_s = read_cpu(pids)
        if not line:
            reason = "ended" if watchdog.is_alive() else f"was killed after {LOAD_TIMEOUT_S} s"
            raise LoadFailedError(f"{module} {arguments} {reason} without a result")
        process.wait(FINISH_TIMEOUT_S)
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdin.close()
        process.stdout.close()
    report = json.loads(line)
    return Sample(
        seconds=report["seconds"],
        broker_cpu_s=after_s - before_s,
        client_cpu_s=report["cpu_s"],
        client_busiest_thread=report["busiest_thread"],
        client_memory_mb=report["memory_mb"],
        result=report["result"],
    )


def serve_load(work: Callable[[], dict[str, Any]]) -> None:
    """Run in the child: wait for `go`, time `work` and print the line for run_load."""
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        return
    threads_before = read_thread_ticks()
    cpu_before, started_s = read_own_cpu(), time.monotonic()
    result = work()
    seconds = time.monotonic() - started_s
    cpu_s = read_own_cpu() - cpu_before
    ticks = max(
        count - threads_before.get(thread, 0) for thread, count in read_thread_ticks().items()
    )
    busiest = ticks / os.sysconf("SC_CLK_TCK") / seconds
    report = {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "busiest_thread": busiest,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "result": result,
    }
    print(json.dumps(report), flush=True)


def read_own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def read_thread_ticks() -> dict[str, int]:
    """Return the CPU ticks of each thread of this process, to detect a saturated thread."""
    ticks = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has just ended
        ticks[task.name] = int(fields[11]) + int(fields[12])
    return ticks
