"""Power cuts before and after every disk operation of a scenario: what was fsynced is there (I10).

Each cut is followed by a start as after an unclean stop, with the kept and lost pages and names
drawn anew. The recovered log must be a prefix of what was appended, hold all that a completed
flush covered, and be the same after a second recovery, also if the power fails during the first.
What it knows of transactions, from snapshots, indexes and batches, must be what its batches say.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from log_batches import TOPIC_ID, all_headers, append, as_leader_sent, batch, flush
from simulated_disk import PowerCut, SimulatedDisk

from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.deletions import DeletionJob
from fairlead_broker.log.log import Log
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.recovery import leftovers
from fairlead_model.configs.log_config import LogConfig
from fairlead_wire.record_batch import BatchHeader
from fairlead_wire.records import decode_batch

PATH = "/data"
TRANSACTIONAL = 0x10
ABORT_KEY = b"\0\0\0\0"
CONFIG = LogConfig(
    segment_bytes=2_000, index_interval_bytes=400, file_delete_delay_ms=0, retention_bytes=4_000
)


@dataclass
class Story:
    """What the scenario was told; the test compares the recovered log with it.

    `written` is every batch by (base offset, epoch) in append order, `versions` the logs that a
    recovery may answer a prefix of: one more for each truncation that is not known durable.
    """

    disk: SimulatedDisk
    directory: LogDirectory
    versions: list[list[tuple[int, int]]] = field(default_factory=lambda: [[]])
    flushed: int = 0
    is_stopped_cleanly: bool = False
    start_offset: int = 0

    @property
    def log(self) -> Log:
        log = self.directory.log("t", 0)
        assert log is not None
        return log

    def append(self, count: int, *, epoch: int = 0, size: int = 180) -> None:
        for _ in range(count):
            base = self.log.log_end_offset
            # Noted first: a cut in the middle of the append may keep it or not.
            self.versions[-1].append((base, epoch))
            producer = (7, 0, base)
            append(self.log, batch(size=size, producer=producer), epoch=epoch)

    def append_without_producer(self, count: int, *, epoch: int = 0) -> None:
        for _ in range(count):
            self.versions[-1].append((self.log.log_end_offset, epoch))
            append(self.log, batch(size=150), epoch=epoch)

    def write(self, producer_id: int, *, sequence: int, epoch: int = 0, size: int = 150) -> None:
        """Append one batch of a producer's transaction, whose coordinator has agreed."""
        producer = (producer_id, 0, sequence)
        self.versions[-1].append((self.log.log_end_offset, epoch))
        guard = self.log.producers.begin_verification(*producer, supports_epoch_bump=False)
        self.log.append_as_leader(
            batch(size=size, producer=producer, attributes=TRANSACTIONAL),
            leader_epoch=epoch,
            now_ms=1_000,
            guard=guard,
        )

    def end(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
        self.versions[-1].append((self.log.log_end_offset, epoch))
        marker = EndMarker(producer_id, 0, 3, is_commit, 1)
        self.log.append_end_marker(marker, leader_epoch=epoch, now_ms=1_000)

    def flush(self) -> None:
        end = self.log.log_end_offset
        flush(self.log)
        assert self.log.recovery_point == end
        self.flushed = end
        # From here on the truncated versions cannot come back.
        del self.versions[:-1]

    def sync(self) -> None:
        job = self.directory.begin_sync()
        if job is not None:
            job.run()


def start(disk: SimulatedDisk) -> LogDirectory:
    directory = LogDirectory(PATH, node_id=0, cluster_id="c", disk=disk, boot_id="b")
    directory.load(0, config_for=lambda topic, partition: CONFIG)
    return directory


def new_story() -> Story:
    disk = SimulatedDisk()
    directory = start(disk)
    directory.confirm_start(1)
    directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    story = Story(disk, directory)
    story.sync()
    return story


def append_across_rolls(story: Story) -> None:
    story.append(9)
    story.flush()
    story.append(14)
    story.directory.write_checkpoints()
    story.flush()
    story.append(25)
    story.sync()
    story.append(3)


def truncate_and_append(story: Story) -> None:
    story.append(25)
    story.flush()
    story.directory.write_checkpoints()
    story.append(4, epoch=1)
    story.versions.append([entry for entry in story.versions[-1] if entry[0] < 8])
    story.flushed = min(story.flushed, 8)
    story.log.truncate_to(8)
    story.directory.write_checkpoints()
    del story.versions[:-1]
    story.append(6, epoch=3)
    story.flush()
    story.append(12, epoch=3)


def checkpoints_between_appends(story: Story) -> None:
    for count in (5, 11, 2):
        story.append(count)
        story.flush()
        story.directory.write_checkpoints({("t", 0): story.log.log_end_offset})
        story.sync()


def clean_stop(story: Story) -> None:
    story.append(15)
    story.flush()
    story.append(7)
    story.is_stopped_cleanly = story.directory.close(clean=True, broker_epoch=1)
    assert story.is_stopped_cleanly
    story.flushed = 22


def retention_and_delete(story: Story) -> None:
    story.append(80)
    story.flush()
    story.start_offset = 80
    assert story.log.delete_expired_segments(2_000, 80) > 2, "some may come back, and others not"
    job = story.log.begin_deletions(2_000)
    assert job is not None
    job.run()
    story.append(3)
    story.sync()
    story.directory.write_checkpoints()


def follower_appends(story: Story) -> None:
    for epoch, count in ((0, 8), (2, 9), (5, 10)):
        append_from_leader(story, epoch, count)
        story.flush()


def append_from_leader(story: Story, epoch: int, count: int) -> None:
    for _ in range(count):
        base = story.log.log_end_offset
        story.versions[-1].append((base, epoch))
        story.log.append_as_follower(as_leader_sent(base, epoch=epoch), now_ms=0)


def epochs_below_the_recovery_point(story: Story) -> None:
    """Epoch files lag behind appends; what recovery does not scan must have its epochs by then.

    Every flush moves the recovery point across rolls and is checkpointed at once.
    """
    append_from_leader(story, 0, 3)
    story.log.maybe_write_epochs()
    story.sync()
    for epoch, count in ((1, 5), (3, 17), (5, 3)):
        append_from_leader(story, epoch, count)
        append_from_leader(story, epoch + 1, 1)
        story.flush()
        story.directory.write_checkpoints()
    story.sync()
    story.append(12, epoch=7)
    story.flush()
    story.directory.write_checkpoints()
    story.append(3, epoch=8)
    story.log.maybe_write_epochs()
    story.append(2, epoch=9)


def deleted_and_made_again(story: Story) -> None:
    """The marks of the log that had its name before are worth nothing to a new one."""
    story.append(40)
    story.flush()
    story.log.advance_log_start_offset(30)
    story.start_offset = 30
    story.directory.write_checkpoints({("t", 0): 40})
    story.sync()
    story.versions.append([])
    story.flushed = 0
    story.directory.delete_log(story.log, 0)
    story.directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    del story.versions[0]
    story.start_offset = 0
    story.sync()
    story.append(25)
    story.directory.write_checkpoints({("t", 0): 10})
    story.flush()
    story.append(12)
    story.sync()
    story.append(2)


def transactions_across_rolls(story: Story) -> None:
    """Some begin in one segment and end in another; snapshots tell which were open at a roll."""
    for turn in range(2):
        for step in range(3):
            story.write(8, sequence=3 * turn + step)
            story.write(9, sequence=3 * turn + step)
            story.append_without_producer(1)
        story.end(9, is_commit=turn == 1)
        story.flush()
        story.write(10, sequence=2 * turn)
        story.end(8, is_commit=turn == 0)
        story.write(10, sequence=2 * turn + 1)
        story.directory.write_checkpoints({("t", 0): story.log.log_end_offset - 2})
        story.end(10, is_commit=False)
        story.sync()
    story.write(9, sequence=6)


def markers_that_are_cut_off(story: Story) -> None:
    """What they had ended is open again, and their entries are gone from the aborted index."""
    story.append_without_producer(8)
    story.write(8, sequence=0)
    story.write(9, sequence=0)
    story.end(9, is_commit=False)
    story.flush()
    story.directory.write_checkpoints()
    story.write(9, sequence=1)
    cut = story.log.log_end_offset
    story.end(8, is_commit=False)
    story.append_without_producer(5)
    story.end(9, is_commit=False)
    story.flush()
    story.versions.append([entry for entry in story.versions[-1] if entry[0] < cut])
    story.flushed = min(story.flushed, cut)
    story.log.truncate_to(cut)
    story.directory.write_checkpoints()
    del story.versions[:-1]
    story.write(8, sequence=1, epoch=2)
    story.end(8, is_commit=True, epoch=2)
    story.append_without_producer(4, epoch=2)
    story.end(9, is_commit=False, epoch=2)
    story.flush()
    story.append_without_producer(6, epoch=2)


def follower_of_transactions(story: Story) -> None:
    """Batches and markers as a leader sent them: the follower makes its own index of them."""
    leader = new_story()
    transactions_across_rolls(leader)
    for header in all_headers(leader.log):
        story.versions[-1].append((header.base_offset, header.partition_leader_epoch))
        story.log.append_as_follower(memoryview(content_of(leader.log, header)), now_ms=0)
        if header.base_offset % 7 == 6:
            story.flush()
            story.directory.write_checkpoints({("t", 0): header.base_offset - 1})
    story.sync()


def clean_stop_in_a_transaction(story: Story) -> None:
    story.append_without_producer(9)
    story.write(8, sequence=0)
    story.write(9, sequence=0)
    story.end(9, is_commit=False)
    story.flush()
    story.write(8, sequence=1)
    story.is_stopped_cleanly = story.directory.close(clean=True, broker_epoch=1)
    story.flushed = story.versions[-1][-1][0] + 1


SCENARIOS = [
    append_across_rolls,
    truncate_and_append,
    checkpoints_between_appends,
    clean_stop,
    retention_and_delete,
    follower_appends,
    epochs_below_the_recovery_point,
    deleted_and_made_again,
    transactions_across_rolls,
    markers_that_are_cut_off,
    follower_of_transactions,
    clean_stop_in_a_transaction,
]


def run_until_cut(
    scenario: Callable[[Story], None], *, before: int = -1, after: int = -1
) -> tuple[Story, bool]:
    story = new_story()
    offset = story.disk.operations
    story.disk.cut_before = offset + before if before > 0 else -1
    story.disk.cut_after = offset + after if after > 0 else -1
    try:
        scenario(story)
    except PowerCut:
        return story, True
    return story, False


def operations_of(scenario: Callable[[Story], None]) -> int:
    story = new_story()
    offset = story.disk.operations
    scenario(story)
    return story.disk.operations - offset


def recovered(disk: SimulatedDisk) -> list[BatchHeader]:
    """Start on the disk and read everything; indexes must lead to every batch."""
    directory = start(disk)
    log = directory.log("t", 0)
    if log is None:
        assert not directory.offline, directory.offline
        return []
    headers = all_headers(log)
    for header in headers:
        found = log.read(
            header.last_offset, 1, end_offset=log.log_end_offset, minimum_one_batch=True
        )
        assert found.records is not None
    if headers:
        assert headers[-1].next_offset == log.log_end_offset
        last = log.producers.get(7)
        if headers[-1].producer_id == 7:
            assert last is not None
            assert last.batches[-1].last_sequence == headers[-1].last_sequence
    for header in headers:
        assert log.epochs.epoch_of(header.base_offset) == header.partition_leader_epoch
    check_transactions(log, headers)
    return headers


def content_of(log: Log, header: BatchHeader) -> bytes:
    found = log.read(
        header.base_offset, header.size, end_offset=header.next_offset, minimum_one_batch=True
    )
    piece = found.records
    assert piece is not None
    return log.disk.pread(piece.file.read_fd, piece.length, piece.position)


def check_transactions(log: Log, headers: list[BatchHeader]) -> None:
    """What is open, what was aborted, and what is stable, is what the batches say."""
    opened: dict[int, int] = {}
    aborted = []
    stable = {0: 0}
    coordinator_epochs = {}
    for header in headers:
        if header.is_control:
            first = opened.pop(header.producer_id, None)
            coordinator_epochs[header.producer_id] = 3
            if first is not None and decode_batch(content_of(log, header))[0].key == ABORT_KEY:
                beside = min(opened.values(), default=header.next_offset)
                aborted.append((header.producer_id, first, header.base_offset, beside))
        elif header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
        stable[header.next_offset] = min(opened.values(), default=header.next_offset)
    known = {each.producer_id: each for each in log.producers}
    found = {
        each.producer_id: each.transaction_first_offset
        for each in known.values()
        if each.transaction_first_offset >= 0
    }
    assert found == opened
    for producer_id, epoch in coordinator_epochs.items():
        assert known[producer_id].coordinator_epoch == epoch
    assert list(map(tuple, log.aborted_transactions(0, log.log_end_offset))) == aborted
    if coordinator_epochs:
        for high_watermark in sorted(stable)[-5::4]:
            log.recall_unreplicated(high_watermark)
            assert log.producers.last_stable_offset(high_watermark) == stable[high_watermark]


def check_prefix(story: Story, headers: list[BatchHeader]) -> None:
    found = [(header.base_offset, header.partition_leader_epoch) for header in headers]
    for version in story.versions:
        tail = [entry for entry in version if not found or entry[0] >= found[0][0]]
        if tail[: len(found)] == found and (found or version[:0] == []):
            break
    else:
        pytest.fail(f"{found} is a prefix of none of {story.versions}")
    end = found[-1][0] + 1 if found else 0
    if end < story.flushed:
        pytest.fail(f"flushed to {story.flushed}, recovered to {end}")
    first = found[0][0] if found else 0
    assert first <= story.start_offset


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_power_may_fail_at_every_disk_operation(
    scenario: Callable[[Story], None], moment: str
) -> None:
    for number in range(1, operations_of(scenario) + 1):
        story, was_cut = run_until_cut(scenario, **{moment: number})
        assert was_cut
        for seed in range(3):
            random = Random(f"{scenario.__name__} {moment} {number} {seed}")
            granule = random.choice((512, 4096))
            disk = story.disk.after_power_cut(random, granule)
            first = recovered(disk)
            check_prefix(story, first)
            again = disk.after_power_cut(random, granule)
            assert recovered(again) == first, "recovery left something that was not durable"


@pytest.mark.parametrize(
    ("owner", "name"),
    [(leftovers, "_repeat_retention"), (DeletionJob, "_sync_directory")],
    ids=["nobody repeats retention", "names go that tell of retention"],
)
def test_power_cuts_show_what_retention_needs(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    """Mutants: without it, some cut ends the log behind a segment that came back."""
    monkeypatch.setattr(owner, name, lambda *_: False)
    with pytest.raises(pytest.fail.Exception, match="flushed to 80"):
        test_power_may_fail_at_every_disk_operation(retention_and_delete, "after")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_may_fail_again_during_recovery(scenario: Callable[[Story], None]) -> None:
    total = operations_of(scenario)
    for number in range(3, total + 1, 3):
        story, _ = run_until_cut(scenario, after=number)
        random = Random(f"{scenario.__name__} {number}")
        disk = story.disk.after_power_cut(random)
        for _ in range(3):
            disk.cut_before = random.randint(1, 40)
            try:
                recovered(disk)
            except PowerCut:
                disk = disk.after_power_cut(random)
        disk.cut_before = -1
        check_prefix(story, recovered(disk))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_killed_process_loses_nothing(scenario: Callable[[Story], None]) -> None:
    total = operations_of(scenario)
    for number in range(1, total + 1, 2):
        story, _ = run_until_cut(scenario, after=number)
        log = story.directory.log("t", 0)
        end = 0 if log is None else log.log_end_offset
        headers = recovered(story.disk.after_kill())
        check_prefix(story, headers)
        assert not headers or headers[-1].next_offset >= min(end, len(story.versions[-1]))


def test_a_clean_stop_needs_no_recovery_even_after_a_power_cut() -> None:
    story, _ = run_until_cut(clean_stop)
    assert story.is_stopped_cleanly
    for seed in range(20):
        disk = story.disk.after_power_cut(Random(seed), 512)
        directory = LogDirectory(PATH, node_id=0, cluster_id="c", disk=disk, boot_id="b")
        assert directory.start.was_clean
        assert directory.start.previous_broker_epoch == 1
        report = directory.load(0, config_for=lambda topic, partition: CONFIG)
        assert not report.recovered
        log = directory.log("t", 0)
        assert log is not None
        assert log.log_end_offset == 22
        assert [header.base_offset for header in all_headers(log)] == list(range(22))


def durable_transactions() -> Story:
    """A power cut takes nothing of it, and a start scans nothing."""
    story = new_story()
    transactions_across_rolls(story)
    story.flush()
    story.directory.write_checkpoints({("t", 0): story.log.log_end_offset})
    story.sync()
    return story


def test_power_may_fail_while_a_lost_epoch_file_is_made_anew() -> None:
    """Then recovery writes what is below the recovery point, too, and the next one may not look."""
    story = durable_transactions()
    whole = recovered(story.disk.after_power_cut(Random(0)))
    file = story.disk.names[f"{PATH}/t-0/leader-epoch-checkpoint"]
    file.content, file.durable = bytearray(), b""
    first = next(number for number in range(1, 100) if epochs_when_cut(story, number))
    # It takes luck that a cut leaves the new epoch file, and of the indexes only one that is empty.
    for number in range(first, first + 5):
        for seed in range(40):
            random = Random(f"epoch file {number} {seed}")
            disk = story.disk.after_power_cut(random)
            disk.cut_before = number
            with pytest.raises(PowerCut):
                recovered(disk)
            assert recovered(disk.after_power_cut(random)) == whole


def test_power_may_fail_after_a_lost_index_of_transactions_was_made_anew() -> None:
    """Once the other indexes are there again nobody would miss it."""
    story = durable_transactions()
    lost = story.disk.after_power_cut(Random(0))
    whole = recovered(lost)
    for path in [name for name in lost.names if name.endswith(".index")]:
        lost.unlink(path)
    lost.fsync_directory(f"{PATH}/t-0")
    is_over = False
    number = 0
    while not is_over:
        number += 1
        for seed in range(10):
            random = Random(f"transaction index {number} {seed}")
            disk = lost.after_power_cut(random)
            disk.cut_before = number
            try:
                recovered(disk)
                is_over = True
            except PowerCut:
                pass
            assert recovered(disk.after_power_cut(random)) == whole
    assert number > 10


def epochs_when_cut(story: Story, number: int) -> bytearray:
    """The epoch file when recovery is about to do so many operations."""
    disk = story.disk.after_power_cut(Random(0))
    disk.cut_before = number
    with pytest.raises(PowerCut):
        recovered(disk)
    return disk.names[f"{PATH}/t-0/leader-epoch-checkpoint"].content
