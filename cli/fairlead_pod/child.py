"""One supervised process: starting it in a group of its own, signals, faults, its messages.

A child gets the number of a pipe in `FAIRLEAD_SUPERVISOR_FD` and may write lines to it:

| line | meaning |
|---|---|
| `kill` | SIGKILL to the child's group; that death counts as no failure |
| `pause MS` | SIGSTOP to the group, SIGCONT so many milliseconds later, whatever happens |
| `resume` | SIGCONT now, and no ballast any more |
| `slow MS STALL RUN` | SIGSTOP and SIGCONT in turns of so many milliseconds, for MS in all |
| `fill MS DIRECTORY` | a ballast fills the disk of a directory, and goes so much later |
| `fatal TEXT` | why it is about to exit; becomes the container's termination message |

Faults are obeyed only where the container was started with drills enabled. Signals go to the whole
group: processes that the child started must not live on, or hold its files, once it is gone.
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
"""Faults that take their time: they would outlast what a stopping child is given to end in."""
_SIGNALS_RESET = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGCHLD,
    signal.SIGPIPE,
)


class Child:
    """`pid` is 0 while it does not run; then `start_at_s` says when it is started, None never."""

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
        """One that is not vital is started again for ever: an exit code matters less than that.

        After `stop_grace_s` without obeying SIGTERM it is killed; None leaves that to the kubelet.
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
        """When the ballasts in `_filled` go."""
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
        """Start the process; OSError if that is impossible."""
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
        """End the processes that the reaped one has left behind, and forget it."""
        self.signal_group(signal.SIGKILL)
        self.read_lines()
        os.close(self.pipe)
        self.pipe = -1
        self.pid = 0
        self.kill_at_s = self.resume_at_s = self.stalls = None
        self.empty_disks()

    def stop(self, number: int, now_s: float) -> None:
        """Ask it to end. A paused process is continued first, or it would never hear of it."""
        self.resume()
        self.empty_disks()
        self.is_stopping = True
        if self._stop_grace_s is not None and self.kill_at_s is None:
            self.kill_at_s = now_s + self._stop_grace_s
        self._signal(number)

    def resume(self) -> None:
        """End a pause or stalls, if there are any; the ballasts go with another call."""
        if self.resume_at_s is not None or self.stalls is not None:
            self.resume_at_s = self.stalls = None
            self.signal_group(signal.SIGCONT)

    def empty_disks(self) -> list[str]:
        """Remove the ballasts of a drill; return what could not be, which the next start does."""
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
        """Return the moments at which something is due."""
        stalls = None if self.stalls is None else self.stalls.turn_at_s
        start = None if self.pid else self.start_at_s
        timers = (self.kill_at_s, self.resume_at_s, self.empty_at_s, stalls, start)
        return [timer for timer in timers if timer is not None]

    def take_turn(self, now_s: float) -> bool:
        """Stall or run as a drill asks for; tell whether the stalls have just ended."""
        if self.stalls is None:
            return False
        if self.stalls.turn(now_s):
            self.signal_group(signal.SIGSTOP if self.stalls.is_still else signal.SIGCONT)
        if self.stalls.is_over(now_s):
            self.resume()
            return True
        return False

    def signal_group(self, number: int) -> None:
        """Signal the process and all that it started; nothing if they are gone."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return
        except PermissionError:  # Only zombies are left, which some kernels report like this.
            return

    def _signal(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return

    def read_lines(self) -> list[str]:
        """Take what the child has written to its pipe; `fatal` lines are kept."""
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
        """Carry out a fault; what was done, or why not, for the log."""
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
            # The timer first: nothing may come between that leaves the child stopped.
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
        """Fill the disk of a directory, which its owner has found fit for that."""
        text, _, directory = argument.partition(" ")
        if not (text.isdecimal() and 0 < int(text) <= PAUSE_MAX_MS and directory.startswith("/")):
            return f"{argument[:40]!r} ignored: no such disk to fill"
        # Noted first: whatever happens while it fills, the ballast goes.
        self._filled.append(directory)
        self.empty_at_s = now_s + int(text) / 1000
        try:
            ballast.fill(directory)
        except OSError as error:
            self.empty_disks()
            return f"cannot fill the disk of {directory}: {error}"
        return f"has no room in {directory} for {text} ms, for a drill"
