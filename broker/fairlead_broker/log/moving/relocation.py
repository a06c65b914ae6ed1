"""Letting a log go on with its files in another directory. On the event loop.

Everything in memory stays: offsets, epochs, producers, and all references to the log. Readers to
which records are being sent keep the descriptors of the old files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairlead_broker.log.files.deletions import Deletions
from fairlead_broker.log.segment import Segment
from fairlead_model.invariants import require

if TYPE_CHECKING:
    from fairlead_broker.disk import Disk
    from fairlead_broker.log.files.deferred_files import DeferredFiles
    from fairlead_broker.log.files.read_cache import ReadCache
    from fairlead_broker.log.segmented_log import SegmentedLog


def relocate(
    log: SegmentedLog, path: str, *, disk: Disk, cache: ReadCache, deferred: DeferredFiles
) -> None:
    """Use the copies of the files under `path` from now on; go offline if the disk fails.

    Files that wait to be removed stay in the old directory, and are removed with it. Flushes that
    are under way prove nothing about the new files.
    """
    require(log.swap is None, "{} moves while a compaction is put in place", log.path)
    active = log.active
    log.cache.forget_directory(log.path)
    log.path, log.directory = path, Path(path)
    log.disk, log.cache, log.deferred = disk, cache, deferred
    log.segments[:] = [_same(segment, log) for segment in log.segments]
    log.deletions = Deletions()
    log.flush_state.forget_flushes()
    log.epochs.is_dirty = True
    log.is_checkpointed = True
    log.set_active()
    if not active.is_sealed:
        try:
            log.active.take_over(active)
        except OSError as error:
            log.go_offline(error)


def _same(segment: Segment, log: SegmentedLog) -> Segment:
    same = Segment(
        log.disk,
        log.cache,
        log.path,
        segment.base_offset,
        size=segment.size,
        index_size=segment.offset_index.size,
        time_index_size=segment.time_index.size,
        transaction_index_size=segment.transaction_index.size,
        index_interval_bytes=segment.index_interval_bytes,
        index_bytes_max=segment.index_bytes_max,
    )
    same.created_ms = segment.created_ms
    return same
