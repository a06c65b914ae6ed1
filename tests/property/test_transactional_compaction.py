"""Compaction of a log with transactions: who reads committed records finds each key's last value.

The oracle keeps a list of what was put and how it ended, and knows neither batches nor indexes. A
reader goes on fetch by fetch among the cleanings, and what a crash may leave of the snapshots makes
no difference to what the log knows of its producers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from compaction import compact
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from log_batches import LogBench, flush, record_batch
from memory_folders import make_memory_folder

from fairlead_broker.log.compaction.log_cleaning import UncleanableLogError
from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.files.file_names import SNAPSHOT_SUFFIX
from fairlead_broker.log.files.file_slice import FileSlice
from fairlead_broker.log.index.transaction_index import AbortedTransaction
from fairlead_broker.log.producer_loading import load_producers
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_wire.records import ControlType, Record, decode_batch, iter_batches

CONFIG: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 600,
    "index_interval_bytes": 150,
    "min_cleanable_dirty_ratio": 0.0,
    "file_delete_delay_ms": 0,
    "delete_retention_ms": 1_000,
    "producer_id_expiration_ms": 20_000,
}
PRODUCERS = 3
LONG_MS = 100_000


class Put(NamedTuple):
    offset: int
    key: bytes
    value: bytes
    transaction: object
    """None: it was committed at once."""


class Fetch(NamedTuple):
    """What a reader is sent: where it asked, the bytes, and what was aborted."""

    offset: int
    piece: FileSlice
    aborted: list[AbortedTransaction]


class Reader:
    """A consumer of committed records; what it is sent it reads later, as a socket would."""

    def __init__(self, topic: "CompactedTopic") -> None:
        self._topic = topic
        self._sent: Fetch | None = None
        self.offset = topic.log.log_start_offset
        self.found: dict[bytes | None, bytes | None] = {}

    def fetch(self) -> bool:
        """Ask for what comes next; False if nothing does."""
        log, stable_offset = self._topic.log, self._topic.stable_offset
        piece = log.read(self.offset, 400, end_offset=stable_offset, minimum_one_batch=True).records
        if piece is None:
            return False
        upper = min(log.upper_offset(self.offset, piece), stable_offset)
        self._sent = Fetch(self.offset, piece, log.aborted_transactions(self.offset, upper))
        return True

    def read(self) -> None:
        """Read what was sent, as Kafka's `CompletedFetch` does."""
        if self._sent is None:
            return
        offset, piece, aborted = self._sent
        self._sent = None
        content = self._topic.log.disk.pread(piece.file.read_fd, piece.length, piece.position)
        waiting = sorted((each.first_offset, each.producer_id) for each in aborted)
        left_out: set[int] = set()
        for position, header in iter_batches(content):
            while waiting and waiting[0][0] <= header.last_offset:
                left_out.add(waiting.pop(0)[1])
            records = decode_batch(content, position)
            if header.is_control:
                if records[0].key == bytes([0, 0, 0, ControlType.ABORT]):
                    left_out.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in left_out):
                for record in records:
                    assert record.offset < offset or self._topic.is_committed(record.offset)
                    self.found[record.key] = record.value
            self.offset = header.next_offset


class CompactedTopic:
    """`outcomes` has the transactions that are over, with True for those that were committed."""

    def __init__(self) -> None:
        self.folder = make_memory_folder()
        self.bench = LogBench(f"{self.folder.name}/t-0")
        self.log = self.bench.create(**CONFIG)
        self.puts: list[Put] = []
        self.begun: dict[int, object] = {}
        self.outcomes: dict[object, bool] = {}
        self.sequences = [0] * PRODUCERS
        self.epochs = [0] * PRODUCERS
        self.now_ms = 1_000
        self.reader = Reader(self)

    def close(self) -> None:
        self.log.close()
        self.folder.cleanup()

    def put(self, choice: int) -> None:
        producer_id = choice % (PRODUCERS + 1)
        key = b"key %d" % (choice // 4 % 5)
        value = b"value %d" % len(self.puts)
        if producer_id == PRODUCERS:
            content, transaction, guard = record_batch(Record(0, 1_000, key, value)), None, None
        else:
            sequence = self.sequences[producer_id]
            self.sequences[producer_id] += 1
            guard = self.log.producers.begin_verification(
                producer_id, self.epochs[producer_id], sequence, supports_epoch_bump=False
            )
            transaction = self.begun.setdefault(producer_id, object())
            content = record_batch(
                Record(0, 1_000, key, value),
                producer_id=producer_id,
                producer_epoch=self.epochs[producer_id],
                base_sequence=sequence,
                is_transactional=True,
            )
        result = self.log.append_as_leader(content, leader_epoch=0, now_ms=self.now_ms, guard=guard)
        self.puts.append(Put(result.first_offset, key, value, transaction))

    def end(self, choice: int) -> None:
        """In the epoch of the transaction, or in a new one as from transaction version 2 on."""
        producer_id, commits = choice % PRODUCERS, choice // PRODUCERS % 2 == 0
        version = 1 + choice // PRODUCERS // 2 % 2
        if version > 1:
            self.epochs[producer_id] += 1
            self.sequences[producer_id] = 0
        marker = EndMarker(producer_id, self.epochs[producer_id], 0, commits, version)
        self.log.append_end_marker(marker, leader_epoch=0, now_ms=self.now_ms)
        entry = self.log.producers.get(producer_id)
        if entry is None or not entry.batches:
            # It was silent for too long. What a marker alone leaves asks for a first sequence.
            self.sequences[producer_id] = 0
        if producer_id in self.begun:
            self.outcomes[self.begun.pop(producer_id)] = commits

    def roll(self, _: int) -> None:
        self.log.roll(self.now_ms)

    def wait(self, choice: int) -> None:
        self.now_ms += choice

    def clean(self, choice: int) -> None:
        """With a map for some keys or for all; then look at what a crash may leave."""
        self.log.roll(self.now_ms)
        flush(self.log)
        try:
            compact(
                self.log,
                self.now_ms,
                stable_offset=self.stable_offset,
                dedupe_buffer_bytes=24 * (4 + choice % 20),
            )
        except UncleanableLogError as error:
            assert "log.cleaner.dedupe.buffer.size" in str(error)
        snapshots = self.snapshots()
        self.check_producers_without(snapshots[len(snapshots) - choice % (len(snapshots) + 1) :])

    def restart(self, _: int) -> None:
        self.reader.read()
        assert stop_log(self.log, self.now_ms)
        self.log.close()
        self.log = self.bench.load(**CONFIG)

    def fetch(self, _: int) -> None:
        self.reader.read()
        self.reader.fetch()

    def snapshots(self) -> list[Path]:
        return sorted(Path(self.log.path).glob(f"*{SNAPSHOT_SUFFIX}"))

    def check_producers_without(self, lost: list[Path]) -> None:
        """Load the producers without some snapshots, as they are after a crash that took these."""
        for path in lost:
            path.rename(f"{path}.lost")
        loaded = ProducerState()
        log = self.log
        load_producers(
            log.disk, log.path, loaded, log.segments, log.log_end_offset, now_ms=self.now_ms
        )
        for path in lost:
            Path(f"{path}.lost").rename(path)
        assert loaded.last_stable_offset(log.log_end_offset) == self.stable_offset
        for entry in log.producers:
            again = loaded.get(entry.producer_id)
            assert again is not None, entry.producer_id
            assert again.epoch == entry.epoch
            assert again.transaction_first_offset == entry.transaction_first_offset
            if entry.batches:  # else it was forgotten, and only a marker is known since
                assert again.batches[-1][:4] == entry.batches[-1][:4]

    @property
    def stable_offset(self) -> int:
        return self.log.producers.last_stable_offset(self.log.log_end_offset)

    def markers_after_a_long_time(self) -> int:
        """How many markers are there that have no records, once all that may go has gone."""
        for producer_id in list(self.begun):
            self.end(producer_id)
        for _ in range(3):
            self.wait(LONG_MS)
            self.put(PRODUCERS)
            self.clean(16)
        waiting: set[int] = set()
        empty = 0
        for segment in self.log.segments[:-1]:
            for _, header in segment.headers():
                if header.is_control:
                    empty += header.producer_id not in waiting
                    waiting.discard(header.producer_id)
                elif header.is_transactional and header.records_count:
                    waiting.add(header.producer_id)
        return empty

    def is_committed(self, offset: int) -> bool:
        put = next(each for each in self.puts if each.offset == offset)
        return put.transaction is None or self.outcomes.get(put.transaction, False)

    def expected(self) -> dict[bytes, bytes]:
        return {
            each.key: each.value
            for each in self.puts
            if each.offset < self.stable_offset and self.is_committed(each.offset)
        }

    def found(self) -> dict[bytes | None, bytes | None]:
        """What a consumer of committed records ends with, fetch by fetch."""
        reader = Reader(self)
        while reader.fetch():
            reader.read()
        return reader.found


STEPS = [
    *[CompactedTopic.put] * 8,
    *[CompactedTopic.end] * 4,
    *[CompactedTopic.roll, CompactedTopic.clean, CompactedTopic.clean, CompactedTopic.restart],
    *[CompactedTopic.fetch, CompactedTopic.fetch, CompactedTopic.wait],
]
Step = tuple[Callable[[CompactedTopic, int], None], int]
STORIES = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 10_000)), min_size=50, max_size=80
)


A_MARKER_FOR_A_FORGOTTEN_PRODUCER = [
    (CompactedTopic.put, 2),
    (CompactedTopic.end, 3617),
    *[(CompactedTopic.wait, 10_000)] * 3,
    (CompactedTopic.roll, 0),
    (CompactedTopic.restart, 0),
    (CompactedTopic.end, 3614),
    (CompactedTopic.put, 2),
]


@pytest.mark.timeout(300)
@example(steps=A_MARKER_FOR_A_FORGOTTEN_PRODUCER)
@given(steps=STORIES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_key_has_its_last_committed_value(
    steps: list[Step],
) -> None:
    topic = CompactedTopic()
    try:
        for act, choice in steps:
            act(topic, choice)
            assert topic.found() == topic.expected()
        topic.clean(16)
        assert topic.found() == topic.expected()
        assert topic.markers_after_a_long_time() <= PRODUCERS + len(topic.log.segments)
        assert topic.found() == topic.expected()
    finally:
        topic.close()
