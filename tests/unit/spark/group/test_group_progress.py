"""What a run commits, given what the group holds."""

from fairlead_spark.group.group_member import Committed, choose_offsets
from fairlead_spark.offsets import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def test_a_run_only_moves_its_own_offsets_forward() -> None:
    stored = {A: Committed(10), B: Committed(10)}
    assert choose_offsets({A: 9, B: 11}, stored, {A, B}) == {B: 11}


def test_a_new_run_may_set_an_older_one_back() -> None:
    assert choose_offsets({A: 3}, {A: Committed(10)}, set()) == {A: 3}


def test_a_group_that_holds_nothing_gets_everything() -> None:
    assert choose_offsets({A: 0, B: 7}, {A: Committed(-1)}, set()) == {A: 0, B: 7}


def test_what_is_there_already_is_not_committed_again() -> None:
    assert choose_offsets({A: 3, B: 4}, {A: Committed(3), B: Committed(4)}, {B}) == {}


def test_a_text_of_an_earlier_version_is_written_over() -> None:
    stored = {A: Committed(3, has_text=True), B: Committed(4)}
    assert choose_offsets({A: 3, B: 4}, stored, set()) == {A: 3}


def test_offsets_of_a_topic_that_was_made_again_begin_anew() -> None:
    assert choose_offsets({A: 3}, {A: Committed(-1)}, {A}) == {A: 3}
