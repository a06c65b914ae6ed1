"""What several log directories say together of a start."""

from collections.abc import Sequence
from typing import Any

import pytest

from fairlead_broker.log.directory.identity import StartRecord
from fairlead_broker.log.directory.joint_start import DirectoryStart, join_starts, joint_id


def directory(
    name: str,
    *,
    epoch: int = 7,
    marked: int | None = None,
    was_clean: bool = True,
    is_whole: bool = True,
    is_same_boot: bool = True,
    damaged: Sequence[tuple[str, int]] = (),
) -> DirectoryStart:
    """One with a log that is called like it."""
    marked_epoch = epoch if marked is None else marked
    record = StartRecord(
        f"id-{name}",
        f"start-{name}",
        "boot",
        was_clean,
        epoch,
        is_same_boot,
        marked_epoch if was_clean else -1,
    )
    return DirectoryStart(record, is_whole, [(name, 0)], damaged)


def killed(name: str, **fields: Any) -> DirectoryStart:
    return directory(name, was_clean=False, **fields)


def said(*starts: DirectoryStart) -> tuple[bool, int, bool, list[str]]:
    """Marker, epoch, recovered whole, and the topics that are unclean."""
    joint = join_starts(starts)
    record = joint.record
    unclean = [topic for topic, _ in joint.unclean]
    return record.was_clean, record.previous_broker_epoch, joint.is_recovered_whole, unclean


@pytest.mark.parametrize(
    ("start", "is_recovered_whole"),
    [
        (directory("a"), False),
        (killed("a"), True),
        (killed("a", is_whole=False), False),
        (killed("a", is_same_boot=False), True),
    ],
)
def test_one_directory_speaks_for_itself(start: DirectoryStart, is_recovered_whole: bool) -> None:
    joint = join_starts([start])
    assert joint.record is start.record
    assert joint.is_recovered_whole is is_recovered_whole
    assert (joint.unclean, joint.directory_ids) == ([], ())


def test_directories_that_agree() -> None:
    assert said(directory("a"), directory("b")) == (True, 7, False, [])
    assert said(killed("a"), killed("b")) == (False, 7, True, [])


def test_an_older_epoch_makes_its_logs_unclean() -> None:
    assert said(directory("a"), directory("b", epoch=6)) == (True, 7, False, ["b"])
    assert said(killed("a", epoch=6), killed("b")) == (False, 7, True, ["a"])
    assert said(directory("a", epoch=6), killed("b")) == (False, 7, True, ["a"])


def test_a_start_that_not_all_have_noted_has_appended_nothing() -> None:
    noted = directory("a", marked=6)
    assert said(noted, directory("b", epoch=6)) == (True, 7, False, [])
    assert said(noted, killed("b", epoch=6)) == (True, 7, False, [])
    assert said(noted, killed("b", epoch=6, is_same_boot=False)) == (True, 7, False, ["b"])
    assert said(noted, directory("b", epoch=5)) == (True, 7, False, ["b"])
    # The other has lost its marker by then: all had noted it.
    assert said(noted, killed("b")) == (True, 7, False, [])
    assert said(noted, killed("b"), directory("c", epoch=6)) == (True, 7, False, ["c"])


def test_a_new_directory_says_nothing() -> None:
    assert said(directory("a"), killed("new", epoch=-1))[:3] == (True, 7, False)
    assert said(killed("new", epoch=-1), killed("also", epoch=-1)) == (
        *(False, -1, False),
        ["also", "new"],
    )


def test_without_the_marker_beside_it_only_the_same_boot_and_whole_logs_count() -> None:
    assert said(directory("a"), killed("b")) == (True, 7, False, [])
    assert said(directory("a"), killed("b", is_same_boot=False)) == (True, 7, False, ["b"])
    assert said(directory("a"), killed("b", is_whole=False)) == (True, 7, False, ["b"])


def test_a_killed_broker_loses_only_what_is_in_the_directory_that_is_not_whole() -> None:
    assert said(killed("a"), killed("b", is_whole=False)) == (False, 7, True, ["b"])
    assert said(killed("a", is_whole=False), killed("b", is_whole=False)) == (
        *(False, 7, False),
        ["a", "b"],
    )


def test_a_machine_that_has_restarted_is_left_to_the_controller() -> None:
    """It knows which boot was registered."""
    starts = [killed("a", is_same_boot=False), killed("b", is_same_boot=False)]
    assert said(*starts) == (False, 7, True, [])


def test_damaged_logs_are_unclean_wherever_they_are() -> None:
    starts = [directory("a", damaged=[("x", 1)]), directory("b", damaged=[("y", 0)])]
    assert said(*starts) == (True, 7, False, ["x", "y"])


def test_the_joint_ids_are_others_as_soon_as_one_directory_is_another_one() -> None:
    both = join_starts([directory("a"), directory("b")])
    assert join_starts([directory("b"), directory("a")]).record.directory_id == (
        both.record.directory_id
    )
    other = join_starts([directory("a"), directory("c")])
    assert other.record.directory_id != both.record.directory_id
    assert other.record.start_id != both.record.start_id
    assert both.directory_ids == ("id-a", "id-b")
    assert joint_id(["a", "b"]) != joint_id(["ab"])
