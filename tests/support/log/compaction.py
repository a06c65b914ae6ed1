"""Compact a log in the test's own process, and read the remaining records."""

from fairlead_broker.log.compaction.cleaning_plan import plan_cleaning
from fairlead_broker.log.compaction.cleaning_state import LogCleaner, log_facts
from fairlead_broker.log.compaction.log_cleaning import CleanedGroup, CleaningReport, LogCleaning
from fairlead_broker.log.log import Log
from fairlead_broker.log.segment_swap import SegmentSwap
from fairlead_wire.records import Record, decode_batch


def compact(
    log: Log,
    now_ms: int,
    *,
    stable_offset: int | None = None,
    high_watermark: int | None = None,
    dedupe_buffer_bytes: int = 1 << 20,
    last_horizon_ms: int | None = None,
) -> CleaningReport | None:
    """Do one cleaning, as the loop, a thread and the child do it; None if none is due."""
    end = log.log_end_offset if high_watermark is None else high_watermark
    stable_offset = end if stable_offset is None else stable_offset
    if last_horizon_ms is not None:
        log.last_horizon_ms = last_horizon_ms
    facts = log_facts(log, stable_offset, high_watermark=end)
    plan = plan_cleaning(facts, log.config, now_ms)
    if plan is None:
        return None
    cleaner = LogCleaner(log, plan)
    order = cleaner.order(now_ms, dedupe_buffer_bytes=dedupe_buffer_bytes)
    groups: list[CleanedGroup] = []

    def swap(group: CleanedGroup) -> None:
        groups.append(group)
        assert cleaner.may_replace(group)
        replacement = SegmentSwap(log, group)
        forgotten = replacement.forget_snapshots()
        if forgotten is not None:
            forgotten.run()
        replacement.begin().run()
        job = replacement.replace(now_ms)
        assert job is not None
        job.run()
        replacement.finish()

    report = LogCleaning(log.disk, order, on_group=swap).run()
    cleaner.complete(report)
    return report


def read_records(log: Log, offset: int | None = None) -> list[Record]:
    """Return every record from `offset` on, as a consumer reads them batch by batch.

    Asserts that the reader reaches the log's end, whatever is missing in between.
    """
    offset = log.log_start_offset if offset is None else offset
    found: list[Record] = []
    while offset < log.log_end_offset:
        piece = log.read(
            offset, 4_000, end_offset=log.log_end_offset, minimum_one_batch=True
        ).records
        assert piece is not None, f"a reader at {offset} gets no further"
        content = log.disk.pread(piece.file.read_fd, piece.length, piece.position)
        position = 0
        while position < len(content):
            size = int.from_bytes(content[position + 8 : position + 12], "big") + 12
            found += [r for r in decode_batch(content, position) if r.offset >= offset]
            base = int.from_bytes(content[position : position + 8], "big")
            delta = int.from_bytes(content[position + 23 : position + 27], "big")
            assert base + delta >= offset
            offset = base + delta + 1
            position += size
    return found
