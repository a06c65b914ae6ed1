"""A log with transactions against an oracle that walks a list: after every step the same answers.

Two logs take the same records, one as a leader, one as a follower; both are cut, stopped and
crashed. What they know of producers must be what their files say, from whichever snapshot on.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_batches import LogBench, flush, record_batch
from memory_folders import make_memory_folder
from transaction_oracle import (
    ABORT,
    COMMIT,
    PLAIN,
    TRANSACTIONAL,
    Batch,
    KnownProducer,
    committed,
    consumed,
    last_stable_offset,
    producers,
)

from fairlead_broker.log.directory.clean_stop import stop_log
from fairlead_broker.log.log import Log
from fairlead_broker.log.producer_loading import replayed, restore_snapshot, snapshot_offsets
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.recovery.log_recovery import recover_log
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_broker.tools.verify import verify_partition
from fairlead_wire.records import Record, iter_batches

CONFIG = {
    "segment_bytes": 700,
    "index_interval_bytes": 150,
    "segment_index_bytes": 400,
    "file_delete_delay_ms": 0,
}


def known(state: ProducerState) -> dict[int, KnownProducer]:
    """What a state says, in the oracle's terms."""
    return {
        entry.producer_id: KnownProducer(
            entry.epoch,
            entry.batches[-1].last_sequence if entry.batches else -1,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.transaction_first_offset,
        )
        for entry in state
    }


def stable_offset(log: Log, high_watermark: int) -> int:
    """As `Partition` asks for it: for most logs without a call."""
    if log.producers.first_unstable_offset is None:
        return high_watermark
    return log.producers.last_stable_offset(high_watermark)


class Replica:
    """A log on disk, and the mark below which nothing is lost."""

    def __init__(self) -> None:
        self.folder = make_memory_folder()
        self.bench = LogBench(f"{self.folder.name}/t-0")
        self.log = self.bench.create(**CONFIG)

    def restart(self, now_ms: int, high_watermark: int, *, is_clean: bool) -> None:
        end_offset = self.log.log_end_offset
        if is_clean:
            assert stop_log(self.log, now_ms)
        else:
            self.log.maybe_write_epochs()
            order = RecoveryOrder(
                self.bench.directory,
                self.log.recovery_point,
                self.log.log_start_offset,
                CONFIG["index_interval_bytes"],
                has_page_cache=True,
            )
            self.log.close()
            assert not recover_log(self.bench.disk, order, now_ms=now_ms).reason
        self.log.close()
        self.log = self.bench.load(now_ms=now_ms, **CONFIG)
        assert self.log.log_end_offset == end_offset
        self.log.recall_unreplicated(high_watermark)

    def lose(self, suffix: str) -> None:
        """All files of a kind are gone when the log is opened the next time."""
        for entry in self.bench.disk.list_directory(self.bench.directory):
            if entry.name.endswith(suffix):
                self.bench.disk.unlink(f"{self.bench.directory}/{entry.name}")

    def close(self) -> None:
        self.log.close()
        self.folder.cleanup()


class Story:
    """`model` is what the leader's log holds; the follower's is a beginning of it."""

    def __init__(self) -> None:
        self.replicas = [Replica(), Replica()]
        self.model: list[Batch] = []
        self.high_watermark = 0
        self.stable_seen = 0
        self.now_ms = 10_000

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()

    @property
    def leader(self) -> Log:
        return self.replicas[0].log

    def last_of(self, producer_id: int) -> KnownProducer:
        return producers(self.model).get(producer_id, KnownProducer(0, -1, -1, -1, -1))

    def produce(self, producer_id: int, epoch: int, sequence: int, count: int, kind: str) -> None:
        content = record_batch(
            *(Record(each, self.now_ms, b"k", b"v" * 30) for each in range(count)),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=kind == TRANSACTIONAL,
        )
        guard = None
        if kind == TRANSACTIONAL:
            guard = self.leader.producers.begin_verification(
                producer_id, epoch, sequence, supports_epoch_bump=False
            )
            is_open = self.last_of(producer_id).transaction_first_offset >= 0
            assert (guard is None) == is_open
        result = self.leader.append_as_leader(
            content, leader_epoch=0, now_ms=self.now_ms, guard=guard
        )
        assert not result.is_duplicate
        self.model.append(
            Batch(
                result.first_offset,
                result.last_offset,
                kind,
                producer_id,
                epoch,
                sequence,
                timestamp=self.now_ms,
            )
        )

    def append_in_transaction(self, choice: int) -> None:
        producer_id, count = 1 + choice % 3, 1 + choice // 3 % 3
        last = self.last_of(producer_id)
        self.produce(producer_id, last.epoch, last.last_sequence + 1, count, TRANSACTIONAL)

    def append_plain(self, choice: int) -> None:
        self.produce(-1, -1, -1, 1 + choice % 3, PLAIN)

    def append_idempotent(self, choice: int) -> None:
        last = self.last_of(1 + choice % 3)
        if last.transaction_first_offset < 0:
            self.produce(1 + choice % 3, last.epoch, last.last_sequence + 1, 2, PLAIN)

    def end(self, choice: int) -> None:
        """With or without an open transaction: a marker may be repeated."""
        producer_id, is_commit, version = 1 + choice % 3, choice // 3 % 3 == 0, choice // 9 % 3
        epoch = self.last_of(producer_id).epoch + (version == 2)
        coordinator_epoch = max(self.last_of(producer_id).coordinator_epoch, choice // 27 % 4)
        marker = EndMarker(producer_id, epoch, coordinator_epoch, is_commit, version)
        offset = self.leader.append_end_marker(
            marker, leader_epoch=0, now_ms=self.now_ms
        ).first_offset
        self.model.append(
            Batch(
                offset,
                offset,
                COMMIT if is_commit else ABORT,
                producer_id,
                epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self.now_ms,
            )
        )

    def replicate(self, choice: int) -> None:
        """The follower fetches, and a part of what it has is committed."""
        follower = self.replicas[1].log
        while follower.log_end_offset < self.leader.log_end_offset:
            piece = self.leader.read(
                follower.log_end_offset,
                400,
                end_offset=self.leader.log_end_offset,
                minimum_one_batch=True,
            ).records
            assert piece is not None
            content = self.leader.disk.pread(piece.file.read_fd, piece.length, piece.position)
            follower.append_as_follower(memoryview(content), now_ms=self.now_ms, leader_epoch=0)
        self.commit(choice)

    def commit(self, choice: int) -> None:
        end_offset = self.replicas[1].log.log_end_offset
        ends = [batch.last_offset + 1 for batch in self.model]
        higher = [each for each in ends if self.high_watermark < each <= end_offset]
        if higher:
            self.high_watermark = higher[choice % min(len(higher), 4)]

    def truncate(self, choice: int) -> None:
        """Both parted from a new leader above the high watermark."""
        lost = self.leader.log_end_offset - self.high_watermark
        offset = self.high_watermark + choice % (lost + 1)
        self.model = [batch for batch in self.model if batch.last_offset < offset]
        for replica in self.replicas:
            replica.log.truncate_to(offset)
            replica.log.refusal = None
        assert self.leader.log_end_offset == (self.model[-1].last_offset + 1 if self.model else 0)

    def restart(self, choice: int) -> None:
        self.replicas[choice % 2].restart(
            self.now_ms, self.high_watermark, is_clean=choice // 2 % 2 == 0
        )

    def lose_indexes(self, _: int) -> None:
        """Somebody took the indexes of a stopped log away."""
        replica = self.replicas[0]
        assert stop_log(replica.log, self.now_ms)
        replica.log.close()
        for suffix in (".txnindex", ".index"):
            replica.lose(suffix)
        replica.log = replica.bench.load(now_ms=self.now_ms, **CONFIG)
        replica.log.recall_unreplicated(self.high_watermark)

    def retain(self, choice: int) -> None:
        """Both delete what retention asks for; nothing that is open or not committed."""
        stable = last_stable_offset(self.model, self.high_watermark)
        for replica in self.replicas:
            log = replica.log
            bases = [base for base in log.bases if log.log_start_offset <= base <= stable]
            if not bases:
                continue
            log.advance_log_start_offset(bases[choice % len(bases)])
            log.delete_segments_below_start(self.now_ms, log.log_end_offset)
            job = log.begin_deletions(self.now_ms + 1)
            if job is not None and choice % 3:
                job.run()

    def roll(self, choice: int) -> None:
        self.replicas[choice % 2].log.roll(self.now_ms)

    def flush(self, choice: int) -> None:
        flush(self.replicas[choice % 2].log, self.now_ms)

    def the_stable_offset_is_the_oracles(self) -> None:
        for replica in self.replicas:
            log = replica.log
            held = [batch for batch in self.model if batch.last_offset < log.log_end_offset]
            high_watermark = min(self.high_watermark, log.log_end_offset)
            stable = stable_offset(log, high_watermark)
            assert stable == last_stable_offset(held, high_watermark)
        stable = last_stable_offset(self.model, self.high_watermark)
        assert stable >= self.stable_seen
        self.stable_seen = stable

    def readers_of_committed_records_see_those_and_no_others(self) -> None:
        for replica in self.replicas:
            log = replica.log
            held = [batch for batch in self.model if batch.last_offset < log.log_end_offset]
            stable = log.producers.last_stable_offset(min(self.high_watermark, log.log_end_offset))
            for batch in held[::3]:
                start = batch.last_offset
                if start < log.log_start_offset:
                    continue
                piece = log.read(start, 300, end_offset=stable, minimum_one_batch=True).records
                if piece is None:
                    continue
                content = log.disk.pread(piece.file.read_fd, piece.length, piece.position)
                end = list(iter_batches(content))[-1][1].next_offset
                upper = min(log.upper_offset(start, piece), stable)
                assert upper >= end
                aborted = [
                    (each.producer_id, each.first_offset)
                    for each in log.aborted_transactions(start, upper)
                ]
                assert list(consumed(held, start, end, aborted)) == committed(held, start, end)

    def every_replay_gives_what_is_known(self) -> None:
        for replica in self.replicas:
            log = replica.log
            held = [batch for batch in self.model if batch.last_offset < log.log_end_offset]
            assert known(log.producers) == producers(held)
            assert log.producers.first_unstable_offset == first_unstable(log.producers)
            beginnings = [-1, *snapshot_offsets(log.disk, log.path)]
            if log.bases[0] > 0:
                # What retention took is known from snapshots alone, and from none that is older.
                beginnings = [each for each in beginnings if each >= log.bases[0]]
            for beginning in beginnings:
                assert known_from(log, beginning) == producers(held)

    def the_files_agree(self) -> None:
        for replica in self.replicas:
            assert not list(verify_partition(replica.log.path))


def first_unstable(state: ProducerState) -> int | None:
    """By all entries, one by one."""
    begun = [e.transaction_first_offset for e in state if e.transaction_first_offset >= 0]
    return min([*begun, *(each.first_offset for each in state.unreplicated)], default=None)


def known_from(log: Log, snapshot: int) -> dict[int, KnownProducer]:
    """What is known at the log's end, from one snapshot on; -1: from its beginning."""
    state = ProducerState()
    if snapshot >= 0:
        first_base = log.segments[0].base_offset
        found = restore_snapshot(log.disk, log.path, state, first_base, snapshot, now_ms=0)
        assert found == snapshot
    list(replayed(log.disk, state, log.segments, max(snapshot, 0), 0))
    return known(state)


Step = Callable[[Story, int], None]
STEPS: list[Step] = [
    *[Story.append_in_transaction] * 8,
    *[Story.end] * 5,
    *[Story.append_plain, Story.append_idempotent],
    *[Story.replicate, Story.commit] * 2,
    *[Story.truncate, Story.restart] * 2,
    *[Story.roll, Story.flush, Story.lose_indexes, Story.retain],
]
STORIES = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 10_000)), min_size=50, max_size=70
)


@pytest.mark.timeout(300)
@given(steps=STORIES)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_log_says_what_the_oracle_says(
    steps: list[tuple[Callable[[Story, int], None], int]],
) -> None:
    story = Story()
    try:
        for act, choice in steps:
            act(story, choice)
            story.now_ms += 1
            story.the_stable_offset_is_the_oracles()
            story.readers_of_committed_records_see_those_and_no_others()
            story.every_replay_gives_what_is_known()
        story.the_files_agree()
    finally:
        story.close()
