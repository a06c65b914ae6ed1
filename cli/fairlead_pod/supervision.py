"""Process 1 of a container: starts children, forwards signals, reaps, restarts with a back-off.

One loop with `poll`: a signal, a line from a child, or a timer wakes it. It ends when it was told
to end and all children are gone, or when a child cannot be kept running (`restarts`); its exit code
is then that of the child.

Children stop in the reverse order of their start, each when the one before is gone.
"""

import os
import select
import signal
import sys
import time

from fairlead_pod.child import Child

TERMINATION_LOG = "/dev/termination-log"
TERMINATION_MESSAGE_MAX = 4096
_SIGNALLED = 128
_EXIT_FAILED = 1


class Supervisor:
    """`run` returns the exit code of the container."""

    def __init__(self, children: list[Child], *, termination_log: str = TERMINATION_LOG) -> None:
        self._children = children
        self._termination_log = termination_log
        self._received: list[int] = []
        self._stop_signal = 0
        self._exit_code: int | None = None
        self._wakeup = -1
        self._poll = select.poll()

    def run(self) -> int:
        """Run until a signal or a child that cannot be kept running ends it."""
        self._listen_to_signals()
        while True:
            now_s = time.monotonic()
            self._start_due(now_s)
            if self._is_over():
                break
            self._wait(now_s)
            self._handle_signals()
            self._read_pipes()
            self._reap()
            self._act_on_timers(time.monotonic())
        return self._exit_code or 0

    def _is_over(self) -> bool:
        is_ending = self._stop_signal or self._exit_code is not None
        return bool(is_ending) and not any(child.pid for child in self._children)

    def _listen_to_signals(self) -> None:
        self._wakeup, writer = os.pipe()
        for end in (self._wakeup, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda received, _: self._received.append(received))
        self._poll.register(self._wakeup, select.POLLIN)

    def _wait(self, now_s: float) -> None:
        timers = [timer for child in self._children for timer in child.timers()]
        timeout_ms = max(int((min(timers) - now_s) * 1000) + 1, 0) if timers else None
        for number, _ in self._poll.poll(timeout_ms):
            if number == self._wakeup:
                os.read(self._wakeup, 512)

    def _handle_signals(self) -> None:
        received, self._received = self._received, []
        for number in received:
            if number == signal.SIGCHLD:
                continue
            say(f"{signal.Signals(number).name}: stopping")
            self._stop_signal = number
            for child in self._children:
                child.start_at_s = None
            self._stop_next(again=True)

    def _stop_next(self, *, again: bool = False) -> None:
        """Stop the last running child; the one before it follows when that is gone."""
        for child in reversed(self._children):
            if child.pid:
                if again or not child.is_stopping:
                    child.stop(self._stop_signal or signal.SIGTERM, time.monotonic())
                return

    def _start_due(self, now_s: float) -> None:
        for child in self._children:
            if child.pid or child.start_at_s is None or child.start_at_s > now_s:
                continue
            try:
                child.start(now_s)
            except OSError as error:  # No process or memory is free: it counts as a failed run.
                self._on_failure(child, _EXIT_FAILED, f"cannot be started: {error.strerror}")
                continue
            self._poll.register(child.pipe, select.POLLIN)
            say(f"{child.name} started, pid {child.pid}")

    def _read_pipes(self) -> None:
        for child in self._children:
            if child.pid and child.is_pipe_open:
                self._read_pipe(child)

    def _read_pipe(self, child: Child) -> None:
        for line in child.read_lines():
            say(f"{child.name} {child.obey(line, time.monotonic())}")
        if not child.is_pipe_open:  # Otherwise every poll would return at once.
            self._poll.unregister(child.pipe)

    def _reap(self) -> None:
        """Reap every ended process, including orphans that process 1 has inherited."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self._children:
                if child.pid == pid:
                    if child.is_pipe_open:
                        self._poll.unregister(child.pipe)
                    child.ended()
                    self._on_end(child, os.waitstatus_to_exitcode(status))

    def _on_end(self, child: Child, code: int) -> None:
        now_s = time.monotonic()
        exit_code = code if code >= 0 else _SIGNALLED - code
        if self._stop_signal or self._exit_code is not None:
            say(f"{child.name} {describe(code)}")
            if child.is_vital and not self._exit_code:
                self._exit_code = exit_code
            self._stop_next()
            return
        if child.is_stopping or child.was_killed_on_request:
            child.start_at_s = now_s
            say(f"{child.name} {describe(code)}; starting it again")
            return
        self._on_failure(child, exit_code, describe(code))

    def _on_failure(self, child: Child, exit_code: int, what: str) -> None:
        """Restart a child that ended by itself, or could not be started; or give up."""
        now_s = time.monotonic()
        child.failures = child.failures.after_run(child.started_at_s, now_s)
        if child.is_vital and child.failures.gives_up(exit_code, now_s):
            self._give_up(child, exit_code, what)
            return
        delay_s = child.failures.delay_s
        child.start_at_s = now_s + delay_s
        when = f"in {delay_s:g} s" if delay_s else "at once"
        say(f"{child.name} {what}; starting it again {when}", level="WARNING")

    def _give_up(self, child: Child, exit_code: int, what: str) -> None:
        reason = child.fatal_message or f"{child.name} {what}"
        say(f"giving up: {reason}", level="ERROR")
        write_termination_message(reason, self._termination_log)
        self._exit_code = exit_code
        for other in self._children:
            other.start_at_s = None
        self._stop_next()

    def _act_on_timers(self, now_s: float) -> None:
        for child in self._children:
            if child.resume_at_s is not None and child.resume_at_s <= now_s:
                child.resume()
                say(f"{child.name} resumed")
            if child.empty_at_s is not None and child.empty_at_s <= now_s:
                for problem in child.empty_disks():
                    say(f"a ballast stays until the next start: {problem}", level="ERROR")
                say(f"{child.name} has room again")
            if child.take_turn(now_s):
                say(f"{child.name} stalls no more")
            if child.kill_at_s is not None and child.kill_at_s <= now_s:
                child.kill_at_s = None
                say(f"{child.name} does not stop: killing it", level="WARNING")
                child.signal_group(signal.SIGKILL)


def describe(code: int) -> str:
    """Return how a process ended, in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def say(text: str, *, level: str = "INFO") -> None:
    """Write a line to the container's log, in the form of the children's own lines."""
    now_s = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s))
    line = f"{stamp},{int(now_s * 1000) % 1000:03d} supervisor {level}: {text}\n"
    try:
        os.write(sys.stderr.fileno(), line.encode())
    except OSError:  # Nobody reads the log any more; the children go on.
        return


def write_termination_message(text: str, path: str = TERMINATION_LOG) -> None:
    """Write the reason where the kubelet reads it; do nothing outside containers."""
    if not os.path.exists(path):  # noqa: PTH110 (pathlib would double this process's imports)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text[:TERMINATION_MESSAGE_MAX] + "\n")
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}", level="WARNING")
