"""What any coordinator stands on, proved with another kind of state than groups."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from counting_coordinator import TOPIC, Alarm, CountingCoordinator, counting
from replica_cluster import ReplicaCluster

from fairlead_broker.replication.partition import Partition
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode
from fairlead_wire.records import decode_batch, iter_batches

Story = Callable[[ReplicaCluster, dict[int, CountingCoordinator]], Coroutine[Any, Any, None]]


def play(story: Story, directory: Path, *, size: int = 3, **options: int) -> None:
    """On brokers with counters beside their groups; broker 1 leads the one partition."""

    async def run() -> None:
        async with ReplicaCluster(directory, size=size) as cluster:
            counters = {each: counting(cluster, each, **options) for each in cluster.members}
            cluster.create(TOPIC, configs={"cleanup.policy": "compact"})
            await cluster.until(lambda: counters[1].code("a") is ErrorCode.NONE)
            await story(cluster, counters)

    asyncio.run(run())


def test_what_is_written_counts_when_the_in_sync_replicas_have_it(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, counters: dict[int, CountingCoordinator]) -> None:
        first, second = counters[1].add("a"), counters[1].add("b")
        await asyncio.sleep(0)
        log = cluster.partition(1, TOPIC)
        await cluster.until(lambda: log.log_end_offset == 2)
        assert first.outcomes == [], "no follower can have fetched it in this turn"
        assert counters[1].value("a") == 0
        await cluster.until(lambda: log.high_watermark == 2)
        await cluster.until(lambda: bool(second.outcomes))
        assert first.outcomes == second.outcomes == [ErrorCode.NONE]
        assert (counters[1].value("a"), counters[1].value("b")) == (1, 1)
        data = cluster.content(1, TOPIC)
        batches = [decode_batch(data, position) for position, _ in iter_batches(data)]
        assert [[each.key for each in batch] for batch in batches] == [[b"a", b"b"]]

    play(story, tmp_path)


def test_the_next_leader_has_what_was_committed(tmp_path: Path) -> None:
    """And nothing completes under another epoch than its own (R20)."""

    async def story(cluster: ReplicaCluster, counters: dict[int, CountingCoordinator]) -> None:
        for count in (1, 2, 3):
            addition = counters[1].add("a")
            await cluster.until(partial(lambda addition: bool(addition.outcomes), addition))
            assert counters[1].value("a") == count
        await cluster.stop(3)
        waiting = counters[1].add("a")
        replica = cluster.partition(2, TOPIC)
        await cluster.until(lambda: replica.log_end_offset == 4)
        cluster.change(TOPIC, leader=2)
        assert waiting.outcomes == [ErrorCode.NOT_COORDINATOR]
        assert counters[1].code("a") is ErrorCode.NOT_COORDINATOR
        assert counters[1].events == ["begins", "is loaded", "is unloaded"]
        # Whether the last record is committed is not known yet: nothing of it is served (R22).
        await asyncio.sleep(0.05)
        assert counters[2].code("a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert counters[2].events == []
        cluster.change(TOPIC, isr=(1, 2))
        await cluster.until(lambda: counters[2].code("a") is ErrorCode.NONE)
        assert counters[2].value("a") == 4
        assert waiting.outcomes == [ErrorCode.NOT_COORDINATOR]
        # Back again, in a third epoch, what the second leader wrote is there.
        addition = counters[2].add("a")
        await cluster.until(lambda: addition.outcomes == [ErrorCode.NONE])
        cluster.change(TOPIC, leader=1)
        await cluster.until(lambda: counters[1].code("a") is ErrorCode.NONE)
        assert counters[1].value("a") == 5

    play(story, tmp_path)


def test_a_write_that_takes_too_long_is_told_so_and_counts_once_committed(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, counters: dict[int, CountingCoordinator]) -> None:
        await cluster.stop(3)
        late = counters[1].add("a")
        await cluster.until(lambda: late.outcomes == ["timed out"])
        assert counters[1].value("a") == 0
        cluster.change(TOPIC, isr=(1, 2))
        await cluster.until(lambda: late.outcomes == ["timed out", ErrorCode.NONE])
        assert counters[1].value("a") == 1

    play(story, tmp_path, write_timeout_ms=50)


def test_deadlines_ring_in_order_and_not_for_what_is_gone(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, counters: dict[int, CountingCoordinator]) -> None:
        now_ms = cluster.members[1].broker.clock.monotonic_ms()
        late, early, gone = Alarm(now_ms + 40), Alarm(now_ms + 10), Alarm(now_ms + 20)
        for alarm in (late, early, gone):
            counters[1].runtime.schedule(alarm)
        gone.is_gone = True
        await cluster.until(lambda: late in counters[1].rung)
        assert counters[1].rung == [early, late]

    play(story, tmp_path, size=1)


def test_one_that_fails_keeps_no_other_from_its_deadline(tmp_path: Path) -> None:
    """A group that could not be ended stopped the sessions of all groups of the broker."""

    async def story(cluster: ReplicaCluster, counters: dict[int, CountingCoordinator]) -> None:
        counter, now_ms = counters[1], cluster.members[1].broker.clock.monotonic_ms()
        bad, good = Alarm(now_ms + 10), Alarm(now_ms + 20)
        counter.faulty.append(bad)
        for alarm in (bad, good):
            counter.runtime.schedule(alarm)
        await cluster.until(lambda: good in counter.rung)
        assert counter.rung == [good]
        counter.faulty.clear()
        await cluster.until(lambda: bad in counter.rung)

    play(story, tmp_path, size=1)


def test_whoever_stops_answers_what_waits(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, counters: dict[int, CountingCoordinator]) -> None:
        await cluster.stop(3)
        waiting = counters[1].add("a")
        await asyncio.sleep(0)
        counters[1].runtime.stop()
        assert waiting.outcomes == [ErrorCode.NOT_COORDINATOR]
        assert counters[1].events[-1] == "is unloaded"

    play(story, tmp_path)


def test_a_fault_in_one_log_keeps_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            counters = counting(cluster, 1)
            cluster.create(TOPIC, configs={"cleanup.policy": "compact"}, partitions=2)
            keys = "a", "b"
            for key in keys:
                await cluster.until(partial(lambda key: counters.code(key) is ErrorCode.NONE, key))
            broken = cluster.partition(1, TOPIC, counters.runtime.shard_of("a").index)

            def fail(*_: object, **__: object) -> None:
                raise InvariantViolation("this cannot be")

            with monkeypatch.context() as patch:
                patch.setattr(type(broken), "append_as_leader", fail_in(broken, fail))
                additions = [counters.add(key) for key in (*keys, "a")]
                await cluster.until(lambda: all(each.outcomes for each in additions))
            assert [each.outcomes for each in additions] == [
                [ErrorCode.NOT_COORDINATOR],
                [ErrorCode.NONE],
                [ErrorCode.NOT_COORDINATOR],
            ]
            assert counters.code("a") is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert cluster.members[1].broker.metrics.task_failures == 1
            assert counters.events[-1] == "is unloaded"
            later = counters.add("b")
            await cluster.until(lambda: later.outcomes == [ErrorCode.NONE])

    asyncio.run(run())


def fail_in(broken: Partition, fail: Callable[..., None]) -> Callable[..., Any]:
    """Appends, but for one partition."""
    append = Partition.append_as_leader

    def append_or_fail(partition: Partition, *batch: Any, **how: Any) -> Any:
        return fail() if partition is broken else append(partition, *batch, **how)

    return append_or_fail
