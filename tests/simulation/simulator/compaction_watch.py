"""The observer of compacted logs: which records may be missing, and which may not.

A record may be removed once a newer one of its key is committed and the log has everything up to
that. A tombstone may be removed `delete.retention.ms` after some replica first cleaned it. A reader
finds every other committed record at the offset where it was acknowledged, and each replica that
may lead knows the last batch of every idempotent producer.

A replica that was away for longer than `delete.retention.ms` may never get a tombstone, and keeps
the records that it deletes: this is so in Kafka, too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.disk_log import KeyedLog

if TYPE_CHECKING:
    from simulator.checker import Checker, PartitionKey, Truth
    from simulator.keyed_records import KeyedEntry

    from fairlead_broker.log.compaction.cleaning_state import LogCleaner
    from fairlead_broker.replication.partition import Partition


@dataclass(slots=True)
class Keys:
    """The committed records of one partition, by key and by producer."""

    newest: dict[bytes, int] = field(default_factory=dict)
    successor: dict[int, int] = field(default_factory=dict)
    """Offset → that of the next record with the same key."""
    last_sequence: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Producer id → sequence and offset of its last record."""
    first_cleaned_ms: dict[int, int] = field(default_factory=dict)
    """Tombstone → when a replica first cleaned the batches with it."""


class CompactionWatch:
    """A part of the checker, which raises for it."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._keys: defaultdict[PartitionKey, Keys] = defaultdict(Keys)
        self.cleanings = 0
        self.removed = 0
        self.tombstones_removed = 0

    def on_committed(self, key: PartitionKey, offset: int, entry: KeyedEntry) -> None:
        keys = self._keys[key]
        before = keys.newest.get(entry.key)
        if before is not None:
            keys.successor[before] = offset
        keys.newest[entry.key] = offset
        if entry.producer_id >= 0:
            keys.last_sequence[entry.producer_id] = (entry.sequence, offset)

    def on_cleaning(self, partition: Partition, end_offset: int) -> None:
        """Note that a replica begins to clean up to an offset: from now on tombstones age."""
        key = (partition.topic_id, partition.index)
        committed: list[Any] = self._checker.truths[key].committed
        first_cleaned_ms = self._keys[key].first_cleaned_ms
        now_ms = self._checker.world.loop.now_ms()
        for offset in range(partition.log_start_offset, min(end_offset, len(committed))):
            if committed[offset].is_tombstone:
                first_cleaned_ms.setdefault(offset, now_ms)

    def on_replaced(self, partition: Partition, cleaner: LogCleaner) -> None:
        """Compare a replica's records before and after a replacement of segments."""
        log: Any = partition.log
        if not isinstance(log, KeyedLog) or log.is_closed:
            return
        before = log.contents
        log.reread()
        after = log.contents
        key = (partition.topic_id, partition.index)
        for offset, entry in after.items():
            if before.get(offset) != entry:
                self._fail("%s holds %s at %d, it was %s", log.path, entry, offset, before)
        truth = self._checker.truths[key]
        for offset in before.keys() - after.keys():
            self._check_removal(partition, truth, offset, before[offset])
        self.removed += len(before) - len(after)
        self.cleanings += 1
        self._checker.on_log_changed(key, log, 0)

    def _check_removal(
        self, partition: Partition, truth: Truth, offset: int, entry: KeyedEntry
    ) -> None:
        log = partition.log
        if offset >= partition.high_watermark:
            self._fail("%s compacts %s at %d, not committed", partition, entry, offset)
        if offset >= log.active.base_offset:
            self._fail("%s compacts %s at %d of its active segment", partition, entry, offset)
        young_ms = self._checker.world.wall_clock_ms() - log.config.min_compaction_lag_ms
        if entry.timestamp > young_ms and not self._has_skewed_clocks:
            self._fail("%s compacts %s at %d, which is too young", partition, entry, offset)
        key = (partition.topic_id, partition.index)
        problem = self._complaint(key, truth, offset, partition.high_watermark)
        if problem is not None and not truth.is_forgiven:
            self._fail("%s compacts offset %d: %s", partition, offset, problem)
        if entry.is_tombstone and offset not in self._keys[key].successor:
            self.tombstones_removed += 1

    def check(self, key: PartitionKey, truth: Truth, log: KeyedLog, start: int, end: int) -> None:
        """Check that a log has what was committed in a range, except what may be missing."""
        committed: list[Any] = truth.committed
        contents = log.contents
        whole = min(log.log_end_offset, len(committed))
        for offset in range(start, end):
            entry = contents.get(offset)
            if entry is not None:
                if entry != committed[offset]:
                    self._fail("I7: offset %d holds %s, not %s", offset, entry, committed[offset])
                continue
            problem = self._complaint(key, truth, offset, whole)
            if problem is not None:
                self._fail("%s lacks offset %d: %s", log.path, offset, problem)

    def check_holder(self, key: PartitionKey, truth: Truth, log: KeyedLog) -> None:
        """Check a possible leader: no key has come back, every producer's last batch is known."""
        keys = self._keys[key]
        contents, end = log.contents, min(log.log_end_offset, len(truth.committed))
        gone = {
            name: newest
            for name, newest in keys.newest.items()
            if newest < end and newest not in contents and newest in log.files.tombstones
        }
        for offset, entry in contents.items() if gone else ():
            if offset < gone.get(entry.key, -1):
                self._fail("%s: %s at %d outlives what deleted it", log.path, entry, offset)
        for producer_id, (sequence, offset) in keys.last_sequence.items():
            if offset < truth.forgotten:
                continue
            known = log.producers.get(producer_id)
            if known is None or not known.batches or known.batches[-1].last_sequence < sequence:
                self._fail(
                    "%s has forgotten sequence %d of producer %d", log.path, sequence, producer_id
                )

    def check_gap(self, key: PartitionKey, start: int, end: int) -> None:
        """Check that a consumer without records for these offsets has missed no newest value."""
        truth = self._checker.truths[key]
        if truth.is_forgiven:
            return
        for offset in range(start, end):
            problem = self._complaint(key, truth, offset, len(truth.committed))
            if problem is not None:
                self._fail("a consumer got nothing at %d: %s", offset, problem)

    def check_from_the_beginning(self, key: PartitionKey, truth: Truth, log: KeyedLog) -> None:
        """Check that a new consumer gets the newest value of every key."""
        log.reread()
        committed: list[Any] = truth.committed
        view = {entry.key: entry for entry in log.contents.values()}
        for name, newest in self._keys[key].newest.items():
            if newest < max(log.log_start_offset, truth.forgotten):
                continue
            wanted, found = committed[newest], view.get(name)
            is_missed = wanted.is_tombstone and newest not in log.files.tombstones
            if found != wanted and not (wanted.is_tombstone and found is None) and not is_missed:
                self._fail("%s: %r is %s, committed is %s", log.path, name, found, wanted)
        self.check(key, truth, log, log.log_start_offset, log.log_end_offset)
        self.check_holder(key, truth, log)

    def _complaint(self, key: PartitionKey, truth: Truth, offset: int, end: int) -> str | None:
        """Return why a record must not be missing from a log that has everything below `end`.

        Below what a leader has deleted nothing need be there, though a log may begin earlier: a
        killed process restarts with the log start of its last checkpoint, and records below the
        real start may have been cleaned away meanwhile.
        """
        if offset < truth.forgotten:
            return None
        keys = self._keys[key]
        successor = keys.successor.get(offset)
        if successor is not None and successor < end:
            return None
        entry: Any = truth.committed[offset] if offset < len(truth.committed) else None
        if entry is None or not entry.is_tombstone:
            return f"{entry} is the newest of its key"
        if self._has_skewed_clocks:
            return None
        world = self._checker.world
        cleaned_ms = keys.first_cleaned_ms.get(offset)
        if cleaned_ms is None:
            return f"the tombstone {entry} was never cleaned"
        age_ms = world.loop.now_ms() - cleaned_ms
        assert world.compaction is not None
        if age_ms < world.compaction.config.delete_retention_ms:
            return f"the tombstone {entry} was cleaned {age_ms} ms ago"
        return None

    @property
    def _has_skewed_clocks(self) -> bool:
        return "clock" in self._checker.world.faults.counts

    def _fail(self, sentence: str, *arguments: object) -> None:
        self._checker.fail(sentence, *arguments)
