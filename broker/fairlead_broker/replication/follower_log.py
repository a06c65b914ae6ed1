"""What a follower does to its log: append the leader's records, truncate at a divergence (I7).

`FollowerState` decides which of these it is, `Partition` keeps the high watermark. Each function
takes the present high watermark and returns the next one. That lies within the log, and is lower
than the present one only if the log was truncated. KafkaError if the log refuses; then nothing has
changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead_broker.replication.follower_state import Append
    from fairlead_broker.replication.replica_log import ReplicaLog


def append_from_leader(
    log: ReplicaLog, action: Append, high_watermark: int, *, leader_epoch: int, now_ms: int
) -> int:
    """Append the records of an answer, and adopt the leader's marks; `now_ms` is wall time."""
    if len(action.records):
        log.append_as_follower(memoryview(action.records), now_ms=now_ms, leader_epoch=leader_epoch)
    committed = min(action.leader_high_watermark, log.log_end_offset)
    if committed > high_watermark:  # noqa: PLR1730  # each answer comes here, and `max` is a call
        high_watermark = committed
    if action.leader_log_start_offset > log.log_start_offset:
        # Records below the leader's log start were committed; this log may end before it (R17).
        start = min(action.leader_log_start_offset, log.log_end_offset)
        high_watermark = max(high_watermark, start)
        log.advance_log_start_offset(start)
    return high_watermark


def truncate_to(log: ReplicaLog, offset: int, high_watermark: int) -> int:
    """Drop everything from `offset` on."""
    log.truncate_to(offset)
    return bring_into_log(log, high_watermark)


def restart_at(log: ReplicaLog, offset: int, high_watermark: int) -> int:
    """Drop everything, and go on at `offset`."""
    log.restart_at(offset)
    return bring_into_log(log, high_watermark)


def bring_into_log(log: ReplicaLog, high_watermark: int) -> int:
    """Return the nearest offset to `high_watermark` that lies in the log (I1)."""
    return min(max(high_watermark, log.log_start_offset), log.log_end_offset)
