"""The partitions of one internal topic that this broker leads, each with its state machine.

Kafka's `CoordinatorRuntime`: it follows the leadership, loads, batches the writes of one turn of
the loop, and calls deadlines. It does not know what the state means.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Generic

from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_broker.coordinator.deadline_timer import DeadlineTimer, TimedT
from fairlead_broker.coordinator.load_times import LoadTimes
from fairlead_broker.coordinator.loading import ShardLoader
from fairlead_broker.coordinator.shard import MachineT, Shard, ShardState
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairlead_broker.coordinator.coordinating_broker import CoordinatingBroker
    from fairlead_broker.coordinator.shard import Write
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)


class CoordinatorRuntime(Generic[MachineT, TimedT]):
    """`shards` by partition index: those that are loading, served or failed.

    `build` makes the state machine of a partition. `on_deadline` is told of a thing that was given
    to `schedule` and whose deadline has come.
    """

    def __init__(
        self,
        broker: CoordinatingBroker,
        topic: str,
        *,
        build: Callable[[Shard[MachineT]], MachineT],
        on_deadline: Callable[[TimedT], None],
        write_timeout_ms: int,
        load_buffer_size: int,
    ) -> None:
        self._broker = broker
        self._clock = broker.awake_clock
        self._topic = topic
        self._build = build
        self._write_timeout_ms = write_timeout_ms
        self.shards: dict[int, Shard[MachineT]] = {}
        self.load_times = LoadTimes()
        self._loader = ShardLoader(broker, buffer_size=load_buffer_size, on_loaded=self._activate)
        self._timer = DeadlineTimer(self._clock, tick=on_deadline, expire=self._expire)
        self._unflushed: list[Shard[MachineT]] = []

    def on_role(self, partition: Partition) -> None:
        """Note that a partition of the topic now leads, follows or is gone."""
        shard = self.shards.get(partition.index)
        if shard is not None:
            if shard.partition is partition and shard.is_current:
                return
            if shard.partition is not partition and not partition.is_leader:
                return  # A replica of a deleted topic; the one that is here now stays.
            self._drop(shard)
        if partition.is_leader:
            shard = Shard(partition, self._build)
            self.shards[partition.index] = shard
            self._loader.begin(shard)

    def advanced(self, partitions: Iterable[Partition]) -> None:
        """Settle committed writes after partitions have advanced; most of these are no shards."""
        if not self.shards:
            return
        for partition in partitions:
            if partition.topic == self._topic:
                shard = self.shards.get(partition.index)
                if shard is not None and shard.partition is partition:
                    shard.advanced()
                    if shard.state is ShardState.LOADING:
                        self._loader.advanced(shard)

    def stop(self) -> None:
        """Answer all waiting requests; nothing is served from here on."""
        for shard in list(self.shards.values()):
            self._drop(shard)
        self._timer.stop()

    def shard_of(self, key: str) -> Shard[MachineT]:
        """Return the loaded shard of a key; KafkaError if there is none here."""
        topic = self._broker.image.topic(self._topic)
        if topic is None or not topic.partitions:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"there is no {self._topic} yet")
        index = coordinator_partition(key, len(topic.partitions))
        shard = self.shards.get(index)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"another broker leads {self._topic}-{index}"
            )
        if shard.state is ShardState.ACTIVE:
            return shard
        if shard.state is ShardState.LOADING:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{shard.partition} is being read"
            )
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{shard.partition} cannot be served, see the log"
        )

    def append(self, shard: Shard[MachineT], write: Write) -> None:
        """Have a write appended at the end of this turn, with all others of its partition."""
        if shard.add(write):
            if not self._unflushed:
                asyncio.get_running_loop().call_soon(self._flush)
            self._unflushed.append(shard)

    def schedule(self, timed: TimedT) -> None:
        """Have `on_deadline` called when the next deadline of an object has come."""
        self._timer.schedule(timed)

    def _activate(self, shard: Shard[MachineT], took_ms: int) -> None:
        self.load_times.add(took_ms)
        shard.state = ShardState.ACTIVE
        shard.machine.on_loaded()

    def _drop(self, shard: Shard[MachineT]) -> None:
        """Drop a shard: another broker, or another epoch, coordinates it (G8)."""
        del self.shards[shard.index]
        self._loader.end(shard)
        was_active = shard.state is ShardState.ACTIVE
        shard.state = ShardState.DROPPED
        if was_active:
            logger.info("no longer coordinating %s of %s", shard.machine.contents, shard.partition)
        shard.machine.on_unloaded()
        shard.fail_waiting(ErrorCode.NOT_COORDINATOR)

    def _flush(self) -> None:
        shards, self._unflushed = self._unflushed, []
        now_ms, now_wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        timeout_ms = self._write_timeout_ms
        fault: Exception | None = None
        for shard in shards:
            try:
                shard.flush(now_ms=now_ms, now_wall_ms=now_wall_ms, timeout_ms=timeout_ms)
            except Exception as error:
                # A defect in one shard must not keep the others from being written.
                fault = error
                self._broker.metrics.task_failures += 1
                logger.error("%s cannot be written: it is not served any more", shard.partition)
                self._fail(shard)
            if shard.waiting_count:
                self._timer.set(now_ms + timeout_ms)
        if fault is not None:
            raise fault

    def _fail(self, shard: Shard[MachineT]) -> None:
        """Stop serving a partition whose log may have records that its machine lacks (R22)."""
        self._loader.end(shard)
        if shard.state is not ShardState.DROPPED:
            shard.state = ShardState.FAILED
            shard.machine.on_unloaded()
        shard.fail_waiting(ErrorCode.NOT_COORDINATOR)

    def _expire(self, now_ms: int) -> int | None:
        """Answer requests whose appends take too long; return when to check again."""
        deadlines = []
        for shard in list(self.shards.values()):
            shard.expire(now_ms)
            deadline_ms = shard.next_deadline_ms()
            if deadline_ms is not None:
                deadlines.append(deadline_ms)
        return min(deadlines, default=None)
