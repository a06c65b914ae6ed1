"""Opening and creating the logs of one data directory: one directory of files becomes one `Log`.

Loading relies on the state that a clean stop leaves (a recovery leaves the same), and reads little:
names and sizes, the small files, and the part of the newest segment that its index does not cover.
Descriptors and older indexes are opened when they are needed. Files that contradict one another
raise `UncleanLogError`: the caller has the log recovered and loads it again.
"""

import errno
from collections.abc import Container

from fairlead_broker.disk import DirectoryEntry, Disk
from fairlead_broker.log.batches.batch_scan import CorruptSegmentError
from fairlead_broker.log.files.deferred_files import DeferredFiles
from fairlead_broker.log.files.file_names import (
    CHECKPOINTED_MARK,
    FAILED_FLUSH,
    HOLES_MARK,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    MOVED_MARK,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_name,
    parse_offset_name,
)
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.files.text_files import (
    CorruptFileError,
    decode_epoch_checkpoint,
    decode_partition_metadata,
    encode_partition_metadata,
)
from fairlead_broker.log.index.transaction_index import AbortedTransaction, encode_aborted
from fairlead_broker.log.leader_epochs import LeaderEpochs
from fairlead_broker.log.log import Log
from fairlead_broker.log.producer_loading import find_aborted, load_producers
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.recovery.leftovers import WORKING_SUFFIXES, settle_leftovers
from fairlead_broker.log.segment import Segment
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.ids import ZERO_TOPIC_ID, TopicId
from fairlead_wire.errors import KafkaError


class UncleanLogError(Exception):
    """The files of a log contradict one another; it needs recovery."""


class LogLoader:
    """Makes `Log` objects that share one disk, read cache and collection of deferred fsyncs."""

    def __init__(self, disk: Disk, cache: ReadCache, deferred: DeferredFiles) -> None:
        self._disk = disk
        self._cache = cache
        self._deferred = deferred

    def create(
        self,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        now_ms: int,
    ) -> Log:
        """Return a new, empty log in its own directory; OSError also if that has records."""
        self._disk.make_directory(directory)
        if any(
            entry.size and entry.name.endswith(LOG_SUFFIX)
            for entry in self._disk.list_directory(directory)
        ):
            # An operator put it there, or a deleted log could not be renamed. Do not overwrite it.
            raise FileExistsError(errno.EEXIST, "records of another log are here", directory)
        self._deferred.note_directory(directory.rpartition("/")[0])
        self._deferred.replace(
            f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)
        )
        segment = self._create_segment(directory, 0, config, now_ms)
        return Log(
            self._disk,
            self._cache,
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            segments=[segment],
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
            epochs=LeaderEpochs(),
            producers=ProducerState(),
            deferred=self._deferred,
        )

    def load(
        self,
        directory: str,
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        log_start_offset: int,
        now_ms: int,
    ) -> Log:
        """Return an existing log, cleanly stopped or recovered; UncleanLogError otherwise."""
        entries = {entry.name: entry for entry in self._disk.list_directory(directory)}
        _check_marks(directory, entries)
        if any(name.endswith(WORKING_SUFFIXES) for name in entries):
            settle_leftovers(self._disk, directory, set(entries))
            entries = {entry.name: entry for entry in self._disk.list_directory(directory)}
        try:
            segments = self._load_segments(directory, entries, config, now_ms)
            log_end_offset = segments[-1].end_offset() if segments else log_start_offset
            epochs = self._load_epochs(directory, entries)
        except (CorruptSegmentError, CorruptFileError) as error:
            raise UncleanLogError(f"{directory}: {error}") from error
        if not segments:
            segments = [self._create_segment(directory, log_start_offset, config, now_ms)]
        wanted_start = log_start_offset
        log_start_offset = min(max(log_start_offset, segments[0].base_offset), log_end_offset)
        _forget_unproven(epochs, segments[0].base_offset, log_end_offset)
        epochs.truncate_from_start(log_start_offset)
        producers = ProducerState()
        if log_end_offset > 0:
            try:
                load_producers(
                    self._disk,
                    directory,
                    producers,
                    segments,
                    log_end_offset,
                    now_ms=now_ms,
                    was_clean=True,
                )
            except CorruptSegmentError as error:
                raise UncleanLogError(f"{directory}: {error}") from error
        log = Log(
            self._disk,
            self._cache,
            directory,
            topic=topic,
            partition=partition,
            topic_id=self._load_topic_id(directory, entries),
            config=config,
            segments=segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=log_end_offset,
            epochs=epochs,
            producers=producers,
            deferred=self._deferred,
            has_holes=HOLES_MARK in entries,
        )
        log.is_checkpointed = CHECKPOINTED_MARK in entries
        if wanted_start > log_end_offset:
            # Records were deleted up to `wanted_start` and a crash took the rest. Offsets that
            # consumers know as deleted must not be used again.
            try:
                log.restart_at(wanted_start)
            except KafkaError as error:
                raise OSError(str(error)) from error
        return log

    def _load_segments(
        self, directory: str, entries: dict[str, DirectoryEntry], config: LogConfig, now_ms: int
    ) -> list[Segment]:
        segments, unindexed, lost = [], [], []
        for name, entry in entries.items():
            base_offset = parse_offset_name(name, LOG_SUFFIX)
            if base_offset is None:
                continue
            stem = offset_name(base_offset)
            index, times = entries.get(stem + INDEX_SUFFIX), entries.get(stem + TIME_INDEX_SUFFIX)
            aborts = entries.get(stem + TRANSACTION_INDEX_SUFFIX)
            segment = Segment(
                self._disk,
                self._cache,
                directory,
                base_offset,
                size=entry.size,
                index_size=index.size if index else 0,
                time_index_size=times.size if times else 0,
                transaction_index_size=aborts.size if aborts else 0,
                index_interval_bytes=config.index_interval_bytes,
                index_bytes_max=config.segment_index_bytes,
                created_ms=now_ms,
            )
            if not (index and times) or segment.has_ragged_index(index.size, times.size):
                unindexed.append(segment)
                lost.append(segment)
            elif aborts and not segment.transaction_index.is_sane(aborts.size, base_offset):
                lost.append(segment)
            segments.append(segment)
        segments.sort(key=lambda segment: segment.base_offset)
        for segment in lost:
            self._rebuild_transaction_index(directory, segments, segment)
        if lost:
            self._disk.fsync_directory(directory)
        for segment in unindexed:
            segment.rebuild_indexes()
        return segments

    def _rebuild_transaction_index(
        self, directory: str, segments: list[Segment], segment: Segment
    ) -> None:
        """Derive the aborted transactions again, because the index was lost or is damaged.

        The file and its name have to be durable before the other indexes are rebuilt: once these
        exist, a lost transaction index would not be noticed, and readers would get aborted records.
        """
        aborted: list[AbortedTransaction] = []
        if any(header.is_control for _, header in segment.headers()):
            aborted = find_aborted(self._disk, directory, segments, segment)
        segment.transaction_index.replace(b"".join(map(encode_aborted, aborted)))

    def _load_epochs(self, directory: str, entries: dict[str, DirectoryEntry]) -> LeaderEpochs:
        if LEADER_EPOCH_CHECKPOINT not in entries:
            return LeaderEpochs()
        content = read_small_file(self._disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        return LeaderEpochs(decode_epoch_checkpoint(content))

    def _load_topic_id(self, directory: str, entries: dict[str, DirectoryEntry]) -> TopicId:
        """Return the topic id of the directory; zero if the file is lost or damaged."""
        if PARTITION_METADATA not in entries:
            return ZERO_TOPIC_ID
        path = f"{directory}/{PARTITION_METADATA}"
        try:
            return decode_partition_metadata(read_small_file(self._disk, path))
        except ValueError:
            return ZERO_TOPIC_ID

    def _create_segment(
        self, directory: str, base_offset: int, config: LogConfig, now_ms: int
    ) -> Segment:
        self._deferred.note_directory(directory)
        return Segment.create(
            self._disk,
            self._cache,
            directory,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.segment_index_bytes,
            created_ms=now_ms,
        )


def _forget_unproven(epochs: LeaderEpochs, base_offset: int, log_end_offset: int) -> None:
    """Forget epochs that no record confirms.

    If the log has no records left, the epoch file may be older than the last deleted record. Its
    epoch could then be too low, and this log would seem to diverge from its leader's although it
    has no records that could.
    """
    epochs.truncate_from_end(log_end_offset + 1)
    if base_offset == log_end_offset:
        epochs.forget_started_below(log_end_offset)


def _check_marks(directory: str, entries: Container[str]) -> None:
    """Raise OSError if the log may have moved, UncleanLogError after a failed flush."""
    if MOVED_MARK in entries:
        raise OSError(
            errno.ENOENT,
            "it was being moved to a log directory that is not here: put that back, or remove"
            f" {MOVED_MARK} to go on with what is here, which may be older",
            directory,
        )
    if FAILED_FLUSH in entries:
        raise UncleanLogError(f"{directory}: a flush failed")
