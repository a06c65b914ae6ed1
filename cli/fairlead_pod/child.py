"""One supervised process: its start in its own process group, signals, faults, its messages.

A child gets the number of a pipe in `FAIRLEAD_SUPERVISOR_FD` and may write these lines to it:

| line | meaning |
|---|---|
| `kill` | SIGKILL to the child's group; this death does not count as a failure |
| `pause MS` | SIGSTOP to the group, and SIGCONT after this time, in any case |
| `resume` | SIGCONT now, and remove any ballast |
| `slow MS STALL RUN` | SIGSTOP and SIGCONT in turns of STALL and RUN milliseconds, for MS |
| `fill MS DIRECTORY` | fill a directory's disk with ballast, and remove it after this time |
| `fatal TEXT` | why it is about to exit; becomes the container's termination message |

Faults are only done if the container was started with drills enabled. Signals go to the whole
group: processes that the child has started must not outlive it, or keep its files open.
"""

import os
import signal

from fairlead_broker import ballast
from fairlead_pod.restarts import FailureHistory
from fairlead_pod.stalls import StallCycle, read_stalls

SUPERVISOR_FD = "FAIRLEAD_SUPERVISOR_FD"
PAUSE_MAX_MS = 600_000
_LINE_MAX = 4096
_LASTING = ("pause", "slow", "fill")
"""Faults with a duration: they would outlast the time that a stopping child has."""
_SIGNALS_RESET = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGPIPE,
)


class Child:
    """`pid` is 0 while it does not run; then `start_at_s` is its next start, or None."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        environment: dict[str, str],
        *,
        allows_faults: bool = False,
        stop_grace_s: float | None = None,
        is_vital: bool = True,
    ) -> None:
        """Restart a child forever, whatever its exit code is, if it is not vital.

        If it still runs `stop_grace_s` after SIGTERM, it is killed; None leaves that to the
        kubelet.
        """
        self.name = name
        self.is_vital = is_vital
        self.pid = 0
        self.started_at_s = 0.0
        self.start_at_s: float | None = 0.0
        self.is_stopping = False
        self.kill_at_s: float | None = None
        self.resume_at_s: float | None = None
        self.stalls: StallCycle | None = None
        self.empty_at_s: float | None = None
        """When the ballasts in `_filled` are removed."""
        self.failures = FailureHistory()
        self.was_killed_on_request = False
        self.fatal_message = ""
        self.pipe = -1
        self.is_pipe_open = False
        self._arguments = arguments
        self._environment = environment
        self._allows_faults = allows_faults
        self._stop_grace_s = stop_grace_s
        self._unread = b""
        self._filled: list[str] = []

    def start(self, now_s: float) -> None:
        """Start the process; OSError if that fails."""
        self.started_at_s = now_s
        self.start_at_s = self.kill_at_s = self.resume_at_s = self.stalls = None
        self.is_stopping = self.was_killed_on_request = False
        self.fatal_message = ""
        self._unread = b""
        self.pipe, writer = os.pipe()
        os.set_blocking(self.pipe, False)
        os.set_inheritable(writer, True)
        try:
            self.pid = os.posix_spawn(
                self._arguments[0],
                self._arguments,
                {**self._environment, SUPERVISOR_FD: str(writer)},
                setpgroup=0,
                setsigmask=(),
                setsigdef=_SIGNALS_RESET,
            )
        except OSError:
            os.close(self.pipe)
            self.pipe = -1
            raise
        finally:
            os.close(writer)
        self.is_pipe_open = True

    def ended(self) -> None:
        """Kill the processes that the reaped child has left behind, and forget it."""
        self.signal_group(signal.SIGKILL)
        self.read_lines()
        os.close(self.pipe)
        self.pipe = -1
        self.pid = 0
        self.kill_at_s = self.resume_at_s = self.stalls = None
        self.empty_disks()

    def stop(self, number: int, now_s: float) -> None:
        """Ask it to end. A paused process is continued first, because it must handle the signal."""
        self.resume()
        self.empty_disks()
        self.is_stopping = True
        if self._stop_grace_s is not None and self.kill_at_s is None:
            self.kill_at_s = now_s + self._stop_grace_s
        self._signal(number)

    def resume(self) -> None:
        """End a pause or stalls, if there are any; `empty_disks` removes the ballasts."""
        if self.resume_at_s is not None or self.stalls is not None:
            self.resume_at_s = self.stalls = None
            self.signal_group(signal.SIGCONT)

    def empty_disks(self) -> list[str]:
        """Remove the ballasts of a drill; return failures, which the next start removes."""
        self.empty_at_s = None
        filled, self._filled = self._filled, []
        problems = []
        for directory in filled:
            try:
                ballast.remove(directory)
            except OSError as error:
                problems.append(str(error))
        return problems

    def timers(self) -> list[float]:
        """Return the times of the next actions."""
        stalls = None if self.stalls is None else self.stalls.turn_at_s
        start = None if self.pid else self.start_at_s
        timers = (self.kill_at_s, self.resume_at_s, self.empty_at_s, stalls, start)
        return [timer for timer in timers if timer is not None]

    def take_turn(self, now_s: float) -> bool:
        """Stop or continue the process for a drill; tell whether its stalls have just ended."""
        if self.stalls is None:
            return False
        if self.stalls.turn(now_s):
            self.signal_group(signal.SIGSTOP if self.stalls.is_still else signal.SIGCONT)
        if self.stalls.is_over(now_s):
            self.resume()
            return True
        return False

    def signal_group(self, number: int) -> None:
        """Signal the process and all that it started; do nothing if they are gone."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:  # Some kernels raise this if only zombies are left.
            return

    def _signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def read_lines(self) -> list[str]:
        """Read the lines that the child has written to its pipe; store `fatal` lines."""
        try:
            data = os.read(self.pipe, _LINE_MAX)
        except BlockingIOError:
            return []
        self.is_pipe_open = bool(data)
        *lines, self._unread = (self._unread + data).split(b"\n")
        self._unread = self._unread[:_LINE_MAX]
        texts = [line.decode("utf-8", "replace").strip() for line in lines]
        for text in texts:
            if text.startswith("fatal "):
                self.fatal_message = text.removeprefix("fatal ")
        return [text for text in texts if text and not text.startswith("fatal ")]

    def obey(self, line: str, now_s: float) -> str:
        """Do a fault; return what was done, or why not, for the log."""
        if not self._allows_faults:
            return f"{line[:40]!r} ignored: drills are not enabled"
        command, _, argument = line.partition(" ")
        if self.is_stopping and command in _LASTING:
            return f"{line[:40]!r} ignored: it is stopping"
        if command == "kill":
            self.was_killed_on_request = True
            self.signal_group(signal.SIGKILL)
            return "killed for a drill"
        if command == "resume":
            self.resume()
            self.empty_disks()
            return "resumed"
        if command == "pause" and argument.isdecimal() and 0 < int(argument) <= PAUSE_MAX_MS:
            # Set the timer first, so that nothing can leave the child stopped.
            self.stalls = None
            self.resume_at_s = now_s + int(argument) / 1000
            self.signal_group(signal.SIGSTOP)
            return f"paused for {argument} ms for a drill"
        if command == "fill":
            return self._fill(argument, now_s)
        asked = read_stalls(argument) if command == "slow" else None
        if asked is not None and asked[0] <= PAUSE_MAX_MS:
            self.resume_at_s = None
            self.stalls = StallCycle(now_s, *asked)
            self.signal_group(signal.SIGSTOP)
            duration_ms, stall_ms, run_ms = asked
            return f"stalls {stall_ms} ms after each {run_ms} ms, for {duration_ms} ms, for a drill"
        return f"{line[:40]!r} ignored: no such fault"

    def _fill(self, argument: str, now_s: float) -> str:
        """Fill the disk of a directory, which the child has checked for that."""
        text, _, directory = argument.partition(" ")
        if not (text.isdecimal() and 0 < int(text) <= PAUSE_MAX_MS and directory.startswith("/")):
            return f"{argument[:40]!r} ignored: no such disk to fill"
        # Noted first, so that the ballast is removed whatever happens while it grows.
        self._filled.append(directory)
        self.empty_at_s = now_s + int(text) / 1000
        try:
            ballast.fill(directory)
        except OSError as error:
            self.empty_disks()
            return f"cannot fill the disk of {directory}: {error}"
        return f"has no room in {directory} for {text} ms, for a drill"
