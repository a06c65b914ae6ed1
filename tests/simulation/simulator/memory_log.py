"""A partition's log in memory, with the interface that `Partition` has of a real one.

It stores single records, and returns, truncates and deletes them by batches, as a real log does. It
remembers what was fsynced: a power cut keeps that and any part of what came later, and may restore
records that an unsynced truncation had dropped, or deleted segments.

Leader epochs and producer states are the real ones. What a real log reads from its snapshots and
transaction indexes is computed from the records here, as far as the log has them.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from simulator.records import (
    ABORT,
    COMMIT,
    RECORD_SIZE,
    TRANSACTIONAL,
    Entry,
    decode_entries,
    encode_entry,
)

from fairlead_broker.log import full_disk
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT, FlushState
from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_broker.log.leader_epochs import LeaderEpochs
from fairlead_broker.log.log import AppendResult
from fairlead_broker.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from fairlead_broker.log.producers.producer_state import ProducedBatch, ProducerState
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairlead_broker.log.leader_epochs import EpochEndOffset
    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_broker.log.producers.verification import VerificationGuard

REMEMBERED_BATCHES = 6
"""Batches of each producer that retention keeps: more than a leader remembers."""
NO_SEQUENCE = -1
NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Read(NamedTuple):
    """The parts of a `ReadResult` that the simulation uses."""

    records: bytes | None
    offset: int
    arrival: None = None


CONFIG = LogConfig()
"""The config of topics in memory; those on a simulated disk have their own."""


class MemoryLog:
    """`on_changed(log, end)` is called when everything from `end` on may have other content,
    `on_start(log)` when the log start advances."""

    is_closed = False
    is_compacted = False

    def __init__(self, topic: str = "", partition: int = 0, topic_id: bytes = b"") -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.entries: list[Entry] = []
        """Whole batches, even if the log starts inside of the first one."""
        self.log_start_offset = 0
        self.start_before_cut: int | None = None
        self.epochs = LeaderEpochs()
        self.producers = ProducerState()
        self.aborted: list[AbortedTransaction] = []
        self.config = CONFIG
        self.unflushed_messages = 0
        self.recovery_point = 0
        self.is_offline = False
        self.lacks_room = False
        self.flush_state = FlushState()
        self.is_failing = False
        """The disk will fail the next append."""
        self.is_full = False
        """The disk has no room for the next append."""
        self.is_ghost = False
        """It was deleted, and a power cut has undone that."""
        self.refusal: str | None = None
        self.on_changed: Callable[[MemoryLog, int], None] = lambda *_: None
        self.on_start: Callable[[MemoryLog], None] = lambda _: None
        self._durable: list[Entry] = []
        self._durable_base = 0
        self._checkpointed_start = 0
        self._snapshot_end = 0
        """End of the snapshot of producers that the last start has taken."""
        self.base_offset = 0
        """Offset of the first entry."""

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config

    @property
    def log_end_offset(self) -> int:
        return self.base_offset + len(self.entries)

    @property
    def last_leader_epoch(self) -> int:
        return self.epochs.last_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.base_offset]

    def batch_start(self, offset: int) -> int:
        """Return where the batch with an offset begins; the log's end at that."""
        return offset - (self.entry(offset).place if offset < self.log_end_offset else 0)

    def append_as_leader(
        self,
        batch: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        has_keys: bool = False,
        guard: VerificationGuard | None = None,
        is_from_coordinator: bool = False,
    ) -> AppendResult:
        self._check_disk()
        entries = [entry for _, entry in decode_entries(batch)]
        first, last = entries[0], entries[-1]
        offset = self.log_end_offset
        if first.producer_id >= 0:
            of_batch = (first.producer_id, first.producer_epoch, first.sequence, last.sequence)
            if first.kind == TRANSACTIONAL:
                original = self.producers.check_transactional(
                    *of_batch, guard, is_from_coordinator=is_from_coordinator
                )
            else:
                original = self.producers.find_duplicate(*of_batch)
            if original is not None:
                return AppendResult(
                    original.first_offset, original.last_offset, -1, self.log_start_offset, True
                )
        if leader_epoch != self.epochs.last_epoch:
            self.assign_leader_epoch(leader_epoch)
        self._append([entry._replace(leader_epoch=leader_epoch) for entry in entries], now_ms)
        return AppendResult(offset, self.log_end_offset - 1, -1, self.log_start_offset, False)

    def append_end_marker(
        self, marker: EndMarker, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        self._check_disk()
        self.producers.check_marker(marker)
        if leader_epoch != self.epochs.last_epoch:
            self.assign_leader_epoch(leader_epoch)
        offset = self.log_end_offset
        entry = Entry(
            leader_epoch,
            NO_SEQUENCE,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            kind=COMMIT if marker.is_commit else ABORT,
        )
        self._append([entry], now_ms)
        return AppendResult(offset, offset, -1, self.log_start_offset, False)

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int
    ) -> list[AbortedTransaction]:
        return [
            each
            for each in self.aborted
            if each.last_offset >= fetch_offset and each.first_offset < upper_offset
        ]

    @property
    def has_aborted(self) -> bool:
        return bool(self.aborted)

    def upper_offset(self, fetch_offset: int, records: bytes) -> int:
        """Return the exact end of what was read."""
        entries = decode_entries(records)
        return entries[-1][0] + 1 if entries else fetch_offset

    def recall_unreplicated(self, high_watermark: int) -> None:
        """Do nothing: `reopen` checks every record."""

    def append_as_follower(
        self,
        batches: memoryview | bytes,
        *,
        now_ms: int,
        leader_epoch: int | None = None,
    ) -> None:
        self._check_disk()
        records = decode_entries(batches)
        at = 0
        while at < len(records):
            offset, entry = records[at]
            if leader_epoch is not None and entry.leader_epoch > leader_epoch:
                return
            end = offset + entry.count
            if not self.entries and offset < self.log_end_offset < end:
                self.base_offset = offset  # The leader's log start is inside of the batch (R17).
            elif offset != self.log_end_offset or entry.place:
                raise AssertionError(f"append of {offset} at {self.log_end_offset}")
            if entry.leader_epoch > self.epochs.last_epoch:
                self.epochs.assign(entry.leader_epoch, offset)
            self._append([each for _, each in records[at : at + entry.count]], now_ms)
            at += entry.count

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool
    ) -> Read:
        """Return whole batches, from the one with `offset`."""
        log_end = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset} to {log_end}",
            )
        if offset >= min(end_offset, log_end):
            return Read(None, offset)
        first = self.batch_start(offset)
        last = self.batch_start(min(end_offset, log_end, first + max_bytes // RECORD_SIZE))
        if last <= first and minimum_one_batch:
            last = first + self.entry(first).count
        if last <= first or last > end_offset:
            return Read(None, offset)
        records = b"".join(encode_entry(at, self.entry(at)) for at in range(first, last))
        return Read(records, offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch from the one with `offset` on, but not below the log's start."""
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        end = self.batch_start(offset)
        if end < self.log_start_offset:
            self.restart_at(self.log_start_offset)
            return
        del self.entries[end - self.base_offset :]
        self.epochs.truncate_from_end(end)
        self.recovery_point = min(self.recovery_point, end)
        if end < self._snapshot_end:
            self._snapshot_end = 0
        self._rebuild_producers()
        self.on_changed(self, end)

    def restart_at(self, offset: int) -> None:
        self.entries.clear()
        self.base_offset = self.log_start_offset = self.recovery_point = offset
        self._snapshot_end = 0
        self.epochs.truncate_from_end(0)
        self.producers = ProducerState()
        self.aborted = []
        self.on_changed(self, 0)
        self.on_start(self)

    def advance_log_start_offset(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.on_start(self)

    def deletable_end(self, high_watermark: int) -> int:
        """Return the limit of retention: committed, and no batch that a producer may repeat."""
        last: dict[int, list[int]] = {}
        for at, entry in enumerate(self.entries):
            if entry.producer_id >= 0 and entry.place == 0:
                last.setdefault(entry.producer_id, []).append(self.base_offset + at)
        remembered = [places[-REMEMBERED_BATCHES:][0] for places in last.values()]
        return min([high_watermark, *remembered])

    def drop_below(self, offset: int) -> None:
        """Delete segments that are wholly below: here a segment may end with any batch."""
        base = self.batch_start(min(max(offset, self.base_offset), self.log_end_offset))
        del self.entries[: base - self.base_offset]
        self.base_offset = base
        self.recovery_point = max(self.recovery_point, base)
        self.advance_log_start_offset(base)

    def confirm(self, broker_epoch: int) -> None: ...

    def stop(self, broker_epoch: int) -> None: ...

    def ended(self) -> None: ...

    def opened(self, now_ms: int) -> MemoryLog:
        """Return the log of the next process, which is this one."""
        return self

    def sync(self) -> None:
        """Make everything written so far survive a power cut, unless the disk fails."""
        if self.is_failing:
            self.go_offline()
        else:
            self._note_durable()

    def _note_durable(self) -> None:
        self._durable = list(self.entries)
        self._durable_base = self.base_offset
        self.recovery_point = self.log_end_offset

    def checkpoint(self) -> None:
        """Write and fsync the file of log starts, which the next start reads."""
        self._checkpointed_start = self.log_start_offset
        if self.refusal == AWAITS_CHECKPOINT:
            self.refusal = None

    @property
    def is_durable(self) -> bool:
        """True if a power cut would lose no record."""
        return self._durable_tail() == self.entries

    def _durable_tail(self) -> list[Entry] | None:
        """Return the fsynced part of the present segments; None if the log was another one."""
        gap = self.base_offset - self._durable_base
        return None if gap < 0 else self._durable[gap:]

    def reopen(self) -> None:
        """Restart after a kill: what was written is there, the state is rebuilt.

        Epoch files lag behind: an epoch without records may be forgotten.
        """
        self.is_offline = self.is_failing = self.lacks_room = False
        self.flush_state = FlushState()
        self.refusal = None
        start = max(self.base_offset, self._checkpointed_start)
        if start > self.log_end_offset:
            # Records that are known to be deleted must not be returned again.
            self.restart_at(start)
        self.log_start_offset = start
        self._rebuild_epochs()
        if self._snapshot_end > self.log_end_offset:
            self._snapshot_end = 0
        self._rebuild_producers()
        self._snapshot_end = self.log_end_offset

    def lose_power(self, rng: random.Random, now_ms: int = 0) -> MemoryLog:
        """Keep what was fsynced and a part of what came later, then recover.

        A log that was truncated since its last fsync may return to its state at that fsync.
        """
        entries, tail = self.entries, self._durable_tail()
        if tail is not None and entries[: len(tail)] == tail:
            kept = rng.randint(len(tail), len(entries))
            if kept < len(entries):
                kept -= entries[kept].place
            self.entries = entries[:kept]
            deleted = self._durable[: self.base_offset - self._durable_base]
            is_gapless = self._durable_base + len(deleted) == self.base_offset
            if deleted and is_gapless and rng.random() < 0.5:
                self.entries = deleted + self.entries
                self.base_offset = self._durable_base
        else:
            self.entries = list(self._durable)
            self.base_offset = self._durable_base
        self._note_durable()
        self.reopen()
        self.on_changed(self, 0)
        return self

    def _append(self, batch: list[Entry], now_ms: int) -> None:
        offset = self.log_end_offset
        self.entries.extend(batch)
        if batch[0].producer_id >= 0:
            self._remember(offset, batch[0], now_ms)

    def _remember(self, offset: int, first: Entry, now_ms: int) -> None:
        if first.is_marker:
            self._end_transaction(offset, first, now_ms)
            return
        last = first.count - 1
        produced = ProducedBatch(
            first.sequence, first.sequence + last, offset, offset + last, now_ms
        )
        if first.kind == TRANSACTIONAL:
            record = self.producers.record_transactional
        else:
            record = self.producers.record
        record(first.producer_id, first.producer_epoch, produced, now_ms)

    def _end_transaction(self, offset: int, marker: Entry, now_ms: int) -> None:
        producer_id, producers = marker.producer_id, self.producers
        begun = producers.transaction_of(producer_id)
        if begun is not None and marker.kind == ABORT:
            stable = producers.first_open_beside(producer_id)
            self.aborted.append(
                AbortedTransaction(
                    producer_id, begun, offset, offset + 1 if stable is None else stable
                )
            )
        producers.end_transaction(
            producer_id,
            marker.producer_epoch,
            marker.value,
            offset=offset,
            timestamp=now_ms,
            now_ms=now_ms,
        )

    def _rebuild_producers(self) -> None:
        self.producers = ProducerState()
        self.aborted = []
        for at, entry in enumerate(self.entries):
            if self.base_offset + at == self._snapshot_end:
                self._read_snapshot()
            if entry.producer_id >= 0 and entry.place == 0:
                self._remember(self.base_offset + at, entry, 0)
        if self.log_end_offset == self._snapshot_end:
            self._read_snapshot()

    def _read_snapshot(self) -> None:
        """Keep only the batches in the file, which a start reads instead of the log."""
        kept = decode_snapshot(encode_snapshot(self.producers))
        batches = {entry.producer_id: entry.batches for entry in kept}
        for entry in self.producers:
            entry.batches[:] = batches[entry.producer_id]

    def _rebuild_epochs(self) -> None:
        self.epochs = LeaderEpochs()
        for at, entry in enumerate(self.entries):
            if entry.leader_epoch > self.epochs.last_epoch:
                self.epochs.assign(entry.leader_epoch, self.base_offset + at)
        self.epochs.truncate_from_start(self.log_start_offset)

    def go_offline(self) -> None:
        """Take the log offline: its disk failed, and unwritten data is gone from the page cache."""
        self.is_offline = True
        self.refusal = "the disk failed"
        self.flush_state.failed_flush = OSError(self.refusal)

    def write_epochs(self) -> None:
        """Write no file, which may lag behind as in reality; raise if the disk is full."""
        if self.is_full:
            raise NO_ROOM
        self.epochs.is_dirty = False

    def _check_disk(self) -> None:
        if self.is_failing:
            self.go_offline()
        elif self.is_full:
            full_disk.run_out(cast("Any", self), NO_ROOM)
        if self.is_offline or self.lacks_room:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")
