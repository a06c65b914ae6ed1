"""The real log, with all its files, on its own simulated disk.

What `MemoryLog` imitates really happens here: rolling, fsync, checkpoints, snapshots of producers,
transaction indexes, marks of holes, recovery. So a crash may occur between any two steps of a
cleaning and of the replacement of segments, and the real recovery reads the files at the next
start. Topics with transactions have a `DiskLog`, compacted ones a `KeyedLog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from simulated_disk import SimulatedDisk
from simulator.keyed_records import KeyedEntry, decode_keyed
from simulator.memory_log import MemoryLog, Read
from simulator.transactional_records import decode_transactional

from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.log.log import AppendResult, Log
from fairlead_model.configs.log_config import LogConfig

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairlead_broker.log.files.file_slice import FileSlice
    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_broker.log.producers.verification import VerificationGuard

PATH: Final = "/data"
READ_BYTES: Final = 700
FAILING: Final = ("pwrite", "fsync", "truncate", "rename", "unlink", "fsync_directory")
COMMON: Final = LogConfig(index_interval_bytes=150)
"""Recovery's config before the image has the topics' settings, such as compaction."""


class LogFiles:
    """The parts of a log that outlive a process."""

    def __init__(
        self, broker_id: int, topic: str, partition: int, number: int, kind: type[DiskLog]
    ) -> None:
        self.kind = kind
        self.broker_id = broker_id
        self.topic = topic
        self.partition = partition
        self.path = f"{PATH}-{broker_id}-{number}"
        self.disk = SimulatedDisk()
        self.boots = 0
        self.directory = self._open_directory()
        self.is_open = True
        """False from the end of a process to the next recovery."""
        self.tombstones: set[int] = set()
        """Offsets of all tombstones that the log ever had, below its end."""
        self.is_ghost = False
        self.on_changed: Callable[[Any, int], None] = lambda *_: None
        self.on_start: Callable[[Any], None] = lambda _: None

    def create(self, topic_id: bytes, config: LogConfig, now_ms: int) -> DiskLog:
        """Return the log of a partition that was never here."""
        self.directory.load(now_ms, config_for=lambda *_: COMMON)
        log = self.directory.create_log(self.topic, self.partition, topic_id, config, now_ms)
        return self._adopt(log)

    def open(self, now_ms: int) -> DiskLog:
        """Return the log of the next process, from the files on the disk."""
        self.disk = self.disk.after_kill()
        self.directory = self._open_directory()
        report = self.directory.load(now_ms, config_for=lambda *_: COMMON)
        log = self.directory.log(self.topic, self.partition)
        if log is None:
            raise AssertionError(f"a log cannot be opened: {report.offline}")
        self.is_open = True
        return self._adopt(log)

    def _open_directory(self) -> LogDirectory:
        return LogDirectory(
            self.path,
            node_id=self.broker_id,
            cluster_id="simulated",
            disk=self.disk,
            boot_id=f"boot-{self.boots}",
        )

    def _adopt(self, log: Log) -> DiskLog:
        log.__class__ = self.kind
        assert isinstance(log, DiskLog)
        log.files = self
        log.contents = log.read_all()
        self.tombstones = {at for at in self.tombstones if at < log.log_end_offset}
        return log


class FileBytes(bytes):
    """Bytes that were read from a segment, with their position."""

    piece: FileSlice


class DiskLog(Log):
    """`contents` are its records as a reader finds them: every append updates them, and they are
    read again from the files after everything that rewrites those."""

    decode: Callable[[Any], Any] = staticmethod(decode_transactional)
    """Decodes whole batches to record numbers and all else that the observer compares."""
    files: LogFiles
    contents: dict[int, Any]

    @property
    def is_ghost(self) -> bool:
        """Whether it was deleted, and restored by a power cut."""
        return self.files.is_ghost

    @is_ghost.setter
    def is_ghost(self, value: bool) -> None:
        self.files.is_ghost = value

    @property
    def base_offset(self) -> int:
        return self.bases[0]

    @property
    def entries(self) -> list[Any]:
        return list(self.contents.values())

    def entry(self, offset: int) -> Any:
        """Return an entry; AssertionError without one: only committed records are compacted."""
        found = self.contents.get(offset)
        if found is None:
            raise AssertionError(f"{self.path} has no record at {offset}")
        return found

    def read_all(self) -> dict[int, Any]:
        """Return every record, as a consumer finds them from the beginning."""
        found: dict[int, Any] = {}
        offset = self.log_start_offset
        while offset < self.log_end_offset:
            content = self._read_bytes(offset, READ_BYTES, self.log_end_offset)
            if not content:
                raise AssertionError(f"a reader of {self.path} gets no further than {offset}")
            for batch in self.decode(content):
                if batch.next_offset <= offset:
                    raise AssertionError(f"a reader at {offset} gets {batch}")
                found.update(each for each in batch.entries if each[0] >= offset)
                offset = batch.next_offset
        return found

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
        result = super().append_as_leader(
            batch,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            has_keys=has_keys,
            guard=guard,
            is_from_coordinator=is_from_coordinator,
        )
        if not result.is_duplicate:
            self._take_in(batch, result.first_offset)
        return result

    def append_end_marker(
        self, marker: EndMarker, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        result = super().append_end_marker(marker, leader_epoch=leader_epoch, now_ms=now_ms)
        end = self.log_end_offset
        self._take_in(self._read_bytes(result.first_offset, READ_BYTES, end), result.first_offset)
        return result

    def append_as_follower(
        self, batches: memoryview, *, now_ms: int, leader_epoch: int | None = None
    ) -> None:
        before = self.log_end_offset
        try:
            super().append_as_follower(batches, now_ms=now_ms, leader_epoch=leader_epoch)
        finally:
            self._take_in(batches, before)

    def read(  # type: ignore[override]
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool
    ) -> Read:
        found = super().read(
            offset, max_bytes, end_offset=end_offset, minimum_one_batch=minimum_one_batch
        )
        piece = found.records
        if piece is None:
            return Read(None, offset)
        content = FileBytes(self.disk.pread(piece.file.read_fd, piece.length, piece.position))
        content.piece = piece
        return Read(content, offset)

    def upper_offset(self, fetch_offset: int, records: FileBytes) -> int:  # type: ignore[override]
        return super().upper_offset(fetch_offset, records.piece)

    def truncate_to(self, offset: int) -> None:
        before = self.log_end_offset
        super().truncate_to(offset)
        if self.log_end_offset < before:
            self._reread(self.log_end_offset)

    def restart_at(self, offset: int) -> None:
        super().restart_at(offset)
        self._reread(0)
        self.files.on_start(self)

    def advance_log_start_offset(self, offset: int) -> None:
        if offset > self.log_start_offset:
            super().advance_log_start_offset(offset)
            self.contents = {at: each for at, each in self.contents.items() if at >= offset}
            self.files.on_start(self)

    def deletable_end(self, high_watermark: int) -> int:
        """Return the limit of retention: committed, and no batch that a producer may repeat."""
        last = [each.batches[-1].first_offset for each in self.producers if each.batches]
        return min([high_watermark, *last])

    def confirm(self, broker_epoch: int) -> None:
        """Note that the controller knows this start; a failing disk takes the log offline."""
        try:
            self.files.directory.confirm_start(broker_epoch)
        except OSError as error:
            self.go_offline(error)

    def sync(self) -> None:
        """Flush, as the flusher does in a thread."""
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.complete_flush(job, 0)
        if not self.is_failing:
            self._sync_names()

    def checkpoint(self) -> None:
        """Write checkpoints of the log, and what a truncation has to wait for."""
        self.files.directory.write_checkpoints()
        if not self.is_failing:
            self._sync_names()

    def stop(self, broker_epoch: int) -> None:
        """End the process cleanly."""
        self.files.directory.close(clean=True, broker_epoch=broker_epoch)

    def ended(self) -> None:
        """Note that the process is gone, in any way; the next one has to recover."""
        self.files.is_open = False

    def opened(self, now_ms: int) -> DiskLog:
        """Return the log that the next process finds."""
        return self if self.files.is_open else self.files.open(now_ms)

    def lose_power(self, rng: random.Random, now_ms: int) -> DiskLog:
        """Return the log that the next process finds after a power cut."""
        self.files.boots += 1
        self.files.disk = self.files.disk.after_power_cut(rng, rng.choice((512, 4096)))
        return self.files.open(now_ms)

    def reopen(self) -> None: ...

    @property
    def is_durable(self) -> bool:
        """True if a power cut would lose no record."""
        is_cut = self.refusal == AWAITS_CHECKPOINT
        return self.recovery_point == self.log_end_offset and not (is_cut or self.is_offline)

    @property
    def is_failing(self) -> bool:
        return bool(self.files.disk.failures)

    @is_failing.setter
    def is_failing(self, value: bool) -> None:
        self.files.disk.failures.clear()
        if value:
            for operation in FAILING:
                self.files.disk.fail(operation)

    @property
    def is_full(self) -> bool:
        return self.files.disk.free_bytes is not None

    @is_full.setter
    def is_full(self, value: bool) -> None:
        # Some batches have room, and the others have not.
        self.files.disk.free_bytes = self.log_end_offset % 700 if value else None

    def _reread(self, changed_from: int) -> None:
        self.contents = {at: e for at, e in self.contents.items() if at < self.log_end_offset}
        if not changed_from:
            self.contents.clear()
        self.files.tombstones = {at for at in self.files.tombstones if at < changed_from}
        self.files.on_changed(self, changed_from)

    def _take_in(self, batches: memoryview | bytes, offset: int) -> None:
        end = self.log_end_offset
        for batch in self.decode(batches):
            for at, entry in batch.entries:
                if offset <= at < end:
                    self.contents[at] = entry
                    self._note(at, entry)

    def _note(self, offset: int, entry: Any) -> None: ...

    def _read_bytes(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        read = self.read(offset, max_bytes, end_offset=end_offset, minimum_one_batch=True)
        return read.records or b""

    def _sync_names(self) -> None:
        job = self.files.directory.begin_sync()
        if job is not None:
            job.run()


class KeyedLog(DiskLog):
    """The log of a compacted topic."""

    decode = staticmethod(decode_keyed)
    contents: dict[int, KeyedEntry]

    def reread(self) -> None:
        """Read again after a replacement of segments."""
        self.contents = self.read_all()

    def _note(self, offset: int, entry: KeyedEntry) -> None:
        if entry.is_tombstone:
            self.files.tombstones.add(offset)


AnyLog: TypeAlias = MemoryLog | DiskLog
