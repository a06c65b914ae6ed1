"""Reads a shard's partition from start to end before its groups or ids are served.

A thread reads pieces of the log, because they are mostly not in the page cache. The loop decodes
them in slices of a few milliseconds, so that it serves other requests meanwhile. The result counts
once the high watermark is known to be at its end (R22); then deadlines begin.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, TypeAlias

from fairlead_broker.coordinator.replay import Replay
from fairlead_broker.coordinator.shard import Shard, ShardState
from fairlead_broker.coordinator.slicing import in_slices
from fairlead_broker.limits import COORDINATOR_LOADS_AT_ONCE_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.coordinator.coordinating_broker import CoordinatingBroker
    from fairlead_broker.log.files.file_slice import FileSlice
    from fairlead_broker.log.lookup import Arrival, ReadResult
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)

_AnyShard: TypeAlias = Shard[Any]


class ShardLoader:
    """One task for each shard that is being loaded; few of them read at a time.

    `on_loaded` is called with a shard that may be served, and how many milliseconds that took.
    """

    def __init__(
        self,
        broker: CoordinatingBroker,
        *,
        buffer_size: int,
        on_loaded: Callable[[_AnyShard, int], None],
    ) -> None:
        self._broker = broker
        self._buffer_size = buffer_size
        self._on_loaded = on_loaded
        self._tasks: dict[_AnyShard, asyncio.Task[None]] = {}
        self._committed: dict[_AnyShard, asyncio.Future[None]] = {}
        self._reading = asyncio.Semaphore(COORDINATOR_LOADS_AT_ONCE_MAX)

    def begin(self, shard: _AnyShard) -> None:
        """Load a shard in the background; it is activated, or marked as failed."""
        task = asyncio.create_task(self._load(shard), name=f"load {shard.partition}")
        self._tasks[shard] = task
        task.add_done_callback(lambda _: self._tasks.pop(shard, None))

    def end(self, shard: _AnyShard) -> None:
        """Note that the shard is not needed any more."""
        task = self._tasks.pop(shard, None)
        if task is not None:
            task.cancel()

    def advanced(self, shard: _AnyShard) -> None:
        """Check again: the partition has advanced, and its high watermark may be known now."""
        waiter = self._committed.get(shard)
        if waiter is not None and not waiter.done() and shard.partition.is_high_watermark_valid:
            waiter.set_result(None)

    async def _load(self, shard: _AnyShard) -> None:
        clock = self._broker.clock
        began_ms = clock.monotonic_ms()
        replay = Replay()
        try:
            async with self._reading:
                await self._read(shard, replay)
            await self._until_committed(shard)
            await in_slices(shard.machine.begin(), clock)
        except Exception:
            # Whatever the error is: the shard must not stay in the state of loading for ever.
            shard.state = ShardState.FAILED
            self._broker.metrics.task_failures += 1
            logger.exception("%s cannot be read: what it keeps is not served", shard.partition)
            return
        if not shard.is_current:
            return
        took_ms = clock.monotonic_ms() - began_ms
        self._on_loaded(shard, took_ms)
        if replay.records_count:
            logger.info(
                "coordinating %s of %s: %d records in %d ms",
                shard.machine.contents,
                shard.partition,
                replay.records_count,
                took_ms,
            )

    async def _read(self, shard: _AnyShard, replay: Replay) -> None:
        """Everything up to the log's end as it was at the election."""
        partition = shard.partition
        end_offset = partition.log_end_offset
        replay.next_offset = partition.log_start_offset
        while replay.next_offset < end_offset and shard.is_current:
            found = self._next_piece(partition, replay)
            if found.arrival is not None:
                await _until_here(found.arrival)
                continue
            piece = found.records
            if piece is None:
                # No batch up to the end: the last ones were truncated or compacted away.
                break
            try:
                data = await asyncio.to_thread(_read_slice, piece)
            except OSError as error:
                # This disk cannot read it, but other replicas have it: one of them has to
                # coordinate.
                self._broker.on_unreadable(piece.file.path, error)
                raise
            await in_slices(replay.read(data), self._broker.clock)
        await in_slices(shard.machine.replay(replay.newest), self._broker.clock)
        if replay.transactions.open:
            undecided = replay.transactions.undecided()
            await in_slices(shard.machine.replay_undecided(undecided), self._broker.clock)

    def _next_piece(self, partition: Partition, replay: Replay) -> ReadResult:
        # Retention or DeleteRecords may have moved the start since the last piece.
        replay.next_offset = max(replay.next_offset, partition.log_start_offset)
        return partition.log.read(
            replay.next_offset,
            self._buffer_size,
            end_offset=partition.log_end_offset,
            minimum_one_batch=True,
        )

    async def _until_committed(self, shard: _AnyShard) -> None:
        if shard.partition.is_high_watermark_valid:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._committed[shard] = waiter
        try:
            await waiter
        finally:
            del self._committed[shard]


async def _until_here(arrival: Arrival) -> None:
    here = asyncio.Event()
    arrival.notify(here.set)
    await here.wait()


def _read_slice(piece: FileSlice) -> bytes:
    """Read a whole piece of a segment; in a thread."""
    fd = piece.file.read_fd
    parts = []
    position, left = piece.position, piece.length
    while left:
        part = os.pread(fd, left, position)
        if not part:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"a segment ends {left} bytes before its index says"
            )
        parts.append(part)
        position += len(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
