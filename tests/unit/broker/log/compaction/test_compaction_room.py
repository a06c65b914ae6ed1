"""Compaction on a disk with little room: nothing is begun that would not fit, nothing is lost."""

from typing import Any

import pytest
from compaction import compact, read_records
from log_batches import LogBench, flush, record_batch
from present import present
from simulated_disk import SimulatedDisk

from fairlead_broker.limits import CLEANER_ROOM_LEFT_BYTES
from fairlead_broker.log.compaction.cleaning_plan import SegmentFacts, plan_cleaning, room_needed
from fairlead_broker.log.compaction.cleaning_state import LogCleaner, log_facts
from fairlead_broker.log.compaction.log_cleaning import NoRoomError
from fairlead_broker.log.log import Log
from fairlead_wire.records import Record

CONFIG: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 2_000,
    "min_cleanable_dirty_ratio": 0.0,
}


class ShrinkingDisk(SimulatedDisk):
    """Says how much is free, in turn; the last answer stays."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = [1 << 40]

    def bytes_free(self, path: str) -> int:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def disk() -> ShrinkingDisk:
    return ShrinkingDisk()


def filled(disk: ShrinkingDisk) -> Log:
    """Eight full segments that compaction makes into few groups, and an active one."""
    log = LogBench("/d/t-0", disk).create(**CONFIG)
    for number in range(160):
        record = Record(0, 1_000, b"%d" % (number % 40), b"%d" % number + b"v" * 20)
        log.append_as_leader(record_batch(record), leader_epoch=0, now_ms=1_000)
    flush(log)
    return log


def values(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in read_records(log)}


def test_a_group_asks_for_its_own_size_and_leaves_some_for_appends() -> None:
    group = [SegmentFacts(0, 1_000, 16, 24, -1, 10), SegmentFacts(10, 500, 8, 12, -1, 20)]
    assert room_needed(group) == 1_560 + CLEANER_ROOM_LEFT_BYTES


def test_nothing_is_read_or_written_where_the_first_group_has_no_room(disk: ShrinkingDisk) -> None:
    log = filled(disk)
    before, kept = values(log), sorted(disk.names)
    disk.answers = [CLEANER_ROOM_LEFT_BYTES]
    with pytest.raises(NoRoomError, match=f"{CLEANER_ROOM_LEFT_BYTES} bytes are free"):
        compact(log, 1_000)
    assert (values(log), sorted(disk.names)) == (before, kept)
    cleaner = LogCleaner(
        log, present(plan_cleaning(log_facts(log, 160, high_watermark=160), log.config, 1_000))
    )
    with pytest.raises(NoRoomError):
        cleaner.check_room()
    disk.answers = [CLEANER_ROOM_LEFT_BYTES + 10_000]
    cleaner.check_room()


@pytest.mark.parametrize("groups_done", [1, 2, 3])
def test_what_was_replaced_before_the_room_ran_out_stays_good(
    disk: ShrinkingDisk, groups_done: int
) -> None:
    log = filled(disk)
    before, size = values(log), log.size
    disk.answers = [1 << 40] * groups_done + [0]
    with pytest.raises(NoRoomError):
        compact(log, 1_000)
    assert values(log) == before
    assert log.size < size
    assert log.first_dirty_offset == 0
    assert log.swap is None
    disk.answers = [1 << 40]
    assert compact(log, 1_000) is not None
    assert values(log) == before
    assert log.first_dirty_offset == log.active.base_offset
