"""Recovery of many logs at start-up, spread over a bounded number of child processes.

This blocks: the broker calls it in a thread before it serves requests, and reports the progress
over HTTP meanwhile. If there is little to scan, it runs in the process itself, because starting an
interpreter takes longer than scanning a few megabytes.

If a child dies (mostly it is killed for its memory), another child recovers its log. That happens
after all other logs, one log at a time, so that the child has the machine's memory to itself, and
after a longer pause each time.
"""

import json
import logging
import math
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import sleep
from typing import IO, Final

from fairlead_broker.disk import Disk, RealDisk
from fairlead_broker.log.files.text_files import NewerFormatError
from fairlead_broker.log.recovery.log_recovery import RecoveryReport, recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder

logger = logging.getLogger(__name__)

IN_PROCESS_BYTES: Final = 8 << 20
"""With at most this many bytes to scan, no child is started."""
DEATH_S: Final = 5.0
"""How long a child may take to exit after its output has ended."""
SILENCE_S: Final = 0.5
"""After this time without output of children, `on_progress` checks whether the broker stops."""
RETRY_PAUSES_S: Final = (1.0, 4.0, 15.0)
"""Pauses before further attempts at logs whose child has died; after the last they are offline."""


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """The progress of a recovery, for people who wait for it."""

    logs_total: int
    logs_done: int
    bytes_total: int
    bytes_done: int


@dataclass(slots=True)
class RecoveryOutcome:
    """Reports by directory, and errors by directory: the disk failed, or the child died."""

    reports: dict[str, RecoveryReport] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    children_lost: int = 0
    """Child processes that died in the middle of an order."""


class RecoveryPool:
    """Recovers all orders; `bytes_total` is the expected number of bytes to scan."""

    def __init__(
        self,
        disk: Disk,
        orders: Sequence[RecoveryOrder],
        *,
        bytes_total: int,
        workers_max: int,
        on_progress: Callable[[RecoveryProgress], None],
    ) -> None:
        self._disk = disk
        self._orders = deque(orders)
        self._workers_max = workers_max
        self._on_progress = on_progress
        self._progress = RecoveryProgress(len(orders), 0, bytes_total, 0)
        self._outcome = RecoveryOutcome()
        self._unfinished: dict[RecoveryOrder, str] = {}
        """Orders that children did not complete, and why."""

    def run(self, now_ms: int) -> RecoveryOutcome:
        """Recover everything; return when the last log is done. NewerFormatError."""
        if not self._orders:
            return self._outcome
        self._on_progress(self._progress)
        is_small = self._progress.bytes_total <= IN_PROCESS_BYTES
        if is_small or self._workers_max < 1 or not isinstance(self._disk, RealDisk):
            self._run_here(now_ms)
        else:
            self._run_in_children()
        return self._outcome

    def _run_here(self, now_ms: int) -> None:
        while self._orders:
            order = self._orders.popleft()
            try:
                report = recover_log(
                    self._disk, order, now_ms=now_ms, on_progress=self._note_scanned
                )
            except OSError as error:
                self._finish(order, {"error": str(error)})
            else:
                self._finish(order, {"report": asdict(report)})

    def _run_in_children(self) -> None:
        self._run_round(min(self._workers_max, len(self._orders)))
        for pause_s in RETRY_PAUSES_S:
            if not self._unfinished:
                return
            logger.warning(
                "the recovery of %d logs begins again in %d seconds, one at a time",
                len(self._unfinished),
                pause_s,
            )
            # Sleep in steps: `on_progress` checks whether the broker has to stop.
            for _ in range(math.ceil(pause_s)):
                sleep(min(pause_s, 1.0))
                self._on_progress(self._progress)
            again, self._unfinished = self._unfinished, {}
            for order in again:
                self._orders.append(order)
                self._run_round(1)
        for order, reason in self._unfinished.items():
            self._finish(
                order, {"error": f"{reason}, {len(RETRY_PAUSES_S) + 1} times; give it more memory"}
            )

    def _run_round(self, count: int) -> None:
        """Give the orders to `count` children; incomplete ones are in `_unfinished` then."""
        workers: list[_Worker] = []
        try:
            with selectors.DefaultSelector() as selector:
                for _ in range(count):
                    worker = _Worker()
                    workers.append(worker)
                    try:
                        worker.start()
                    except OSError as error:
                        logger.warning("a recovery process could not be started: %s", error)
                        break
                    worker.give(self._orders.popleft())
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                while selector.get_map():
                    ready = selector.select(SILENCE_S)
                    for key, _ in ready:
                        self._serve(key.data, selector)
                    if not ready:
                        # This call checks whether the broker has to stop.
                        self._on_progress(self._progress)
        finally:
            for worker in workers:
                worker.stop()
        while self._orders:
            self._unfinished[self._orders.popleft()] = "no recovery process was left"

    def _serve(self, worker: "_Worker", selector: selectors.BaseSelector) -> None:
        messages = worker.receive()
        if messages is None:
            self._outcome.children_lost += 1
            selector.unregister(worker.output)
            reason = f"the recovery process {worker.reap()}"
            self._unfinished[worker.order] = reason
            self._note_scanned(-worker.scanned_bytes)
            logger.warning("%s: %s", worker.order.directory, reason)
            return
        for message in messages:
            if "progress" in message:
                scanned_bytes = int(str(message["progress"]))
                worker.scanned_bytes += scanned_bytes
                self._note_scanned(scanned_bytes)
                continue
            if "newer" in message:
                raise NewerFormatError(str(message["newer"]))
            self._finish(worker.order, message)
            if self._orders:
                worker.give(self._orders.popleft())
            else:
                selector.unregister(worker.output)

    def _finish(self, order: RecoveryOrder, message: dict[str, object]) -> None:
        report = message.get("report")
        if isinstance(report, dict):
            self._outcome.reports[order.directory] = RecoveryReport(**report)
            if report["reason"]:
                logger.warning(
                    "%s was cut at offset %d (%d bytes, %d segments): %s",
                    order.directory,
                    report["log_end_offset"],
                    report["truncated_bytes"],
                    report["removed_segments"],
                    report["reason"],
                )
        else:
            self._outcome.errors[order.directory] = str(message["error"])
            logger.error("recovery of %s failed: %s", order.directory, message["error"])
        self._progress = replace(self._progress, logs_done=self._progress.logs_done + 1)
        self._on_progress(self._progress)

    def _note_scanned(self, scanned_bytes: int) -> None:
        self._progress = replace(
            self._progress, bytes_done=self._progress.bytes_done + scanned_bytes
        )
        self._on_progress(self._progress)


class _Worker:
    """A child process and its current order."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._input: IO[bytes]
        self.output: IO[bytes]
        self.order: RecoveryOrder
        self.scanned_bytes = 0
        """Scanned bytes of the current order."""

    def start(self) -> None:
        """Start the child. OSError if no process can be started."""
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "fairlead_broker.log.recovery.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._input, self.output = _pipe(process.stdin), _pipe(process.stdout)

    def give(self, order: RecoveryOrder) -> None:
        self.order, self.scanned_bytes = order, 0
        try:
            self._input.write(json.dumps(asdict(order)).encode() + b"\n")
            self._input.flush()
        except BrokenPipeError:
            # The child died; the end of its output reports that, with this order.
            logger.warning("a recovery process ended before %s", order.directory)

    def receive(self) -> list[dict[str, object]] | None:
        """Return the complete messages that have arrived; None when the child is gone."""
        data = os.read(self.output.fileno(), 65_536)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def reap(self) -> str:
        """Return how the child ended, after its output has ended."""
        if self._process is None:
            return "was never started"
        try:
            code = self._process.wait(DEATH_S)
        except subprocess.TimeoutExpired:
            return "said no more"
        if code == -signal.SIGKILL:
            return "was killed, for its memory as a rule"
        return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._input, self.output):
            try:
                pipe.close()
            except BrokenPipeError:
                continue


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("a child process without pipes")
    return pipe
