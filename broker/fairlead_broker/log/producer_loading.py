"""Loads the producer state of a log at an offset: the newest intact snapshot, then later batches.

A snapshot has open transactions, but not those that ended and whose markers are not replicated yet.
`find_unreplicated` finds these in the log, from the newest snapshot below the high watermark on.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator

from fairlead_broker.disk import Disk
from fairlead_broker.log.batch_replay import replay_batch
from fairlead_broker.log.files.file_names import SNAPSHOT_SUFFIX, offset_name, parse_offset_name
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_broker.log.producers.producer_snapshot import decode_snapshot
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.producers.recent_producers import RecentSnapshot
from fairlead_broker.log.producers.unreplicated_transactions import EndedTransaction
from fairlead_broker.log.segment import Segment

logger = logging.getLogger(__name__)


def load_producers(
    disk: Disk,
    directory: str,
    producers: ProducerState,
    segments: list[Segment],
    end_offset: int,
    *,
    now_ms: int,
    was_clean: bool = False,
    recent: RecentSnapshot | None = None,
) -> None:
    """Fill `producers` with the state at `end_offset`, the end of the last segment.

    If `was_clean` and there is no snapshot, the log has no producers: a clean stop would have
    written one. A `recent` snapshot, from memory, is used if none on disk is newer. If one on disk
    is damaged, the state comes from an older one or from the log alone. CorruptSegmentError
    if a batch that has to be read is damaged.
    """
    first_base = segments[0].base_offset
    oldest = first_base if recent is None else recent.offset + 1
    start = restore_snapshot(disk, directory, producers, oldest, end_offset, now_ms=now_ms)
    if start is None and recent is not None:
        producers.restore(decode_snapshot(recent.content), now_ms)
        start = recent.offset
    if start is None:
        producers.restore((), now_ms)
        has_none = was_clean and not snapshot_offsets(disk, directory)
        start = end_offset if has_none else first_base
    if start < end_offset:
        for _ in replayed(disk, producers, segments, start, now_ms):
            pass


def find_unreplicated(
    disk: Disk, directory: str, segments: list[Segment], high_watermark: int
) -> list[EndedTransaction]:
    """Return transactions that ended at or above the high watermark. CorruptSegmentError."""
    scratch = ProducerState()
    first_base = segments[0].base_offset
    start = restore_snapshot(disk, directory, scratch, first_base, high_watermark, now_ms=0)
    start = first_base if start is None else start
    for _ in replayed(disk, scratch, segments, start, 0):
        pass
    return [ended for ended in scratch.unreplicated if ended.marker_offset >= high_watermark]


def find_aborted(
    disk: Disk, directory: str, segments: list[Segment], segment: Segment
) -> list[AbortedTransaction]:
    """Return the transactions whose abort markers are in `segment`. CorruptSegmentError.

    They may have begun in segments before it; the snapshot at its base says which were open.
    """
    scratch = ProducerState()
    first_base = segments[0].base_offset
    start = restore_snapshot(disk, directory, scratch, first_base, segment.base_offset, now_ms=0)
    start = first_base if start is None else start
    until = segments[: segments.index(segment) + 1]
    return [
        aborted
        for aborted in replayed(disk, scratch, until, start, 0)
        if aborted.last_offset >= segment.base_offset
    ]


def replayed(
    disk: Disk, producers: ProducerState, segments: list[Segment], start: int, now_ms: int
) -> Iterator[AbortedTransaction]:
    """Replay the batches from an offset on; yield their entries in transaction indexes."""
    at = max(bisect_right([segment.base_offset for segment in segments], start) - 1, 0)
    for segment in segments[at:]:
        found = segment.find_batch(start)
        if found is None:
            continue
        # The first batch of a log may begin below `start` (R17): it is replayed, too.
        for position, header in segment.headers(found[0]):
            aborted = replay_batch(
                disk,
                segment.file.read_fd,
                position,
                header,
                producers=producers,
                now_ms=now_ms,
            )
            if aborted is not None:
                yield aborted


def restore_snapshot(
    disk: Disk,
    directory: str,
    producers: ProducerState,
    first_base: int,
    offset_max: int,
    *,
    now_ms: int,
) -> int | None:
    """Load the newest intact snapshot not above `offset_max`; return its offset, None if none.

    A snapshot from below the first segment does not count. The records between the two are gone,
    and with them the markers of transactions that were open then: these would stay open for ever.
    """
    for offset in sorted(snapshot_offsets(disk, directory), reverse=True):
        if not first_base <= offset <= offset_max:
            continue
        path = f"{directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"
        try:
            entries = decode_snapshot(read_small_file(disk, path))
        except FileNotFoundError:
            # It belonged to a segment that was replaced, and a thread has just removed it.
            continue
        except ValueError as error:
            logger.warning("%s is unreadable and ignored: %s", path, error)
            continue
        producers.restore(entries, now_ms)
        return offset
    return None


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Return the offsets of a log's snapshots, by their names alone."""
    return [
        offset
        for entry in disk.list_directory(directory)
        if (offset := parse_offset_name(entry.name, SNAPSHOT_SUFFIX)) is not None
    ]
