"""Carries out moves of replicas between the log directories of this broker.

As many run at a time as there are directories, as in Kafka, each with a thread for its jobs. What
comes next is said by the move (`log.moving`). All of them together are as fast as
`replica.alter.log.dirs.io.max.bytes.per.second` allows.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import MOVE_STEP_BYTES, MOVES_AT_ONCE_MAX, THROTTLED_SLICE_BYTES
from fairlead_broker.log.moving.move_plan import Step
from fairlead_broker.replication.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from fairlead_broker.broker import Broker
    from fairlead_broker.log.moving.replica_move import ReplicaMove

logger = logging.getLogger(__name__)

RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
UNLIMITED: Final = (1 << 63) - 1
STEPS_A_SECOND: Final = 10
WAIT_S: Final = 0.02
"""Until a move looks again at a log that somebody else works on."""
ROOM_WAIT_S: Final = 0.5
HELD_BACK_MAX_S: Final = 1.0
"""After this time the rate is checked again, because somebody may have raised it."""


class ReplicaMover:
    """`run` ends some time after `stop`: when no log is between two directories."""

    def __init__(
        self,
        broker: Broker,
        *,
        on_disk_error: Callable[[str], None],
    ) -> None:
        """`on_disk_error` is called with the path of a directory that failed during a move."""
        self._broker = broker
        self._on_disk_error = on_disk_error
        self._moves = broker.log_directories.moves
        self._asked = asyncio.Event()
        self._stopped = asyncio.Event()
        self._bucket: TokenBucket | None = None
        self._running: dict[ReplicaMove, None] = {}
        """The moves that have begun, in the order in which they did."""

    async def run(self) -> None:
        """Until stopped; sleeps while nothing more is to move."""
        self._moves.on_asked = self._asked.set
        at_once_max = min(len(self._broker.log_directories.paths), MOVES_AT_ONCE_MAX)
        executor = ThreadPoolExecutor(at_once_max, thread_name_prefix="move")
        try:
            async with asyncio.TaskGroup() as group:
                while not self._stopped.is_set():
                    self._asked.clear()
                    while (move := self._moves.next_move(self._running, at_once_max)) is not None:
                        self._running[move] = None
                        group.create_task(self._run_one(move, executor), name="replica move")
                    await self._asked.wait()
        finally:
            # The jobs have ended, unless this task was cancelled: then nothing waits for them.
            executor.shutdown(wait=False)
            self._moves.on_asked = None

    def stop(self) -> None:
        """Begin no step any more, but those that a log in between needs."""
        self._stopped.set()
        self._asked.set()

    async def _run_one(self, move: ReplicaMove, executor: Executor) -> None:
        try:
            await self._carry_out(move, executor)
        except Exception:
            self._broker.metrics.task_failures += 1
            logger.exception("the move of %s to %s failed", move.log.path, move.target.path)
            move.abandon()
            self._moves.note_over(move)
        finally:
            self._running.pop(move)
            self._asked.set()

    async def _carry_out(self, move: ReplicaMove, executor: Executor) -> None:
        loop, clock = asyncio.get_running_loop(), self._broker.clock
        while (step := move.next_step()) is not Step.END:
            if self._stopped.is_set() and not (move.is_switched or move.reason):
                move.abandon()
                return
            if step is Step.COPY and await self._hold_back(move):
                continue
            if step is Step.COPY and not self._has_room(move):
                await self._pause(ROOM_WAIT_S)
                continue
            bucket, before = self._bucket, move.copied_bytes
            taken = move.step_bytes if step is Step.COPY else 0
            job = move.begin(step)
            if job is not None:
                if bucket is not None:
                    # Others look at the bucket while the job runs.
                    bucket.take(taken)
                await loop.run_in_executor(executor, job.run)
                move.complete(step, job, clock.now_ms())
                if bucket is not None and step is not Step.KEEP:
                    bucket.take(max(move.copied_bytes - before, 0) - taken)
            elif step in (Step.WAIT, Step.NOTE):
                await self._pause(WAIT_S)
            if step in (Step.LET_GO, Step.SWITCH):
                self._look_at(move)
        self._end(move)

    def _look_at(self, move: ReplicaMove) -> None:
        """Have the flusher look at a log: its files are others, or it may be flushed again."""
        log, broker = move.log, self._broker
        partition = broker.partitions.get((log.topic, log.partition))
        if partition is None or partition.log is not log:
            return
        if log.is_offline:
            broker.on_partition_offline(partition)
        if broker.on_moved is not None:
            broker.on_moved([partition])

    def _end(self, move: ReplicaMove) -> None:
        move.abandon()
        self._moves.note_over(move)
        log = move.log
        if move.is_switched:
            self._look_at(move)
            if move.left_over is not None:
                key = (log.topic, log.partition)
                self._broker.log_directories.note_left_over(key, move.left_over)
            logger.info("%s has moved to %s", f"{log.topic}-{log.partition}", log.path)
        elif move.has_failed:
            self._broker.metrics.failed_moves += 1
            logger.error("%s does not move to %s: %s", log.path, move.target.path, move.reason)
            self._on_disk_error(move.target.path)
        else:
            logger.info("%s stays: %s", log.path, move.reason)

    def _has_room(self, move: ReplicaMove) -> bool:
        """Tell whether a move need not wait for room until an earlier one to the same disk is over.

        If there is room for one only, both would fail. A move that is alone decides for itself.
        """
        others = []
        for each in self._running:
            if each is move:
                break
            if each.target is move.target and not (each.reason or each.is_switched):
                others.append(each.missing_bytes)
        return not others or move.fits_beside(sum(others))

    async def _hold_back(self, move: ReplicaMove) -> bool:
        """Wait if the rate says so; tell whether it did."""
        rate = self._broker.running_number(RATE)
        if rate == UNLIMITED:
            self._bucket = None
        elif self._bucket is None or self._bucket.rate != rate:
            self._bucket = TokenBucket(rate)
        move.step_bytes = max(min(rate // STEPS_A_SECOND, MOVE_STEP_BYTES), THROTTLED_SLICE_BYTES)
        if self._bucket is None:
            return False
        delay_ms = self._bucket.delay_ms(self._broker.clock.monotonic_ms())
        if not delay_ms:
            return False
        await self._pause(min(delay_ms / 1000, HELD_BACK_MAX_S))
        return True

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
