"""Compaction in a simulated broker: the real `Cleaner`, whose child works in the same process.

Each broker cleans its logs at random times. The child's changes of files happen at once, as far as
others can see. The replacement of segments happens step by step: in between the process may die,
the log may be truncated, or the leader may change.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, cast

from fairlead_broker.log.compaction.log_cleaning import (
    CleanedGroup,
    LogCleaning,
    UncleanableLogError,
)
from fairlead_broker.tasks.cleaner import Cleaner
from fairlead_broker.tasks.cleaner_process import CleanerDiedError
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.compression import Codec

if TYPE_CHECKING:
    from simulator.broker_process import BrokerProcess
    from simulator.world import World

    from fairlead_broker.log.compaction.cleaning_state import LogCleaner
    from fairlead_broker.log.compaction.log_cleaning import CleaningOrder
    from fairlead_broker.replication.partition import Partition

KEYED: Final = "keyed"
COMPACTING_SEEDS: Final = 3
"""One of this number of seeds has a compacted topic."""
BUFFERS: Final = (200, 1 << 14)
"""Room for a few keys, so that one cleaning is not enough, or for all."""


class CompactionPlan:
    """What a seed draws for its compacted topic, with a separate generator, so that the other
    faults of a seed stay the same without it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"compaction {seed}")
        policy = rng.choice((("compact",), ("compact",), ("compact", "delete")))
        self.policy = ",".join(policy)
        self.config = LogConfig(
            cleanup_policy=frozenset(policy),
            segment_bytes=rng.choice((400, 800, 1600)),
            index_interval_bytes=150,
            segment_index_bytes=400,
            retention_ms=-1,
            file_delete_delay_ms=rng.choice((0, 2000)),
            min_cleanable_dirty_ratio=rng.choice((0.0, 0.3)),
            delete_retention_ms=rng.choice((300, 3000)),
            min_compaction_lag_ms=rng.choice((0, 0, 500)),
            max_compaction_lag_ms=rng.choice((1 << 62, 2000)),
        )
        self.chance = rng.choice((0.1, 0.3, 0.5))
        """Chance that a broker begins to clean at one of its ticks."""
        self.dedupe_buffer_bytes = rng.choice(BUFFERS)
        self.keys = rng.choice((2, 6, 15))
        self.tombstones = rng.choice((0.1, 0.3))
        self.codec = rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP))
        self.rate = rng.choice((2.0, 4.0, 8.0))


def compaction_of(seed: int, is_compacting: bool | None) -> CompactionPlan | None:
    """Return what a seed compacts; None if it compacts nothing."""
    if is_compacting is None:
        is_compacting = seed % COMPACTING_SEEDS == 0
    return CompactionPlan(seed) if is_compacting else None


class Compaction:
    """The cleaner of one broker process."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._cleaner = WatchedCleaner(broker)
        self._is_running = False

    def maybe_begin(self) -> None:
        plan = self._broker.world.compaction
        if plan is None or self._is_running or plan.rng.random() >= plan.chance:
            return
        self._is_running = True
        self._broker.process.spawn(self._clean())

    async def _clean(self) -> None:
        try:
            await self._cleaner.clean_all()
        finally:
            self._is_running = False


class WatchedCleaner(Cleaner):
    """Reports changes of a log to the observer."""

    def __init__(self, broker: BrokerProcess) -> None:
        thread = DiskThread(broker.world)
        super().__init__(broker.broker, cast("Any", thread))
        self._process = cast("Any", _ChildInProcess(broker, thread))
        self._watch = broker.world.checker.compaction

    async def _put_in_place(
        self, partition: Partition, cleaner: LogCleaner, group: CleanedGroup
    ) -> bool:
        is_done = await super()._put_in_place(partition, cleaner, group)
        if not partition.log.is_offline:
            self._watch.on_replaced(partition, cleaner)
        return is_done

    def _mark_uncleanable(self, partition: Partition, reason: str) -> None:
        raise AssertionError(f"{partition} is found uncleanable: {reason}")


class DiskThread:
    """Runs blocking calls a little later, and never after the process is gone."""

    def __init__(self, world: World) -> None:
        plan = world.compaction or world.transactions
        self._rng = world.rng if plan is None else plan.rng

    def delay_s(self) -> float:
        return self._rng.choice((0.001, 0.05, 0.4)) * self._rng.random()


class _ChildInProcess:
    """`CleanerProcess` without a process."""

    def __init__(self, broker: BrokerProcess, thread: DiskThread) -> None:
        self._broker = broker
        self._thread = thread

    def run(self, order: CleaningOrder) -> _Messages:
        for partition in self._broker.partitions.values():
            log = partition.log
            if log.is_compacted and log.path == order.directory:
                end_offset = order.segments[-1].next_base_offset
                self._broker.world.checker.compaction.on_cleaning(partition, end_offset)
                return _Messages(partition, order, self._thread)
        raise CleanerDiedError(f"{order.directory} is gone")

    async def kill(self) -> None: ...


class _Messages:
    """The child's messages about an order. No generator: a killed process never closes it."""

    def __init__(self, partition: Partition, order: CleaningOrder, thread: DiskThread) -> None:
        self._partition = partition
        self._order = order
        self._thread = thread
        self._messages: list[dict[str, Any]] | None = None

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> dict[str, Any]:
        await asyncio.sleep(self._thread.delay_s())
        if self._messages is None:
            self._messages = self._work()
        if not self._messages:
            raise StopAsyncIteration
        return self._messages.pop(0)

    async def aclose(self) -> None: ...

    def _work(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []

        def on_group(group: CleanedGroup) -> None:
            messages.append({"group": asdict(group)})

        try:
            report = LogCleaning(self._partition.log.disk, self._order, on_group=on_group).run()
        except UncleanableLogError as error:
            return [*messages, {"uncleanable": str(error)}]
        except OSError as error:
            return [*messages, {"error": str(error)}]
        return [*messages, {"report": asdict(report)}]


def _plan(world: World) -> CompactionPlan:
    assert world.compaction is not None
    return world.compaction
