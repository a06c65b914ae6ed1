"""Reading a shard's partition from start to end before what lives in it is served.

Pieces of the log are read in a thread, because they are cold as a rule, and looked at in slices of
a few milliseconds, because the loop serves everybody else meanwhile. What was read counts once the
high watermark is known to be behind it (R22); deadlines begin then.
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

    `on_loaded` is told of a shard that may be served, and how many milliseconds it took.
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
        """Note that the shard is not wanted any more."""
        task = self._tasks.pop(shard, None)
        if task is not None:
            task.cancel()

    def advanced(self, shard: _AnyShard) -> None:
        """Look again: the partition has moved, and its high watermark may be known now."""
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
            # Whatever it is: a partition that is being read for ever helps nobody.
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
                # A hole up to the end: what it held was cut, or compacted away.
                break
            try:
                data = await asyncio.to_thread(_read_slice, piece)
            except OSError as error:
                # What this disk does not read others have: one of them is to coordinate.
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
    """In a thread: the whole of a piece of a segment."""
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
