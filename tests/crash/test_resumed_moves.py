"""A move between two disks goes on after a start with what is copied, and with nothing else.

The process is killed or power fails at every disk operation, also of the move that goes on; and the
log changes before, between and after. `moving_log` compares the copy with the log at the switch.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from compaction import compact
from log_batches import all_headers, append, batch, flush, record_batch
from moving_log import CONFIG, KEY, Story, operations_of, run_until_cut
from simulated_disk import PowerCut, SimulatedDisk

from fairlead_broker.disk import FileVersion
from fairlead_broker.limits import COPIED_SEGMENTS_BYTES_MAX
from fairlead_broker.log.files.file_names import COPIED_SEGMENTS
from fairlead_broker.log.moving import copied_segments, move_plan, replica_move
from fairlead_broker.log.moving.copied_segments import (
    CopiedSegment,
    decode_copied,
    encode_copied,
)
from fairlead_broker.log.moving.move_plan import Step
from fairlead_broker.log.moving.replica_move import ReplicaMove
from fairlead_wire.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.log.moving.segment_copies import Place

SEGMENTS = 6


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_plan, "MOVE_TAIL_BYTES_MAX", 1_000)
    monkeypatch.setattr(replica_move, "MOVE_STEP_BYTES", 1_500)


def fill(story: Story) -> None:
    while len(story.log.segments) <= SEGMENTS:
        story.append(1)
    story.append(3)
    story.flush()
    story.checkpoint()
    story.sync()


def moves(story: Story) -> None:
    fill(story)
    story.move(1)


def killed_after(
    records: int, change: Callable[[Story], None] = lambda _: None
) -> list[SimulatedDisk]:
    """Disks of a process that has listed so many segments, then changed the log, and was killed."""
    story = Story()
    story.create()
    fill(story)

    def between(story: Story, step: Step) -> None:
        if step is Step.RECORD and len(listed(story.shared.disks)) == records:
            change(story)
            raise PowerCut

    with pytest.raises(PowerCut):
        story.move(1, between)
    return [disk.after_kill() for disk in story.shared.disks]


def listed(disks: list[SimulatedDisk]) -> dict[int, CopiedSegment]:
    (path,) = (path for path in disks[1].names if path.endswith(COPIED_SEGMENTS))
    return decode_copied(bytes(disks[1].names[path].content))


def go_on(
    disks: list[SimulatedDisk], change: Callable[[Story], None] = lambda _: None
) -> tuple[int, Story]:
    """Start, change the log, and carry out the move; how many segments were kept."""
    story = Story(disks)
    change(story)
    (move,) = story.directories.moves
    kept = -1

    def between(_: Story, step: Step) -> None:
        nonlocal kept
        if step is Step.KEEP and kept < 0:
            kept = len(move._copies)

    story.carry_out(move, between)
    assert story.directories.home(story.log) is move.target
    assert not [path for path in disks[1].names if path.endswith(COPIED_SEGMENTS)]
    assert not [path for path in disks[1].directories if path.endswith("-future")]
    return kept, story


@pytest.mark.parametrize("records", [1, SEGMENTS - 1])
def test_a_start_goes_on_with_the_segments_that_are_copied(records: int) -> None:
    disks = killed_after(records)
    end = Story([disk.after_kill() for disk in disks]).log.log_end_offset
    kept, story = go_on(disks)
    assert kept == records
    assert story.log.log_end_offset == end


def cut_in_the_third_segment(story: Story) -> None:
    """Cut the log, and make it as long again: all files have the sizes that they had."""
    log = story.log
    sizes, end = [segment.size for segment in log.segments], log.log_end_offset
    log.truncate_to(log.bases[2] + 1)
    story.checkpoint()
    while log.log_end_offset < end:
        append(log, batch(size=180, producer=(7, 0, log.log_end_offset), fill=b"z"), epoch=1)
    assert [segment.size for segment in log.segments] == sizes
    story.appended = log.log_end_offset


def lose_two_segments(story: Story) -> None:
    log = story.log
    left = sum(segment.size for segment in log.segments[2:])
    log.reconfigure(replace(CONFIG, retention_bytes=left))
    assert log.delete_expired_segments(2_000, log.log_end_offset) == 2


def make_anew(story: Story) -> None:
    """Delete the topic, and make one of the same name whose files have the same sizes."""
    log = story.log
    end, config = log.log_end_offset, log.config
    story.directories.delete_log(log, 0)
    new = story.directories.create_log(*KEY, bytes(16), config, 0)
    while new.log_end_offset < end:
        append(new, batch(size=180, producer=(7, 0, new.log_end_offset), fill=b"y"))


def test_what_comes_before_a_cut_is_kept_and_nothing_else() -> None:
    kept, story = go_on(killed_after(5), cut_in_the_third_segment)
    assert kept == 2
    kept, story = go_on(killed_after(5, cut_in_the_third_segment))
    assert kept == 2
    assert story.log.last_leader_epoch == 1


def test_a_cut_while_it_moves_keeps_what_is_listed() -> None:
    story = Story()
    story.create()
    fill(story)
    kept: list[int] = []
    cuts: list[Step] = []

    def between(story: Story, step: Step) -> None:
        (move,) = story.directories.moves
        if step is Step.KEEP:
            kept.append(len(move._copies))
        if step is Step.RECORD and len(listed(story.shared.disks)) == 4 and not cuts:
            cuts.append(step)
            cut_in_the_third_segment(story)

    story.move(1, between)
    assert kept == [0, 2]


def test_segments_that_retention_took_are_not_kept() -> None:
    disks = killed_after(4, lose_two_segments)
    first = min(Story([disk.after_kill() for disk in disks]).log.bases)
    kept, story = go_on(disks)
    assert kept == 2
    assert story.log.bases[0] == first > 0


def test_nothing_of_an_earlier_topic_is_kept() -> None:
    """Whether the mover has seen that the topic was deleted, or was killed before."""
    story = Story(killed_after(4))
    (move,) = story.directories.moves
    make_anew(story)
    assert story.directories.moves.under_way == {}, "cancelled"
    story.carry_out(move)
    assert story.log.topic_id == bytes(16)

    again = Story(killed_after(4, make_anew))
    assert list(again.directories.moves) == []
    assert again.log.topic_id == bytes(16)


@pytest.mark.parametrize("when", ["before the kill", "after the start"])
def test_compacted_segments_are_copied_anew(when: str) -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)

    def clean(story: Story) -> None:
        story.log.reconfigure(config)
        report = compact(story.log, 1_000)
        assert report is not None
        assert report.counts.records_removed

    story = Story()
    story.create(config)
    for number in range(90):
        append(story.log, record_batch(Record(0, 1_000, b"%d" % (number % 5), b"%0100d" % number)))
    story.flush()
    story.checkpoint()

    def between(story: Story, step: Step) -> None:
        if step is Step.RECORD and len(listed(story.shared.disks)) == 3:
            if when == "before the kill":
                clean(story)
            raise PowerCut

    with pytest.raises(PowerCut):
        story.move(1, between)
    disks = [disk.after_kill() for disk in story.shared.disks]
    kept, _ = go_on(disks, clean if when == "after the start" else lambda _: None)
    assert kept <= 1


@pytest.mark.parametrize("change", [cut_in_the_third_segment, make_anew])
def test_the_copy_would_differ_if_versions_did_not_count(
    change: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def any_version(old: Place, base_offset: int) -> FileVersion:
        return FileVersion(1, 1)

    monkeypatch.setattr(copied_segments, "_version", any_version)
    monkeypatch.setattr(ReplicaMove, "call_back", lambda *_: True)
    with pytest.raises(AssertionError):
        go_on(killed_after(5, change))


def test_a_move_that_goes_on_may_be_killed_at_any_operation() -> None:
    disks = killed_after(3)
    whole = Story([disk.after_kill() for disk in disks])
    end, first = whole.log.log_end_offset, whole.shared.operations
    (move,) = whole.directories.moves
    whole.carry_out(move)
    count = whole.shared.operations - first
    for number in range(1, count + 1, 2):
        again = Story(killed_after(3))
        (move,) = again.directories.moves
        again.shared.cut_at = again.shared.operations + number
        with pytest.raises(PowerCut):
            again.carry_out(move)
        last = Story([disk.after_kill() for disk in again.shared.disks])
        for left in list(last.directories.moves):
            last.carry_out(left)
        assert last.log.log_end_offset == end
        assert last.log.path == "/1/t-0"


@pytest.mark.parametrize("seed", range(2))
def test_a_move_goes_on_after_power_failed_at_any_operation(seed: int) -> None:
    for number in range(1, operations_of(moves) + 1, 4):
        story = run_until_cut(moves, number)
        random = Random(f"power {number} {seed}")
        disks = [disk.after_power_cut(random, 512) for disk in story.shared.disks]
        again = Story(disks)
        for move in list(again.directories.moves):
            again.carry_out(move)
        assert story.flushed <= again.log.log_end_offset <= story.appended, number


def test_a_torn_list_counts_up_to_where_it_is_whole() -> None:
    lines = [CopiedSegment(base, (10, 8, 12, 0), FileVersion(7, base + 1)) for base in (0, 5, 9)]
    content = encode_copied(lines)
    assert decode_copied(content) == {each.base_offset: each for each in lines}
    for length in range(len(content)):
        whole = content[:length].count(b"\n")
        assert list(decode_copied(content[:length] + bytes(30))) == [0, 5, 9][:whole]
    newer = lines[0]._replace(version=FileVersion(8, 2))
    assert decode_copied(content + encode_copied([newer]))[0] == newer
    assert decode_copied(b"1 2 3 4 5 6\n" + content) == {}
    assert decode_copied(b"1 2 3 4 5 6 -7\n" + content) == {}
    assert decode_copied(b"9" * 5_000 + b" 2 3 4 5 6 7\n") == {}


def test_a_list_that_is_too_large_counts_for_nothing() -> None:
    disks = killed_after(3)
    (path,) = (path for path in disks[1].names if path.endswith(COPIED_SEGMENTS))
    content = disks[1].names[path].content
    content.extend(bytes(COPIED_SEGMENTS_BYTES_MAX))
    assert go_on(disks)[0] == 0


def test_a_copy_that_lacks_a_file_is_made_anew() -> None:
    disks = killed_after(3)
    (first,) = (path for path in disks[1].names if path.endswith(f"-future/{0:020}.index"))
    del disks[1].names[first]
    assert go_on(disks)[0] == 2


PAIR = [("t", 0), ("u", 0)]


def moves_two_at_once(story: Story) -> None:
    """Two logs move to the same disk; each step of the one lies within a step of the other."""
    directories = story.directories
    logs = [story.log, directories.create_log("u", 0, bytes(range(1, 17)), CONFIG, 0)]
    story.sync()
    for log in logs:
        for _ in range(25):
            append(log, batch(size=180, producer=(7, 0, log.log_end_offset)))
        flush(log)
    story.checkpoint()
    story.sync()
    story.marked_at = story.shared.operations - story.first_operation + 1
    for key in PAIR:
        directories.moves.ask(key, "/1", failed={})
    carry_out_together(story)


def carry_out_together(story: Story) -> None:
    moves = story.directories.moves
    left = list(moves)
    while left:
        begun = []
        for move in list(left):
            step = move.next_step()
            if step is Step.END:
                move.abandon()
                moves.note_over(move)
                left.remove(move)
                continue
            begun.append((move, step, move.begin(step)))
        for _, _, job in begun:
            if job is not None:
                job.run()
        for move, step, job in reversed(begun):
            if job is not None:
                move.complete(step, job, 0)


def ends_of(story: Story) -> list[int]:
    logs = [story.directories.log(*key) for key in PAIR]
    for log in logs:
        assert log is not None
        assert [each.base_offset for each in all_headers(log)] == list(range(log.log_end_offset))
    return [log.log_end_offset for log in logs if log is not None]


def test_two_logs_move_at_once_and_the_process_dies_at_any_operation() -> None:
    """After a power cut, too, each is in one place, with all that was flushed."""
    whole = run_until_cut(moves_two_at_once)
    assert ends_of(whole) == [25, 25]
    for number in range(whole.marked_at, whole.shared.operations + 1):
        story = run_until_cut(moves_two_at_once, number)
        random = Random(f"two {number}")
        cut = [disk.after_power_cut(random, 512) for disk in story.shared.disks]
        for disks in ([disk.after_kill() for disk in story.shared.disks], cut):
            again = Story(disks)
            assert ends_of(again) == [25, 25], number
            carry_out_together(again)
            assert ends_of(again) == [25, 25], number
            assert {log.path for log in again.directories.logs} <= {
                f"/{place}/{name}" for place in (0, 1) for name in ("t-0", "u-0")
            }
