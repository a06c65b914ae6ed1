"""Kafka's own cleaner as the judge: both logs get the same batches, and keep the same of them.

After every cleaning each batch is compared: its offsets, producer and sequence, the time at which
its tombstones may go, and all records. Segments end where a story says, so that both cleaners see
the same ones. Markers of ours may go sooner: Kafka begins to count `delete.retention.ms` when it
finds no batch of the transaction, ours when it removes the last record of it.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compaction import compact
from kafka_cleaner import NEVER, KafkaCleaner, LeftBatch, left_of
from log_batches import LogBench, flush
from memory_folders import make_memory_folder
from needed_tools import need
from proofs import CLEANER_STORIES, seed_chunks

from fairlead_broker.log.producers.end_marker import EndMarker, encode_end_marker
from fairlead_wire.compression import Codec
from fairlead_wire.records import Record, encode_batch

pytestmark = pytest.mark.java

CHUNKS = seed_chunks(CLEANER_STORIES)
SEGMENT_BYTES = 1 << 30
DELETE_RETENTION_MS = 1_000
STEPS = 80
KEYS = 6
TRANSACTIONAL, IDEMPOTENT, PLAIN = (1, 2, 3), (4, 5), (-1,)
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCleaner]:
    need("javac")
    with KafkaCleaner() as cleaner:
        yield cleaner


class Story:
    """One history of a partition, in both logs."""

    def __init__(self, kafka: KafkaCleaner, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.kafka = kafka
        kafka.open(
            folder / "kafka",
            cleanup_policy="compact",
            segment_bytes=SEGMENT_BYTES,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.log = LogBench(f"{folder}/fairlead/t-0").create(
            cleanup_policy=frozenset({"compact"}),
            segment_bytes=SEGMENT_BYTES,
            min_cleanable_dirty_ratio=0.0,
            file_delete_delay_ms=0,
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.now_ms = 1_000
        self.stable_offset = 0
        self.epochs = dict.fromkeys((*TRANSACTIONAL, *IDEMPOTENT), 0)
        self.sequences = dict.fromkeys(self.epochs, 0)
        self.removed = 0
        self.markers: dict[int, tuple[int, int]] = {}
        """By offset: whose it is, and where the transaction before ended."""
        self.horizons: dict[int, int] = {}
        """From when on the markers that are left may go."""

    def append(self, content: bytes | memoryview) -> None:
        self.log.append_as_follower(memoryview(content), now_ms=self.now_ms)
        self.stable_offset = self.kafka.append(content)
        assert self.stable_offset == self.log.producers.last_stable_offset(self.log.log_end_offset)

    def put(self, producers: tuple[int, ...] = (*TRANSACTIONAL, *IDEMPOTENT, *PLAIN)) -> None:
        """A batch of some records, a third of them tombstones."""
        producer_id = self.chance.choice(producers)
        count = self.chance.randint(1, 4)
        records = [
            Record(
                self.log.log_end_offset + delta,
                self.now_ms - self.chance.randint(0, 50),
                b"key %d" % self.chance.randrange(KEYS),
                self.chance.choice((None, b"value", b"another value")),
            )
            for delta in range(count)
        ]
        producer: dict[str, Any] = {}
        if producer_id > 0:
            producer = {
                "producer_id": producer_id,
                "producer_epoch": self.epochs[producer_id],
                "base_sequence": self.sequences[producer_id],
                "is_transactional": producer_id in TRANSACTIONAL,
            }
            self.sequences[producer_id] += count
        codec = self.chance.choice(CODECS)
        self.append(encode_batch(records, codec=codec, partition_leader_epoch=0, **producer))

    def end(self, producers: tuple[int, ...] = TRANSACTIONAL) -> None:
        """A marker, also where nothing was written; sometimes with the next epoch (KIP-890)."""
        producer_id = self.chance.choice(producers)
        if self.chance.random() < 0.5:
            self.epochs[producer_id] += 1
            self.sequences[producer_id] = 0
        is_commit = self.chance.random() < 0.6
        marker = EndMarker(producer_id, self.epochs[producer_id], 0, is_commit, 1)
        before = (at for at, (each, _) in self.markers.items() if each == producer_id)
        self.markers[self.log.log_end_offset] = producer_id, max(before, default=-1)
        self.append(
            encode_end_marker(
                marker, offset=self.log.log_end_offset, leader_epoch=0, timestamp_ms=self.now_ms
            )
        )

    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self.kafka.roll()

    def wait(self) -> None:
        self.now_ms += self.chance.choice((1, 100, 700, 2_000))

    def clean(self) -> None:
        if self.log.active.size:
            self.roll()
        flush(self.log)
        before = sum(len(each.records) for each in left_of(self.log))
        clean_up_to = self.kafka.clean(self.now_ms)
        if clean_up_to is None:
            return  # Ours would remove old tombstones all the same.
        assert compact(self.log, self.now_ms, stable_offset=self.stable_offset) is not None
        assert self.log.first_dirty_offset == clean_up_to
        left = left_of(self.log)
        check_the_same(left, self.kafka.left())
        self.check_markers(left)
        self.removed += before - sum(len(each.records) for each in left)

    def check_markers(self, left: list[LeftBatch]) -> None:
        """Whoever is gone had to wait first, and leaves no record of its transaction behind."""
        there = {each.base_offset: each.delete_horizon_ms for each in left if each.is_control}
        for offset in self.horizons.keys() - there.keys():
            producer_id, begin = self.markers[offset]
            assert NEVER < self.horizons[offset] <= self.now_ms
            for each in left:
                if each.producer_id == producer_id and begin < each.base_offset < offset:
                    assert each.records == ()
        self.horizons = there

    def run(self) -> None:
        acts = [self.put] * 10 + [self.end] * 4 + [self.wait] * 3 + [self.roll, self.clean]
        for _ in range(STEPS):
            self.chance.choice(acts)()
        for producer_id in TRANSACTIONAL:
            self.end((producer_id,))
        for _ in range(5):
            self.clean()
            self.now_ms += 2 * DELETE_RETENTION_MS
            self.put(PLAIN)
        self.check_copy()

    def check_copy(self) -> None:
        """A follower that reads what is left from the beginning knows that all is committed."""
        copy = LogBench(f"{self.folder}/copy/t-0").create()
        for segment in self.log.segments:
            content = self.log.disk.pread(segment.file.read_fd, segment.size, 0)
            copy.append_as_follower(memoryview(content), now_ms=self.now_ms)
        end_offset = copy.log_end_offset
        assert copy.producers.last_stable_offset(end_offset) == end_offset == self.stable_offset
        copy.close()


def check_the_same(ours: list[LeftBatch], theirs: list[LeftBatch]) -> None:
    """Compare what is left of batches; markers of ours may go sooner."""
    data, their_data = ([each for each in some if not each.is_control] for some in (ours, theirs))
    assert data == their_data
    markers = {each.base_offset: each for each in ours if each.is_control}
    their_markers = {each.base_offset: each for each in theirs if each.is_control}
    assert markers.keys() <= their_markers.keys(), "Kafka's has removed one that ours keeps"
    for offset, marker in markers.items():
        theirs_now = their_markers[offset]
        if not theirs_now.records:
            # What says how far its producer is: Kafka keeps the batch alone, ours the marker.
            assert marker.delete_horizon_ms != NEVER
        elif marker != theirs_now:
            horizon_ms, their_horizon_ms = marker.delete_horizon_ms, theirs_now.delete_horizon_ms
            assert marker._replace(delete_horizon_ms=their_horizon_ms) == theirs_now
            assert their_horizon_ms == NEVER or NEVER < horizon_ms < their_horizon_ms


@pytest.mark.proof
@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_both_cleaners_keep_the_same(kafka: KafkaCleaner, seeds: list[int]) -> None:
    removed = 0
    with make_memory_folder() as name:
        for seed in seeds:
            folder = Path(name) / str(seed)
            story = Story(kafka, folder, seed)
            story.run()
            story.log.close()
            removed += story.removed
            shutil.rmtree(folder)
    assert removed > 20 * len(seeds), "there was something to clean"
