"""One replica that moves from one log directory to another: facts for the plan, and its steps.

`next_step` returns the next step; `begin` does the loop's part of a step and returns a job for a
thread, if there is one; `complete` takes the job's result. `move_plan` decides the order of steps.
"""

from __future__ import annotations

import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fairlead_broker.limits import MOVE_ROOM_BYTES, MOVE_STEP_BYTES
from fairlead_broker.log.files import reserve
from fairlead_broker.log.files.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    FILE_NAME_BYTES_MAX,
    FUTURE_DIRECTORY_SUFFIX,
    partition_directory,
)
from fairlead_broker.log.files.holes import mark_holes
from fairlead_broker.log.moving import move_jobs
from fairlead_broker.log.moving.copied_segments import record_copied
from fairlead_broker.log.moving.move_jobs import KeepJob, MoveJob
from fairlead_broker.log.moving.move_plan import MoveFacts, Step, next_step
from fairlead_broker.log.moving.passing_marks import PassingMarks
from fairlead_broker.log.moving.relocation import relocate
from fairlead_broker.log.moving.segment_copies import Place, SegmentCopy
from fairlead_model.invariants import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.disk import Disk
    from fairlead_broker.log.files.deferred_files import DeferredFiles
    from fairlead_broker.log.files.deletions import Deletions
    from fairlead_broker.log.files.read_cache import ReadCache
    from fairlead_broker.log.files.text_files import TopicPartition
    from fairlead_broker.log.log import Log
    from fairlead_broker.log.moving.move_jobs import Job
    from fairlead_broker.log.moving.segment_copies import Piece
    from fairlead_broker.log.segment import Segment

logger = logging.getLogger(__name__)

TRIES_MAX = 3
"""Attempts of a step that does not find a file: a compaction may just have removed it."""


class MoveEnd(Protocol):
    """The part of `LogDirectory` that a move uses; that class documents it."""

    path: str
    disk: Disk
    cache: ReadCache
    deferred: DeferredFiles
    removals: Deletions
    directory_id: str
    passing: dict[TopicPartition, PassingMarks]
    high_watermarks: dict[TopicPartition, int]

    def begin_noting(self) -> tuple[Job, Callable[[int], None]] | None: ...
    def take_in(self, log: Log) -> None: ...
    def hand_out(self, log: Log) -> None: ...


class ReplicaMove:
    """`future` is the path of the copy. `reason` says why the move was given up, if it was."""

    def __init__(self, log: Log, source: MoveEnd, target: MoveEnd, future: str) -> None:
        self.log = log
        self.source = source
        self.target = target
        self.future = future
        self.reason = ""
        self.is_switched = False
        self.step_bytes = MOVE_STEP_BYTES
        """Bytes that are copied at once; a throttle may set fewer."""
        self.left_path = ""
        """Where the old log is now, or the copy of a move that was given up: still under its name
        if the disk failed to rename it."""
        self.key = (log.topic, log.partition)
        self._path = log.path
        self._copies: dict[int, SegmentCopy] = {}
        self._generation = log.flush_state.generation
        self._tries = 0
        self._has_failed = False
        self._has_kept = self._is_synced = self._is_announced = self._is_marked = False
        self._is_removed = self._is_named = self._is_name_lost = self._is_left = False
        self._keeping: dict[int, Segment] = {}
        self._unlisted: list[SegmentCopy] = []
        self._noted: PassingMarks | None = None
        self._announced_end = 0
        self._copying: list[tuple[SegmentCopy, list[Piece], bool]] = []
        self._complete_checkpoint: Callable[[int], None] | None = None

    @property
    def has_failed(self) -> bool:
        """True if the move was given up because of an error, and not cancelled."""
        return self._has_failed

    @property
    def copied_bytes(self) -> int:
        """Bytes of records in the copy."""
        return sum(copy.segment.size - copy.missing_bytes for copy in self._copies.values())

    @property
    def missing_bytes(self) -> int:
        """Bytes of records that are not in the copy yet."""
        return max(self.log.size - self.copied_bytes, 0)

    def fits_beside(self, missing_bytes: int) -> bool:
        """Tell whether all that is missing has room, and so many bytes of other moves, too."""
        try:
            room = self.target.disk.bytes_free(self.target.path)
        except OSError:
            return True  # `_begin_copy` gives up the move.
        return room >= self.missing_bytes + missing_bytes + MOVE_ROOM_BYTES

    @property
    def offset_lag(self) -> int:
        """Offsets by which the copy is behind; within a segment estimated by bytes."""
        log = self.log
        ends = [*log.bases[1:], log.log_end_offset]
        for segment, end in zip(log.segments, ends, strict=True):
            copy = self._copies.get(segment.base_offset)
            if copy is None or copy.segment is not segment:
                return log.log_end_offset - max(segment.base_offset, log.log_start_offset)
            if copy.missing_bytes > 0:
                behind = (end - segment.base_offset) * copy.missing_bytes // segment.size
                return log.log_end_offset - end + max(behind, 1)
        return 0

    def give_up(self, reason: str, *, has_failed: bool = True) -> bool:
        """Give up the move; False if the log is already in the other directory."""
        if self.is_switched:
            return False
        if not self.reason:
            self.reason, self._has_failed = reason, has_failed
        return True

    def call_back(self, reason: str) -> bool:
        """Cancel the move; False if the log is already in the other directory.

        The copy loses its name at once: whoever asked for this is told that it is done, and a start
        must not go on with the move.
        """
        if not self.give_up(reason, has_failed=False):
            return False
        if not self.left_path:
            gone = self._name_when_gone
            try:
                self.target.disk.rename(self.future, gone)
            except OSError as error:
                logger.warning("%s keeps its name for now: %s", self.future, error)
            else:
                self.left_path = gone
        return True

    def next_step(self) -> Step:
        """Return the next step."""
        log, state = self.log, self.log.flush_state
        if log.is_closed or log.is_offline:
            self.give_up(f"the log is {log.refusal}")
        return next_step(
            MoveFacts(
                has_kept=self._has_kept and not self._was_cut,
                is_given_up=bool(self.reason),
                # A log that lacks room may move: a full disk is the reason for many moves.
                is_in_use=log.swap is not None or (log.refusal is not None and not log.lacks_room),
                is_flushing=state.is_running,
                has_strange_copies=bool(self._strange()),
                missing_bytes=log.size - self.copied_bytes,
                is_sealed_missing=self._first_unsure() is not log.active,
                has_unlisted=bool(self._unlisted),
                is_synced=self._is_synced,
                is_noted=self._noted is not None and self._noted.still_holds(log),
                is_held=state.is_held,
                is_announced=self._is_announced,
                is_marked=self._is_marked,
                is_removed=self._is_removed,
                is_switched=self.is_switched,
                is_named=self._is_named,
                is_name_lost=self._is_name_lost,
                is_left=self._is_left,
            )
        )

    def begin(self, step: Step) -> Job | None:
        """Do the loop's part of a step; return the job for a thread, if there is one."""
        if step is Step.KEEP:
            return self._begin_keep()
        if step is Step.COPY:
            return self._begin_copy()
        if step is Step.RECORD:
            return self._begin_record()
        if step is Step.NOTE:
            return self._begin_note()
        if step is Step.ANNOUNCE:
            return self._begin_announce()
        if step is Step.HOLD:
            self.log.flush_state.is_held = True
        elif step is Step.LET_GO:
            self._let_go()
        elif step is Step.SWITCH:
            self._switch()
        elif step is Step.DISCARD:
            return self._begin_discard()
        elif step is Step.SYNC:
            return MoveJob(partial(move_jobs.sync, self._old, self._new, self._begin_rest()))
        else:
            return self._begin_end(step)
        return None

    def _begin_end(self, step: Step) -> MoveJob | None:
        if step is Step.UNMARK:
            return MoveJob(partial(move_jobs.unmark, self._old))
        if step is Step.REMOVE:
            if self.left_path:
                return MoveJob(partial(self.target.disk.fsync_directory, self.target.path))
            gone = self.left_path = self._name_when_gone
            return MoveJob(partial(move_jobs.rename_durably, self.target.disk, self.future, gone))
        if step is Step.NAME:
            return MoveJob(partial(self.target.disk.fsync_directory, self.target.path))
        if step is Step.LEAVE:
            ending = f".{uuid.uuid4().hex}{DELETE_DIRECTORY_SUFFIX}"
            name = partition_directory(*self.key)[: FILE_NAME_BYTES_MAX - len(ending)]
            self.left_path = f"{self.source.path}/{name}{ending}"
            new = Place(self.target.disk, f"{self.target.path}/{partition_directory(*self.key)}")
            return MoveJob(partial(move_jobs.leave, self._old, self.left_path, new))
        return None

    def complete(self, step: Step, job: Job, now_ms: int) -> None:
        """Take the result of a job."""
        error = job.error
        if step is Step.NOTE:
            self._complete_note(job, now_ms)
        elif step is Step.NAME:
            self._is_named, self._is_name_lost = error is None, error is not None
            if error is not None:
                self.log.go_offline(error)
        elif step is Step.LEAVE:
            self._complete_leave(error, now_ms)
        elif step is Step.REMOVE:
            self._is_removed = True
            if error is None:
                self.target.removals.add([self.left_path], now_ms)
            else:
                logger.error("%s is left for the next start: %s", self.future, error)
        elif step is Step.UNMARK:
            self._is_marked = False
            if error is not None:
                logger.error("%s: the next start takes its mark away: %s", self._path, error)
        elif error is not None:
            self._note_error(error)
        elif isinstance(job, KeepJob):
            self._note_kept(job)
        else:
            self._note_done(step)

    def _note_done(self, step: Step) -> None:
        self._tries = 0
        if step is Step.RECORD:
            self._unlisted = []
        elif step is Step.ANNOUNCE:
            self._is_announced = True
        elif step is Step.SYNC:
            self._is_synced = True
        for copy, pieces, was_sealed in self._copying:
            copy.note(pieces)
            # A segment that was sealed since the pieces were made has one more index entry.
            is_whole = pieces[0].is_last and copy.copied == copy.sizes()
            if is_whole and was_sealed and not copy.is_durable:
                self._unlisted.append(copy)
            copy.is_durable = is_whole and was_sealed
        self._copying = []

    def _note_kept(self, job: KeepJob) -> None:
        """Go on from the segments that the copy has whole."""
        self._tries = 0
        self._has_kept = True
        for base_offset in job.kept:
            copy = SegmentCopy(self._keeping[base_offset])
            copy.copied, copy.is_durable = copy.sizes(), True
            self._copies[base_offset] = copy
        self._keeping = {}

    def _note_error(self, error: OSError) -> None:
        """Give up the move, unless the log has changed during the step: then repeat the step."""
        self._copying = []
        if self._was_cut or self._strange():
            return
        self._tries += 1
        if not isinstance(error, FileNotFoundError) or self._tries == TRIES_MAX:
            self.give_up(str(error))

    def _strange(self) -> list[SegmentCopy]:
        """Return copies of segments that the log does not have any more."""
        there = dict(zip(self.log.bases, self.log.segments, strict=True))
        return [
            copy
            for base, copy in self._copies.items()
            if there.get(base) is not copy.segment or copy.is_outdated
        ]

    @property
    def _was_cut(self) -> bool:
        """True if the log was truncated since the copy was last looked at."""
        return self.log.flush_state.generation != self._generation

    def _begin_keep(self) -> KeepJob:
        """Look at what the copy has, at the beginning and whenever the log was truncated.

        A snapshot from before a truncation may have the name and the size of a newer one, and a
        segment may have been written anew: so only what is listed, and unchanged, is kept.
        """
        self._copies, self._unlisted = {}, []
        self._generation = self.log.flush_state.generation
        self._has_kept = self._is_synced = False
        self._noted = None
        self._keeping = {
            segment.base_offset: segment
            for segment in self.log.segments
            if segment is not self.log.active
        }
        sealed = {
            base_offset: tuple(SegmentCopy(segment).sizes().values())
            for base_offset, segment in self._keeping.items()
        }
        return KeepJob(self._old, self._new, sealed)

    def _begin_discard(self) -> MoveJob:
        """Remove copies of lost segments."""
        strange = self._strange()
        for copy in strange:
            del self._copies[copy.segment.base_offset]
        self._is_synced, self._noted = False, None
        lost = {id(copy) for copy in strange}
        self._unlisted = [copy for copy in self._unlisted if id(copy) not in lost]
        paths = [path for copy in strange for path in copy.paths(self.future)]
        return MoveJob(partial(move_jobs.unlink_all, self.target.disk, paths))

    def _begin_record(self) -> MoveJob:
        segments = {
            copy.segment.base_offset: tuple(copy.sizes().values()) for copy in self._unlisted
        }
        return MoveJob(partial(record_copied, self._old, self._new, segments))

    def _first_unsure(self) -> Segment:
        """Return the first segment not completely copied and durable, else the active one."""
        for base, segment in zip(self.log.bases, self.log.segments, strict=True):
            copy = self._copies.get(base)
            if copy is None or not copy.is_durable:
                return segment
        return self.log.active

    def _copy_of(self, segment: Segment) -> SegmentCopy:
        return self._copies.setdefault(segment.base_offset, SegmentCopy(segment))

    def _begin_rest(self) -> list[Piece]:
        """Return pieces for everything that is not copied, or perhaps not durable, yet."""
        log = self.log
        at = log.bases.index(self._first_unsure().base_offset)
        self._copying = [
            (copy, copy.last_pieces(self.future), segment is not log.active)
            for segment in log.segments[at:]
            for copy in [self._copy_of(segment)]
        ]
        return [piece for _, pieces, _ in self._copying for piece in pieces]

    def _begin_copy(self) -> MoveJob | None:
        self._is_synced = False
        segment = self._first_unsure()
        copy = self._copy_of(segment)
        try:
            room = self.target.disk.bytes_free(self.target.path)
        except OSError as error:
            self.give_up(str(error))
            return None
        if room < copy.missing_bytes + MOVE_ROOM_BYTES:
            self.give_up(f"{self.target.path} has {room} bytes left")
            return None
        is_last = not copy.missing_bytes
        pieces = (
            copy.last_pieces(self.future)
            if is_last
            else [copy.next_piece(self.future, self.step_bytes)]
        )
        self._copying = [(copy, pieces, segment is not self.log.active)]
        return MoveJob(partial(move_jobs.copy_pieces, self._old, self._new, pieces))

    def _begin_note(self) -> Job | None:
        """Have the target's checkpoints contain the log, up to the last complete segment."""
        log = self.log
        high_watermark = self.source.high_watermarks.get(self.key, 0)
        recovery_point = min(log.recovery_point, self._first_unsure().base_offset)
        marks = PassingMarks.of(log, recovery_point, high_watermark)
        self.target.passing[self.key] = marks
        begun = self.target.begin_noting()
        if begun is None:
            return None
        job, self._complete_checkpoint = begun
        return job

    def _complete_note(self, job: Job, now_ms: int) -> None:
        if self._complete_checkpoint is not None:
            self._complete_checkpoint(now_ms)
        if job.error is None:
            self._noted = self.target.passing[self.key]
        else:
            self.give_up(str(job.error))

    def _begin_announce(self) -> MoveJob:
        log = self.log
        pieces = self._begin_rest()
        self._announced_end, self._is_marked = log.log_end_offset, True
        if log.lacks_room:
            # The mark needs a little room.
            reserve.give_up_if_full(self.source.path)
        return MoveJob(
            partial(
                move_jobs.announce,
                self._old,
                self._new,
                pieces,
                move_jobs.small_files(log),
                self.target.directory_id,
            )
        )

    def _let_go(self) -> None:
        state = self.log.flush_state
        state.is_held = self._is_announced = False
        # Flush at once: requests may have waited for it.
        state.is_wanted = True

    def _switch(self) -> None:
        """Copy the last bytes and make the copy the log, in one turn of the loop."""
        log, source, target = self.log, self.source, self.target
        require(
            log.recovery_point <= self._announced_end, "{}: a flush ended while it moves", log.path
        )
        pieces = [piece._replace(is_last=False) for piece in self._last_pieces()]
        path = f"{target.path}/{partition_directory(*self.key)}"
        try:
            move_jobs.copy_pieces(self._old, self._new, pieces)
            if log.has_holes:
                mark_holes(target.disk, self.future)
            target.disk.rename(self.future, path)
        except OSError as error:
            self.give_up(str(error))
            return
        self.is_switched = True
        high_watermark = source.high_watermarks.get(self.key, 0)
        source.passing[self.key] = PassingMarks.of(log, log.recovery_point, high_watermark)
        source.hand_out(log)
        relocate(log, path, disk=target.disk, cache=target.cache, deferred=target.deferred)
        target.take_in(log)
        target.high_watermarks[self.key] = high_watermark
        target.passing.pop(self.key, None)
        target.deferred.note_directory(target.path)

    def _last_pieces(self) -> list[Piece]:
        """Return pieces for everything that was appended since the copy was announced."""
        return self._copy_of(self.log.active).last_pieces(self.future)

    def _complete_leave(self, error: OSError | None, now_ms: int) -> None:
        self._is_left = True
        if error is None:
            self.source.removals.add([self.left_path], now_ms)
            return
        logger.error("%s stays, the next start removes it: %s", self._path, error)
        self.left_path = self._path

    def abandon(self) -> None:
        """Release the log and the checkpoints, at the end of the move or before it.

        Before the end the copy stays, and perhaps the mark. The next start goes on with the move.
        """
        if self.log.flush_state.is_held:
            self._let_go()
        self.source.passing.pop(self.key, None)
        self.target.passing.pop(self.key, None)

    @property
    def left_over(self) -> str | None:
        """The path of the old log, if it should be gone but is still there."""
        return self._path if self.is_switched and self.left_path in ("", self._path) else None

    @property
    def _name_when_gone(self) -> str:
        """The path of a copy that is not needed any more."""
        return self.future.removesuffix(FUTURE_DIRECTORY_SUFFIX) + DELETE_DIRECTORY_SUFFIX

    @property
    def _old(self) -> Place:
        return Place(self.source.disk, self._path)

    @property
    def _new(self) -> Place:
        return Place(self.target.disk, self.future)
