"""Compaction of real logs by a real child process, through the broker's background work."""

import asyncio
import logging
import os
import random
import signal
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from compaction import read_records
from replica_cluster import ReplicaCluster

from fairlead_broker.tasks.cleaning_retries import CleaningRetries
from fairlead_broker.tools.verify import verify_partition
from fairlead_wire.records import Record, encode_batch

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
SETTINGS: dict[str, Any] = {"log_cleaner_backoff_ms": "20", "replica_fetch_wait_max_ms": "50"}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def write(
    cluster: ReplicaCluster,
    name: str,
    last: dict[bytes, bytes | None],
    count: int = 200,
    *,
    broker_id: int = 1,
    keys: int = 20,
) -> None:
    """Overwrite random keys; `last` gets their values."""
    chance = random.Random(count)
    partition = cluster.partition(broker_id, name)
    for number in range(count):
        now_ms = cluster.members[broker_id].broker.clock.now_ms()
        records = []
        for at in range(3):
            key = b"%d" % chance.randrange(keys)
            last[key] = b"%d-%d" % (number, at) * 5
            records.append(Record(at, now_ms, key, last[key]))
        batch = memoryview(bytearray(encode_batch(records)))
        partition.append_as_leader(batch, required_acks=1, now_ms=now_ms)


def values(cluster: ReplicaCluster, broker_id: int, name: str) -> dict[bytes | None, bytes | None]:
    log = cluster.partition(broker_id, name).log
    return {record.key: record.value for record in read_records(log)}


def is_compacted(cluster: ReplicaCluster, broker_id: int, name: str) -> bool:
    log = cluster.partition(broker_id, name).log
    return log.first_dirty_offset == log.active.base_offset > 0 and log.swap is None


def test_leaders_and_followers_compact_on_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2, **SETTINGS) as cluster:
            cluster.create("t", configs=CONFIGS)
            last: dict[bytes, bytes | None] = {}
            write(cluster, "t", last)
            end = cluster.partition(1, "t").log_end_offset
            for broker_id in (1, 2):
                await cluster.until(
                    partial(lambda broker_id: is_compacted(cluster, broker_id, "t"), broker_id)
                )
                assert cluster.partition(broker_id, "t").log_end_offset == end
                assert values(cluster, broker_id, "t") == last
                metrics = cluster.members[broker_id].broker.metrics.cleaner
                assert metrics.runs > 0
                assert metrics.records_removed > 300
            for broker_id in (1, 2):
                assert not list(verify_partition(cluster.partition(broker_id, "t").log.path))
            # It replicates and compacts on.
            write(cluster, "t", last, 150)
            end = cluster.partition(1, "t").log_end_offset
            await cluster.until(lambda: cluster.partition(2, "t").high_watermark == end)
            await cluster.until(lambda: is_compacted(cluster, 2, "t"))
            assert values(cluster, 2, "t") == last

    run(story())


def test_an_empty_follower_copies_a_compacted_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2, **SETTINGS) as cluster:
            await cluster.stop(2)
            cluster.create("t", configs=CONFIGS)
            last: dict[bytes, bytes | None] = {}
            write(cluster, "t", last)
            cluster.change("t", isr=(1,))
            leader = cluster.partition(1, "t")
            await cluster.until(
                lambda: (
                    leader.high_watermark == leader.log_end_offset and is_compacted(cluster, 1, "t")
                )
            )
            await cluster.start(2)
            await cluster.until(
                lambda: cluster.partition(2, "t").log_end_offset == leader.log_end_offset
            )
            assert values(cluster, 2, "t") == last
            # A crash of the follower cuts nothing off at the gaps.
            await cluster.stop(2)
            member = await cluster.start(2)
            assert not member.log_directories.offline
            assert cluster.partition(2, "t").log_end_offset == leader.log_end_offset
            assert values(cluster, 2, "t") == last

    run(story())


def test_a_damaged_batch_makes_a_log_uncleanable_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **SETTINGS) as cluster:
            cluster.create("damaged", configs=CONFIGS | {"min.cleanable.dirty.ratio": "1.0"})
            last: dict[bytes, bytes | None] = {}
            log = cluster.partition(1, "damaged").log
            cluster.members[1].broker.metrics.cleaner.runs = 0
            write(cluster, "damaged", last, 20)
            with (log.directory / f"{0:020d}.log").open("r+b") as file:
                file.seek(70)
                file.write(b"\xff\xff")
            cluster.create("sound", configs=CONFIGS)
            write(cluster, "sound", {}, 100)
            write(cluster, "damaged", last, 20)
            metrics = cluster.members[1].broker.metrics
            await cluster.until(lambda: metrics.cleaner.uncleanable == 1)
            await cluster.until(lambda: is_compacted(cluster, 1, "sound"))
            end = log.log_end_offset
            write(cluster, "damaged", last, 1)
            assert log.log_end_offset == end + 3
            assert metrics.task_failures == 0

    with caplog.at_level(logging.ERROR):
        run(story())
    assert "damaged-0 cannot be compacted, and so grows; tried again in 30 seconds" in caplog.text
    assert f"{0:020d}.log position 0: CRC" in caplog.text


def test_a_log_that_was_repaired_is_compacted_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **SETTINGS) as cluster:
            member = cluster.members[1]
            member.background._cleaner._retries = CleaningRetries(first_ms=100)
            cluster.create("t", configs=CONFIGS | {"min.cleanable.dirty.ratio": "1.0"})
            log = cluster.partition(1, "t").log
            last: dict[bytes, bytes | None] = {}
            write(cluster, "t", last, 20)
            with (log.directory / f"{0:020d}.log").open("r+b") as file:
                sound = file.read()
                file.seek(70)
                file.write(b"\xff\xff")
                file.flush()
                write(cluster, "t", last, 100)
                metrics = member.broker.metrics
                await cluster.until(lambda: metrics.cleaner.uncleanable == 1)
                file.seek(0)
                file.write(sound)
            await cluster.until(lambda: is_compacted(cluster, 1, "t"))
            await cluster.until(lambda: metrics.cleaner.uncleanable == 0)
            assert values(cluster, 1, "t") == last
            assert metrics.task_failures == 0

    run(story())


def test_a_child_that_dies_is_replaced(tmp_path: Path) -> None:
    async def story() -> None:
        settings: dict[str, Any] = SETTINGS | {"log_cleaner_io_max_bytes_per_second": "20000"}
        async with ReplicaCluster(tmp_path, size=1, **settings) as cluster:
            cluster.create("t", configs=CONFIGS)
            last: dict[bytes, bytes | None] = {}
            write(cluster, "t", last)
            member = cluster.members[1]
            cleaner = member.background._cleaner
            await cluster.until(lambda: cleaner._process.pid is not None)
            os.kill(cleaner._process.pid or -1, signal.SIGKILL)
            metrics = member.broker.metrics.cleaner
            await cluster.until(lambda: metrics.failures == 1)
            assert values(cluster, 1, "t") == last
            assert member.broker.metrics.task_failures == 0

    run(story())


def test_a_log_that_is_cut_or_removed_meanwhile_is_given_up(tmp_path: Path) -> None:
    async def story() -> None:
        settings: dict[str, Any] = SETTINGS | {"log_cleaner_io_max_bytes_per_second": "20000"}
        async with ReplicaCluster(tmp_path, size=1, **settings) as cluster:
            cluster.create("t", configs=CONFIGS)
            last: dict[bytes, bytes | None] = {}
            write(cluster, "t", last)
            member = cluster.members[1]
            metrics = member.broker.metrics
            await cluster.until(lambda: metrics.cleaner.is_running == 1)
            log = cluster.partition(1, "t").log
            log.restart_at(log.log_end_offset)
            await cluster.until(lambda: metrics.cleaner.is_running == 0)
            await cluster.until(
                lambda: (
                    not [
                        path
                        for path in log.directory.iterdir()
                        if path.suffix in {".swap", ".cleaned"}
                    ]
                )
            )
            assert metrics.cleaner.runs == metrics.cleaner.failures == metrics.task_failures == 0

    run(story())


def test_compact_and_delete_does_both(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **SETTINGS) as cluster:
            cluster.create("t", configs=CONFIGS | {"cleanup.policy": "compact,delete"})
            last: dict[bytes, bytes | None] = {}
            write(cluster, "t", last)
            partition = cluster.partition(1, "t")
            await cluster.until(lambda: is_compacted(cluster, 1, "t"))
            assert values(cluster, 1, "t") == last
            # A month later everything has expired, what was compacted too.
            later_ms = cluster.members[1].broker.clock.now_ms() + 30 * 86_400_000
            partition.log.delete_expired_segments(later_ms, partition.high_watermark)
            assert partition.log_start_offset == partition.log_end_offset
            assert values(cluster, 1, "t") == {}

    run(story())


def test_the_active_segment_is_rolled_when_a_record_has_waited_too_long(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **SETTINGS) as cluster:
            configs = CONFIGS | {"segment.bytes": "1000000", "max.compaction.lag.ms": "300"}
            cluster.create("t", configs=configs)
            last: dict[bytes, bytes | None] = {}
            write(cluster, "t", last, 50)
            log = cluster.partition(1, "t").log
            assert len(log.segments) == 1
            await cluster.until(lambda: is_compacted(cluster, 1, "t"))
            assert values(cluster, 1, "t") == last

    run(story())
