"""Writes the checkpoint files: high watermarks, log starts and recovery points, together.

The loop collects the values, a thread writes the files that changed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from fairlead_broker.broker import Broker
    from fairlead_broker.log.directory.checkpoints import CheckpointJob
    from fairlead_broker.log.directory.log_directory import LogDirectory

logger = logging.getLogger(__name__)

ROUNDS_AFTER_TRUNCATION_MAX: Final = 100
RETRY_S: Final = 0.02


class CheckpointWriter:
    """`write` is a round for `run_periodically`."""

    def __init__(
        self,
        broker: Broker,
        executor: Executor,
        *,
        on_disk_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_disk_error` is told the path of a directory that has refused its checkpoints."""
        self._broker = broker
        self._directories = broker.log_directories
        self._executor = executor
        self._on_disk_error = on_disk_error
        self._task: asyncio.Task[None] | None = None

    def write_soon(self) -> None:
        """Write at once: a truncated log takes no appends until its lower mark is durable."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_guarded())

    async def finished(self) -> None:
        """Wait for what `write_soon` has begun."""
        if self._task is not None:
            await self._task

    async def _write_guarded(self) -> None:
        try:
            # More than once where a round was under way when the log was truncated.
            for _ in range(ROUNDS_AFTER_TRUNCATION_MAX):
                await self.write()
                if not any(log.refusal == AWAITS_CHECKPOINT for log in self._directories.logs):
                    return
                await asyncio.sleep(RETRY_S)
        except Exception:
            # The next round tries again; the log that waits for it goes on waiting.
            self._broker.metrics.task_failures += 1
            logger.exception("writing the checkpoint of a truncation failed")

    async def write(self) -> None:
        """One round; an idle broker writes nothing."""
        for directory in self._directories.live:
            job = directory.begin_checkpoint(high_watermarks(self._broker, directory))
            if job is not None:
                await self._carry_out(directory, job)

    async def _carry_out(self, directory: LogDirectory, job: CheckpointJob) -> None:
        """Have a thread write; to its end also where a stop cancels this.

        The stop writes once more, which it cannot while this one counts as under way.
        """
        writing = asyncio.get_running_loop().run_in_executor(self._executor, job.run)
        try:
            await asyncio.shield(writing)
        finally:
            await writing
            directory.complete_checkpoint(job)
            if job.error is not None:
                # Nobody else may be writing there, and what checkpoints say is out of date.
                self._on_disk_error(directory.path)


def high_watermarks(broker: Broker, directory: LogDirectory) -> dict[tuple[str, int], int]:
    """Of every replica in a directory, for its checkpoint.

    Logs that were found at the start, and whose partitions are still to be taken up, keep theirs.
    """
    taken_up = {
        key: partition.high_watermark
        for key, partition in broker.partitions.items()
        if directory.log(*key) is partition.log
    }
    found = directory.high_watermarks
    return {key: found[key] for key in found if directory.log(*key) is not None} | taken_up
