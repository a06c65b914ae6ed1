"""When a segment has become too old, with and without jitter."""

from dataclasses import replace
from pathlib import Path

import pytest
from log_batches import LogBench, append, batch

from fairlead_broker.log.rolling import roll_jitter_ms
from fairlead_model.configs.log_config import LogConfig

HOUR_MS = 3_600_000


@pytest.mark.parametrize("segment_ms", [1, 1_000, 60_000, HOUR_MS, 7 * 24 * HOUR_MS])
@pytest.mark.parametrize("jitter_ms", [0, 1, 500, HOUR_MS, 2**62])
def test_jitter_never_takes_all_of_the_longest_age(segment_ms: int, jitter_ms: int) -> None:
    config = LogConfig(segment_ms=segment_ms, segment_jitter_ms=jitter_ms)
    compacted = replace(
        config, cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=min(segment_ms, 50)
    )
    for base_offset in range(50):
        jitter = roll_jitter_ms("/d/t-0", base_offset, config)
        assert 0 <= jitter <= min(jitter_ms, segment_ms - 1)
        assert roll_jitter_ms("/d/t-0", base_offset, compacted) < compacted.max_compaction_lag_ms


def test_a_jitter_of_hours_does_not_roll_a_short_lived_segment_at_every_batch(
    tmp_path: Path,
) -> None:
    log = LogBench(str(tmp_path / "t-0")).create(segment_ms=60_000, segment_jitter_ms=HOUR_MS)
    for at in range(200):
        append(log, batch(timestamp=1_000 + at), now_ms=1_000 + at)
    assert len(log.segments) <= 2
