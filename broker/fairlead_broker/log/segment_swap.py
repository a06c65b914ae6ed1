"""Replaces segments by the compacted segment that was made from them. On the event loop.

    files                                        after a crash
    base.log.cleaned, durable                    discarded; the sources are all there
    older snapshots         `forget_snapshots`   the same; producers come from the log
    base.log.swap           `begin`, `sync`      finished: the sources go, then it takes its name
    sources .deleted        `replace`, `sync`    the same
    base.log                `finish`             done

If the new segment lacks a marker, older snapshots are removed first: if one in which the marker's
transaction is open were loaded after a crash, that transaction would stay open for ever.

Each `sync` runs in a thread. Until the last one is done, the new segment serves reads under its
working name: if its final name could become durable while names of its sources still exist, a power
cut would leave offsets twice. Readers that are being sent an old segment keep its descriptor, and
its files stay for `file.delete.delay.ms`. But if a full disk has no room for a new name, they are
removed at once, which makes room. They are not needed any more: the new files are durable by then.

Code that cuts or deletes segments meanwhile calls `settle` first.
"""

from enum import Enum

from fairlead_broker.disk import unlink_if_present
from fairlead_broker.log import full_disk
from fairlead_broker.log.compaction.log_cleaning import NO_MARKER, CleanedGroup
from fairlead_broker.log.files.deferred_files import SyncJob
from fairlead_broker.log.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)
from fairlead_broker.log.segment import Segment
from fairlead_broker.log.segmented_log import SegmentedLog
from fairlead_model.invariants import require

# The log comes last, so that a `.log.swap` never misses indexes that were written for it.
_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)


class SwapState(Enum):
    """State of a replacement."""

    BEGUN = "the new files are called .swap"
    REPLACED = "the new segment serves, under its working name"
    OVER = "finished or given up"


class SegmentSwap:
    """One replacement; there is one at a time in a log."""

    def __init__(self, log: SegmentedLog, group: CleanedGroup) -> None:
        self._log = log
        self._group = group
        # Most segments have no aborted transaction, and no index of these.
        has_aborts = group.transaction_index_size > 0
        self._suffixes = (TRANSACTION_INDEX_SUFFIX, *_SUFFIXES) if has_aborts else _SUFFIXES
        self._stem = f"{log.path}/{offset_name(group.base_offset)}"
        self._replaced: list[str] = []
        self.state = SwapState.OVER

    def forget_snapshots(self) -> SyncJob | None:
        """Remove snapshots in which a transaction may be open whose marker compaction removes.

        Return the job that makes this durable, which has to run before `begin`; None if compaction
        removes no marker. OSError if the disk refuses: then nothing is lost, because the content of
        the snapshots is in the log.
        """
        log, last_removed = self._log, self._group.last_marker_removed
        if last_removed == NO_MARKER:
            return None
        for entry in log.disk.list_directory(log.path):
            offset = parse_offset_name(entry.name, SNAPSHOT_SUFFIX)
            if offset is not None and offset <= last_removed:
                unlink_if_present(log.disk, f"{log.path}/{entry.name}")
        log.recent_producers.forget_up_to(last_removed)
        return SyncJob(log.disk, [], [log.path])

    def begin(self) -> SyncJob:
        """Give the new files the names by which a start finishes this; return the job that syncs.

        OSError if the disk refuses: then nothing has changed, and the log goes on as it is.
        """
        log = self._log
        require(log.swap is None, "{}: two replacements at once", log.path)
        log.note_holes()
        try:
            for suffix in self._suffixes:
                log.disk.rename(
                    self._stem + suffix + CLEANED_SUFFIX, self._stem + suffix + SWAP_SUFFIX
                )
        except OSError:
            # At most indexes have been renamed: the log comes last.
            for suffix in self._suffixes:
                unlink_if_present(log.disk, self._stem + suffix + SWAP_SUFFIX)
            raise
        log.swap, self.state = self, SwapState.BEGUN
        return SyncJob(log.disk, [], [log.path])

    def replace(self, now_ms: int) -> SyncJob | None:
        """Let the new segment serve, and mark the old ones as deleted. None if it was given up."""
        if self.state is not SwapState.BEGUN:
            return None
        log, bases = self._log, self._group.source_bases
        at = log.bases.index(bases[0])
        gone = log.segments[at : at + len(bases)]
        require([s.base_offset for s in gone] == bases, "{}: {} are gone", log.path, bases)
        paths = [path for segment in gone for path in self._mark_deleted(segment)]
        for base in bases[1:]:
            snapshot = f"{log.path}/{offset_name(base)}{SNAPSHOT_SUFFIX}"
            if log.disk.exists(snapshot):
                paths.append(snapshot)
        log.deletions.add(paths, now_ms + log.config.file_delete_delay_ms)
        self._replaced = paths
        log.segments[at : at + len(bases)] = [self._segment(SWAP_SUFFIX)]
        log.bases[at : at + len(bases)] = bases[:1]
        self.state = SwapState.REPLACED
        return SyncJob(log.disk, [], [log.path])

    def finish(self) -> None:
        """Take the final names; nothing to do if that was done or given up meanwhile. OSError."""
        if self.state is not SwapState.REPLACED:
            return
        log = self._log
        for suffix in self._suffixes:
            self._take_final_name(suffix)
        at = log.bases.index(self._group.base_offset)
        log.segments[at].close()
        log.segments[at] = self._segment("")
        log.deferred.note_directory(log.path)
        log.swap, self.state = None, SwapState.OVER

    def settle(self) -> None:
        """Finish or give up this replacement at once. OSError."""
        log = self._log
        if self.state is SwapState.REPLACED:
            log.disk.fsync_directory(log.path)
            self.finish()
        elif self.state is SwapState.BEGUN:
            for suffix in reversed(self._suffixes):
                unlink_if_present(log.disk, self._stem + suffix + SWAP_SUFFIX)
            log.deferred.note_directory(log.path)
            log.swap, self.state = None, SwapState.OVER

    def _mark_deleted(self, segment: Segment) -> list[str]:
        try:
            return segment.mark_deleted()
        except OSError as error:
            if not full_disk.is_lack_of_room(error):
                raise
            segment.remove(DELETED_SUFFIX)
            return []

    def _take_final_name(self, suffix: str) -> None:
        disk, working, final = (
            self._log.disk,
            self._stem + suffix + SWAP_SUFFIX,
            self._stem + suffix,
        )
        try:
            disk.rename(working, final)
        except OSError as error:
            if not full_disk.is_lack_of_room(error):
                raise
            for path in self._replaced:
                unlink_if_present(disk, path)
            # A file system may free the room of removed files only once the removal is durable.
            disk.fsync_directory(self._log.path)
            disk.rename(working, final)

    def _segment(self, suffix: str) -> Segment:
        log, group = self._log, self._group
        return Segment(
            log.disk,
            log.cache,
            log.path,
            group.base_offset,
            size=group.size,
            index_size=group.index_size,
            time_index_size=group.time_index_size,
            transaction_index_size=group.transaction_index_size,
            index_interval_bytes=log.config.index_interval_bytes,
            index_bytes_max=log.config.segment_index_bytes,
            suffix=suffix,
        )
