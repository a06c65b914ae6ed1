"""What a run commits, given what the group holds."""

import json

import pytest

from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.errors import SourceError
from fairlead_spark.group_progress import Committed, GroupProgress, choose_offsets, read_run
from fairlead_spark.offsets import PartitionValues, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("a", 1)


def test_a_run_only_moves_its_own_offsets_forward() -> None:
    stored = {A: Committed(10, 5), B: Committed(10, 5)}
    assert choose_offsets({A: 9, B: 11}, stored, run=5) == {B: 11}


def test_a_new_run_may_set_an_older_one_back() -> None:
    assert choose_offsets({A: 3}, {A: Committed(10, 4)}, run=5) == {A: 3}


def test_a_group_that_holds_nothing_gets_everything() -> None:
    assert choose_offsets({A: 0, B: 7}, {A: Committed(-1, 0)}, run=5) == {A: 0, B: 7}


@pytest.mark.parametrize(
    ("metadata", "run"),
    [
        (json.dumps({"source": "fairlead", "run": 42, "commit": 3}), 42),
        (json.dumps({"source": "another", "run": 42}), 0),
        (json.dumps({"source": "fairlead", "run": "x"}), 0),
        ("[]", 0),
        ("free text", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_who_wrote_an_offset(metadata: str | None, run: int) -> None:
    assert read_run(metadata) == run


class ScriptedProgress(GroupProgress):
    """Answers from a table in place of a coordinator."""

    def __init__(self, stored: dict[TopicPartition, Committed]) -> None:
        super().__init__(ClientSettings("nowhere:1", group_id="g"))
        self.stored = stored
        self.is_down = False
        self.asked = 0

    def _commit(self, positions: PartitionValues) -> None:
        self.asked += 1
        super()._commit(positions)

    def _read(self, positions: object) -> dict[TopicPartition, Committed]:
        if self.is_down:
            raise SourceError("down")
        return dict(self.stored)

    def _write(self, positions: object) -> None:
        assert isinstance(positions, dict)
        self.stored |= {each: Committed(at, self._run) for each, at in positions.items()}


def test_two_runs_share_a_group_and_the_older_one_stops() -> None:
    older = ScriptedProgress({})
    assert older.maybe_commit({A: 5})
    newer = ScriptedProgress(older.stored)
    assert newer.maybe_commit({A: 4})
    older.stored = newer.stored
    assert not older.maybe_commit({A: 9})
    assert newer.stored[A].offset == 4
    assert not older.maybe_commit({A: 10})
    assert older.asked == 2


def test_the_same_offsets_are_not_committed_again() -> None:
    progress = ScriptedProgress({})
    assert progress.maybe_commit({A: 5})
    assert not progress.maybe_commit({A: 5})
    assert progress.asked == 1


def test_a_failed_commit_is_logged_and_waits() -> None:
    progress = ScriptedProgress({})
    progress.is_down = True
    assert not progress.maybe_commit({A: 5})
    assert not progress.maybe_commit({A: 5})
    assert progress.asked == 1
    progress.is_down, progress._silent_until = False, 0.0
    assert progress.maybe_commit({A: 5})
