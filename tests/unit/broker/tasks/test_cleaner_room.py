"""A cleaner on a disk without room: the log stays as it is and is served, and is tried again."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compaction import read_records
from replica_cluster import ReplicaCluster

from fairlead_broker.disk import RealDisk
from fairlead_broker.tasks.cleaning_retries import CleaningRetries
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.records import Record, encode_batch

CONFIG = LogConfig()


def test_a_log_without_room_waits_no_longer_each_time() -> None:
    retries: CleaningRetries[str] = CleaningRetries()
    assert retries.note_no_room("t", CONFIG, 0) == (30_000, True)
    assert retries.note_no_room("t", CONFIG, 30_000) == (30_000, False)
    assert not retries.may_try("t", CONFIG, 59_999)
    assert retries.may_try("t", CONFIG, 60_000)
    assert retries.may_try("t", replace(CONFIG, max_message_bytes=5), 30_001)
    assert (retries.without_room, retries.uncleanable) == (1, 0)
    retries.note_failure("t", CONFIG, 60_000)
    assert retries.without_room == 0
    assert retries.note_no_room("t", CONFIG, 90_000) == (30_000, True)
    retries.note_success("t")
    assert retries.without_room == 0


def append(cluster: ReplicaCluster, name: str, count: int) -> None:
    partition = cluster.partition(1, name)
    for number in range(count):
        now_ms = cluster.members[1].broker.clock.now_ms()
        record = Record(0, now_ms, b"%d" % (number % 5), b"%d" % number * 50)
        batch = memoryview(bytearray(encode_batch([record])))
        partition.append_as_leader(batch, required_acks=1, now_ms=now_ms)


def test_a_full_disk_puts_compaction_off_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {"log_cleaner_backoff_ms": "20"}
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "4000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **settings) as cluster:
            member = cluster.members[1]
            member.background._cleaner._retries = CleaningRetries(first_ms=50)
            with monkeypatch.context() as patch:
                patch.setattr(RealDisk, "bytes_free", lambda self, path: 1_000_000)
                cluster.create("t", configs=configs)
                append(cluster, "t", 200)
                metrics = member.broker.metrics
                await cluster.until(lambda: metrics.cleaner.without_room == 1)
                log = cluster.partition(1, "t").log
                append(cluster, "t", 10)
                assert log.log_end_offset == 210
                assert len(read_records(log)) == 210
                assert (metrics.cleaner.runs, metrics.cleaner.failures) == (0, 0)
            await cluster.until(lambda: metrics.cleaner.runs > 0)
            assert metrics.cleaner.without_room == 0
            assert len(read_records(log)) < 210
            assert metrics.task_failures == 0

    asyncio.run(story())
    (line,) = [each.getMessage() for each in caplog.records if "not compacted" in each.message]
    assert line.startswith("t-0 is not compacted, and so grows, until its disk has room")
    assert "1000000 bytes are free" in line
