"""Reading a shard's partition from start to end before its groups are served.

Pieces of the log are read in a thread, because they are cold as a rule, and looked at in slices of
a few milliseconds, because the loop serves everybody else meanwhile. What was read counts once the
high watermark is known to be behind it (R22); the sessions of members begin then.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from fairlead_broker.group.coordinated_group import CoordinatedGroup
from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.replay import Replay
from fairlead_broker.group.shard import Shard, ShardState
from fairlead_broker.group.slicing import in_slices
from fairlead_broker.limits import GROUP_LOADS_AT_ONCE_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.group.coordinating_broker import CoordinatingBroker
    from fairlead_broker.group.coordinator import GroupCoordinator
    from fairlead_broker.log.file_slice import FileSlice
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)

_BUILDS_PER_STEP: Final = 50


class ShardLoader:
    """One task for each shard that is being loaded; few of them read at a time."""

    def __init__(self, broker: CoordinatingBroker, coordinator: GroupCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._tasks: dict[Shard, asyncio.Task[None]] = {}
        self._committed: dict[Shard, asyncio.Future[None]] = {}
        self._reading = asyncio.Semaphore(GROUP_LOADS_AT_ONCE_MAX)

    def begin(self, shard: Shard) -> None:
        """Load a shard in the background; it is activated, or marked as failed."""
        task = asyncio.create_task(self._load(shard), name=f"load {shard.partition}")
        self._tasks[shard] = task
        task.add_done_callback(lambda _: self._tasks.pop(shard, None))

    def end(self, shard: Shard) -> None:
        """The shard is not wanted any more."""
        task = self._tasks.pop(shard, None)
        if task is not None:
            task.cancel()

    def advanced(self, shard: Shard) -> None:
        """The partition has moved: its high watermark may be known now."""
        waiter = self._committed.get(shard)
        if waiter is not None and not waiter.done() and shard.partition.is_high_watermark_valid:
            waiter.set_result(None)

    async def _load(self, shard: Shard) -> None:
        clock = self._broker.clock
        began_ms = clock.monotonic_ms()
        replay = Replay()
        try:
            async with self._reading:
                await self._read(shard, replay)
            await self._until_committed(shard)
            await in_slices(self._build(shard, replay), self._broker.clock)
        except Exception:
            # Whatever it is: a partition that is being read for ever helps nobody.
            shard.state = ShardState.FAILED
            self._broker.metrics.task_failures += 1
            logger.exception("%s cannot be read: its groups are not served", shard.partition)
            return
        if not shard.is_current:
            return
        took_ms = clock.monotonic_ms() - began_ms
        self._coordinator.metrics.loaded(took_ms)
        self._coordinator.activate(shard)
        if replay.records_count:
            logger.info(
                "coordinating %d groups of %s: %d records in %d ms",
                len(shard.groups),
                shard.partition,
                replay.records_count,
                took_ms,
            )
        if replay.unreadable_count or replay.unknown_count:
            logger.warning(
                "%s: passed over %d unreadable records and %d of unknown kinds",
                shard.partition,
                replay.unreadable_count,
                replay.unknown_count,
            )

    async def _read(self, shard: Shard, replay: Replay) -> None:
        """Everything up to the log's end as it was at the election."""
        partition = shard.partition
        end_offset = partition.log_end_offset
        replay.next_offset = partition.log_start_offset
        while replay.next_offset < end_offset and shard.is_current:
            piece = self._next_piece(partition, replay)
            if piece is None:
                # A hole up to the end: what it held was cut, or compacted away.
                break
            data = await asyncio.to_thread(_read_slice, piece)
            await in_slices(replay.read(data), self._broker.clock)
        await in_slices(replay.finish(), self._broker.clock)

    def _next_piece(self, partition: Partition, replay: Replay) -> FileSlice | None:
        # Retention or DeleteRecords may have moved the start since the last piece.
        replay.next_offset = max(replay.next_offset, partition.log_start_offset)
        return partition.log.read(
            replay.next_offset,
            self._broker.settings.offsets_load_buffer_size,
            end_offset=partition.log_end_offset,
            minimum_one_batch=True,
        ).records

    async def _until_committed(self, shard: Shard) -> None:
        if shard.partition.is_high_watermark_valid:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._committed[shard] = waiter
        try:
            await waiter
        finally:
            del self._committed[shard]

    def _build(self, shard: Shard, replay: Replay) -> Iterator[None]:
        """The groups, of what the records say."""
        offsets, values = replay.offsets, replay.group_values
        clock = self._broker.clock
        # In the order of the log, so that two loads of one log are alike.
        for number, group_id in enumerate(dict.fromkeys([*offsets, *values])):
            try:
                classic = self._coordinator.build_classic(group_id, values.get(group_id))
            except ValueError:
                # Bytes of a group's value that no group can have been.
                replay.unreadable_count += 1
                classic = self._coordinator.build_classic(group_id)
            group = CoordinatedGroup(group_id, shard, classic, offsets.get(group_id))
            shard.groups[group_id] = group
            self._coordinator.memory.count(group)
            if classic.state is not GroupState.EMPTY:
                effects = classic.on_loaded(now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms())
                self._coordinator.carry_out(group, effects)
            if number % _BUILDS_PER_STEP == 0:
                yield


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
