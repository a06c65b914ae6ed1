"""A log moves between two disks, and at every disk operation the process is killed or power fails.

The start after that must find one log of the partition, a prefix of what was appended, with all
that a completed flush has covered; after a kill with everything. It goes on with the move from what
is copied, whatever has become of the log. At the switch the copy is the log, byte for byte.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from compaction import compact, read_records
from log_batches import all_headers, append, batch, record_batch
from moving_log import CONFIG, KEY, Story, operations_of, run_until_cut, start
from simulated_disk import PowerCut, SimulatedDisk

from fairlead_broker.log.directory import log_directories, log_loader, switched_logs
from fairlead_broker.log.directory.log_directories import DuplicateLogError
from fairlead_broker.log.files.cut_start import note_cut_start
from fairlead_broker.log.moving import move_jobs, move_plan, replica_move, segment_copies
from fairlead_broker.log.moving.move_plan import Step
from fairlead_broker.log.moving.passing_marks import PassingMarks
from fairlead_broker.log.moving.replica_move import ReplicaMove
from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_wire.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.disk import Disk
    from fairlead_broker.log.log import Log
    from fairlead_broker.log.moving.segment_copies import Piece


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_plan, "MOVE_TAIL_BYTES_MAX", 1_000)
    monkeypatch.setattr(replica_move, "MOVE_STEP_BYTES", 1_500)


def moves_in_peace(story: Story) -> None:
    story.append(25)
    story.flush()
    story.append(3)
    story.checkpoint()
    steps = story.move(1)
    assert Step.LEAVE in steps
    story.append(2)
    story.flush()
    story.checkpoint()


def is_written_meanwhile(story: Story) -> None:
    """Appends, flushes and checkpoints at every step, as if three other tasks ran."""

    def between(story: Story, step: Step) -> None:
        story.append(2)
        story.flush()
        if step is not Step.COPY:
            story.checkpoint()
        story.sync()

    story.append(30)
    story.flush()
    story.checkpoint()
    story.move(1, between)
    story.append(12)
    story.flush()


def moves_there_and_back(story: Story) -> None:
    story.append(12)
    story.flush()
    story.move(1)
    story.append(9)
    story.flush()
    story.checkpoint()
    story.move(0)
    story.append(3)
    story.flush()


def loses_its_beginning_meanwhile(story: Story) -> None:
    """Retention takes segments that are copied already."""
    left = [Step.SYNC, Step.ANNOUNCE]

    def between(story: Story, step: Step) -> None:
        if step in left:
            left.remove(step)
            story.append(14)
            story.start_offset = story.appended
            story.log.delete_expired_segments(2_000, story.log.log_end_offset)
            story.flush()

    story.append(30)
    story.flush()
    story.checkpoint()
    story.move(1, between)
    story.append(2)
    story.flush()
    story.checkpoint()


def is_called_back(story: Story) -> None:
    def between(story: Story, step: Step) -> None:
        if step is Step.ANNOUNCE:
            story.directories.moves.ask(KEY, "/0", failed={})

    story.append(20)
    story.flush()
    steps = story.move(1, between)
    assert steps[-3:] == [Step.LET_GO, Step.UNMARK, Step.REMOVE]
    story.append(4)
    story.flush()


SHORT = [moves_in_peace, is_called_back]
SCENARIOS = [
    moves_in_peace,
    is_written_meanwhile,
    moves_there_and_back,
    loses_its_beginning_meanwhile,
    is_called_back,
]


def found(disks: list[SimulatedDisk]) -> tuple[int, int, int]:
    """Start; number of the disk with the log, its first offset and its end."""
    directories = start(disks)
    assert not directories.offline
    log = directories.log(*KEY)
    assert log is not None
    headers = all_headers(log)
    end = headers[-1].next_offset if headers else log.log_start_offset
    assert end == log.log_end_offset
    for header in headers:
        assert log.epochs.epoch_of(header.base_offset) == header.partition_leader_epoch
    if headers:
        producer = log.producers.get(7)
        assert producer is not None
        assert producer.batches[-1].last_sequence == headers[-1].last_sequence
    offsets = [header.base_offset for header in headers]
    assert offsets == list(range(log.log_start_offset, end)) or offsets[:1] <= [end]
    for disk in disks:
        for path in disk.directories:
            assert not path.endswith("-stray"), path
    return int(directories.home(log).path[1:]), log.log_start_offset, end


def check_power_cuts(scenario: Callable[[Story], None], *, stride: int, seeds: int = 2) -> None:
    for number in range(1, operations_of(scenario) + 1, stride):
        story = run_until_cut(scenario, number)
        for seed in range(seeds):
            random = Random(f"{scenario.__name__} {number} {seed}")
            disks = [disk.after_power_cut(random, 512) for disk in story.shared.disks]
            _, first, end = found(disks)
            if not (end >= story.flushed and end <= story.appended and first <= story.start_offset):
                pytest.fail(f"{number}/{seed}: {first} to {end} of {story.flushed} flushed")
            again = [disk.after_power_cut(random, 512) for disk in disks]
            assert found(again)[1:] == (first, end)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_power_may_fail_at_any_operation_of_a_move(scenario: Callable[[Story], None]) -> None:
    """R36."""
    check_power_cuts(scenario, stride=1 if scenario in SHORT else 7)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_killed_process_loses_nothing_while_a_log_moves(
    scenario: Callable[[Story], None],
) -> None:
    for number in range(1, operations_of(scenario) + 1, 1 if scenario in SHORT else 5):
        story = run_until_cut(scenario, number)
        log = story.directories.log(*KEY)
        end = 0 if log is None else log.log_end_offset
        disks = [disk.after_kill() for disk in story.shared.disks]
        if number > story.marked_at:
            assert start(disks).start.unclean == [], number
        _, _, recovered = found([disk.after_kill() for disk in disks])
        assert recovered >= end, number


@pytest.mark.parametrize("scenario", SCENARIOS[:3])
def test_a_start_goes_on_with_a_move(scenario: Callable[[Story], None]) -> None:
    for number in range(1, operations_of(scenario) + 1, 3):
        story = run_until_cut(scenario, number)
        again = Story([disk.after_kill() for disk in story.shared.disks])
        end = again.log.log_end_offset
        for move in list(again.directories.moves):
            steps = again.carry_out(move)
            assert steps[0] is Step.KEEP
            assert again.directories.home(again.log) is move.target
        assert again.log.log_end_offset == end
        assert len(all_headers(again.log)) == end
        names = [path for disk in again.shared.disks for path in disk.directories]
        assert not [path for path in names if path.endswith("-future")]


class Mutants:
    """Ways to get it wrong, each of which some cut must show."""

    @staticmethod
    def flushes_begin_too_soon(patch: pytest.MonkeyPatch) -> None:
        begin = ReplicaMove._switch

        def switch(move: ReplicaMove) -> None:
            begin(move)
            move.log.flush_state.is_held = False

        patch.setattr(ReplicaMove, "_switch", switch)

    @staticmethod
    def no_mark(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(switched_logs, "settle_switches", lambda *_: None)
        patch.setattr(log_directories, "settle_switches", lambda *_: None)
        patch.setattr(log_loader, "MOVED_MARK", "none")

    @staticmethod
    def the_old_goes_first(patch: pytest.MonkeyPatch) -> None:
        def after(facts: move_plan.MoveFacts) -> Step:
            if not facts.is_left:
                return Step.LEAVE
            if not facts.is_named:
                return Step.NAME
            return Step.LET_GO if facts.is_held else Step.END

        patch.setattr(move_plan, "_after_the_switch", after)

    @staticmethod
    def nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
        def copy(source: Disk, target: Disk, piece: Piece) -> None:
            copy_piece(source, target, piece._replace(is_last=False))

        copy_piece = segment_copies.copy_piece
        patch.setattr(move_jobs, "copy_piece", copy)

    @staticmethod
    def no_checkpoint_before(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(ReplicaMove, "_begin_note", lambda move: move_jobs.MoveJob(lambda: None))

        def complete(move: ReplicaMove, *_: object) -> None:
            move._noted = PassingMarks.of(move.log, 0, 0)

        patch.setattr(ReplicaMove, "_complete_note", complete)


def deletes_records(story: Story) -> None:
    """What DeleteRecords took, and a checkpoint says so, does not come back."""
    story.append(25)
    story.flush()
    story.log.advance_log_start_offset(7)
    story.start_offset = 7
    story.checkpoint()
    story.sync()
    story.marked_at = story.shared.operations - story.first_operation + 1
    story.move(1)
    story.flush()


def test_deleted_records_do_not_come_back() -> None:
    whole = run_until_cut(deletes_records)
    for number in range(whole.marked_at, whole.shared.operations + 1):
        story = run_until_cut(deletes_records, number)
        for seed in range(4):
            random = Random(f"start {number} {seed}")
            disks = [disk.after_power_cut(random, 512) for disk in story.shared.disks]
            if found(disks)[1] != 7:
                pytest.fail(f"{number}/{seed}: begins at {found(disks)[1]}")


@pytest.mark.parametrize(
    ("mutant", "scenario", "error"),
    [
        ("flushes_begin_too_soon", is_written_meanwhile, pytest.fail.Exception),
        ("no_mark", moves_in_peace, DuplicateLogError),
        ("the_old_goes_first", moves_in_peace, AssertionError),
        ("nothing_is_synced", moves_in_peace, pytest.fail.Exception),
    ],
)
def test_cuts_show_what_a_move_needs(
    mutant: str,
    scenario: Callable[[Story], None],
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    getattr(Mutants, mutant)(monkeypatch)
    with pytest.raises(error):
        check_power_cuts(scenario, stride=1 if scenario in SHORT else 3, seeds=4)


def test_cuts_show_that_checkpoints_have_to_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    Mutants.no_checkpoint_before(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="begins at 0"):
        test_deleted_records_do_not_come_back()


def switched_and_killed() -> Story:
    """The new log has its name, the old one is still there."""
    story = Story()
    story.create()
    story.append(20)
    story.flush()
    story.checkpoint()
    story.sync()

    def die(story: Story, step: Step) -> None:
        if step is Step.NAME:
            story.append(3)
            raise PowerCut

    with pytest.raises(PowerCut):
        story.move(1, die)
    return story


def test_an_old_log_is_removed_at_start() -> None:
    disks = [disk.after_kill() for disk in switched_and_killed().shared.disks]
    assert "/0/t-0" in disks[0].directories
    assert found(disks) == (1, 0, 23)
    assert "/0/t-0" not in disks[0].directories


def test_without_the_target_nobody_can_tell() -> None:
    """The old log must not count: it lacks what was acknowledged since."""
    disks = [disk.after_kill() for disk in switched_and_killed().shared.disks]
    directories = start(disks[:1])
    assert directories.log(*KEY) is None
    assert "moved to a log directory that is not here" in directories.offline[KEY]
    directories.close(clean=True, broker_epoch=2)
    assert found([disk.after_kill() for disk in disks]) == (1, 0, 23)


def test_a_disk_that_does_not_keep_the_new_name_takes_the_log_offline() -> None:
    story = Story()
    story.create()
    story.append(20)
    story.flush()

    def fail(story: Story, step: Step) -> None:
        if step is Step.SWITCH:
            story.shared.disks[1].fsync_directory = refuse  # type: ignore[method-assign]

    def refuse(path: str) -> None:
        raise OSError(path)

    steps = story.move(1, fail)
    assert Step.LEAVE not in steps
    assert story.log.is_offline
    assert "/0/t-0" in story.shared.disks[0].directories, "a start decides"


@pytest.mark.parametrize("when", [Step.COPY, Step.SYNC, Step.NOTE, Step.ANNOUNCE])
def test_a_log_is_compacted_on_its_way(when: Step) -> None:
    """What is copied of segments that are no more goes, and what took their place comes."""
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    story = Story()
    story.create(config)
    log = story.log
    log.reconfigure(config)
    for number in range(60):
        record = Record(0, 1_000, b"%d" % (number % 5), b"%d" % number)
        append(log, record_batch(record))
    story.flush()
    compacted: list[int] = []

    def clean(story: Story, step: Step) -> None:
        if step is when and not compacted:
            report = compact(log, 1_000)
            assert report is not None
            compacted.append(report.counts.records_removed)

    steps = story.move(1, clean)
    assert compacted[0] > 20
    assert Step.DISCARD in steps
    left = [(record.key, record.value) for record in read_records(log)]
    for key in range(5):
        assert (b"%d" % key, b"%d" % (55 + key)) in left
    assert len(left) < 40
    disks = [disk.after_kill() for disk in story.shared.disks]
    again = start(disks).log(*KEY)
    assert again is not None
    assert [(record.key, record.value) for record in read_records(again)] == left


def test_that_a_log_lacks_its_beginning_moves_with_it() -> None:
    """It leads, so it could not begin anew yet; once it follows it has to, also after a start."""
    story = Story()
    story.create()
    story.append(20)
    log = story.log
    note_cut_start(log.disk, log.path, 3)
    log.start_before_cut = 3
    story.move(1)
    moved = start([disk.after_kill() for disk in story.shared.disks]).log(*KEY)
    assert moved is not None
    assert (moved.path, moved.start_before_cut) == ("/1/t-0", 3)


def test_transactions_move_with_their_log() -> None:
    story = Story()
    story.create()
    log = story.log

    def write(producer_id: int, sequence: int) -> None:
        producer = (producer_id, 0, sequence)
        guard = log.producers.begin_verification(*producer, supports_epoch_bump=False)
        content = batch(size=300, producer=producer, attributes=0x10)
        log.append_as_leader(content, leader_epoch=0, now_ms=1_000, guard=guard)

    def check(log: Log) -> None:
        assert [each.producer_id for each in log.aborted_transactions(0, 10**6)] == [8, 8, 8]
        opened = [each.transaction_first_offset for each in log.producers]
        assert [offset for offset in opened if offset >= 0] == [open_from]

    for turn in range(3):
        for step in range(6):
            write(8, 6 * turn + step)
        log.append_end_marker(EndMarker(8, 0, 3, False, 1), leader_epoch=0, now_ms=1_000)
        story.flush()
    open_from = log.log_end_offset
    write(9, 0)
    check(log)
    story.move(1)
    check(log)
    write(9, 1)
    moved = start([disk.after_kill() for disk in story.shared.disks]).log(*KEY)
    assert moved is not None
    check(moved)
    assert moved.log_end_offset == log.log_end_offset
