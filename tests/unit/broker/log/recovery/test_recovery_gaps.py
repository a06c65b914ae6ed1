"""A log whose names a power cut has put back in part: which side of a gap is the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from log_batches import TOPIC_ID, append, batch

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_model.configs.log_config import LogConfig

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = LogConfig(segment_bytes=200)
"""Each batch is a segment."""
SEGMENTS = 6


def lose(path: Path, *, lost: tuple[int, ...], recovery_point: int) -> tuple[int, int]:
    """Take segments away; return the log's start and end as recovery leaves them."""
    directory = LogDirectory.open(str(path), node_id=0, cluster_id="c")
    directory.load(0, config_for=lambda topic, partition: CONFIG)
    directory.confirm_start(1)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    assert append(log, *(batch() for _ in range(SEGMENTS))) == list(range(SEGMENTS))
    directory.close(clean=False)
    for each in lost:
        (path / f"t-0/{each:020}.log").unlink()
    # Leader epochs were never written, so recovery looks at all of the log.
    order = RecoveryOrder(
        directory=str(path / "t-0"),
        recovery_point=recovery_point,
        log_start_offset=0,
        index_interval_bytes=4096,
        has_holes=False,
        has_page_cache=False,
    )
    report = recover_log(RealDisk(), order, now_ms=0)
    assert report.is_unclean
    return min(int(each.stem) for each in path.glob("t-0/*.log")), report.log_end_offset


@pytest.mark.parametrize(
    ("lost", "recovery_point", "expected"),
    [
        ((2,), 5, (3, 6)),
        ((1, 3), 5, (4, 6)),
        ((4,), 2, (0, 4)),
        ((1, 4), 3, (2, 4)),
    ],
    ids=["below the recovery point", "twice", "above it", "on both sides"],
)
def test_what_was_flushed_has_no_gap_but_what_retention_left(
    tmp_path: Path, lost: tuple[int, ...], recovery_point: int, expected: tuple[int, int]
) -> None:
    """Names below the recovery point were durable: one that is missing there was deleted."""
    assert lose(tmp_path, lost=lost, recovery_point=recovery_point) == expected
