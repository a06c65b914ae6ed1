"""Where reigns ended, in writes of all tables: what a broker can have seen of each."""

from __future__ import annotations

import pytest

from fairlead_controller.decisions.tables.history import (
    REIGNS_KEPT,
    MetadataHistory,
    ReignEnd,
    first_history,
    load_history,
)
from fairlead_controller.decisions.tables.stored_table import StoreCorruptError, StoredTable
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_model.metadata_seen import MetadataSeen

TAKEOVER = 6
"""Writes of a takeover of two tables."""


def tables(epoch: int, writes: int, line: str | None = None) -> dict[str, StoredTable]:
    """Return two tables that have had so many writes together."""
    kept = {} if line is None else {"history": line}
    return {
        CLUSTER_TABLE: StoredTable("1", epoch, 0, kept, writes - 10),
        "partitions-00000": StoredTable("1", epoch, 0, {}, 10),
    }


def reigns(*ends: tuple[int, int], line: str | None = None) -> MetadataHistory:
    """Return the history of the reign after some that ended like this, as the tables keep it."""
    history = first_history(0)
    for epoch, writes in ends:
        history = load_history(tables(epoch, writes, line), epoch + 1)
        line = history.line()
    return history


def test_each_reign_can_have_told_what_there_was_at_its_end() -> None:
    history = reigns((1, 50), (2, 100), (3, 180))
    assert [history.writes_at_most(epoch) for epoch in (2, 3)] == [100, 180]
    assert history.problem(MetadataSeen(3, 180)) == ""
    assert history.problem(MetadataSeen(2, 101)) == (
        "has seen 101 writes of the tables under controller epoch 2, the tables know of 100"
    )


def test_what_was_seen_before_writes_counted_says_nothing() -> None:
    """The first reign of a release that counts, or of tables that were restored, has no end yet."""
    history = reigns((7, 50))
    assert history.since == 8
    assert history.problem(MetadataSeen(7, 1000)) == ""
    assert history.problem(MetadataSeen()) == ""
    assert history.problem(MetadataSeen(8, 1000)) == "", "its own reign is judged by its epoch"


def test_a_reign_that_lost_its_last_write_is_told_from_one_that_did_not() -> None:
    assert reigns((1, 50), (2, 51)).problem(MetadataSeen(2, 52)) != ""


def test_reigns_that_nobody_saw_do_not_climb_past_what_was_lost() -> None:
    """I12: epoch 2 had come to 200 writes; put back at 100, and taken over again and again."""
    idle = [(epoch, 100 + (epoch - 2) * 2) for epoch in range(3, 90)]
    history = reigns((1, 50), (2, 100), *idle)
    assert history.writes_at_most(89) == 274
    assert history.problem(MetadataSeen(2, 200)) != ""
    for epoch in (3, 10):
        assert history.problem(MetadataSeen(epoch, 200)) != ""
    assert history.problem(MetadataSeen(10, 100 + 8 * TAKEOVER)) == ""
    assert len(history.ends) == 3


def test_as_many_reigns_are_kept_as_a_line_has_room_for() -> None:
    busy = [(epoch, 100 * epoch) for epoch in range(1, 100)]
    history = reigns(*busy)
    assert len(history.ends) == REIGNS_KEPT
    assert history.ends[-1] == ReignEnd(99, 9900)
    # An earlier one is known to have ended before the first that is kept.
    assert history.writes_at_most(5) == 100 * (100 - REIGNS_KEPT)
    assert len(history.line()) < 1000


def test_reigns_of_a_release_that_does_not_count_are_judged_by_the_next_end() -> None:
    """It leaves the line as it was; its epochs are missing from it."""
    history = reigns((1, 50), (2, 100))
    later = load_history(tables(5, 300, history.line()), 6)
    assert later.problem(MetadataSeen(2, 100)) == ""
    assert later.problem(MetadataSeen(2, 101)) != ""
    assert later.problem(MetadataSeen(3, 300)) == ""


def test_a_takeover_that_was_interrupted_hides_no_reign_before_it() -> None:
    """It raises the epoch of the table of the cluster, and dies before it writes the line."""
    history = reigns((1, 50), (2, 100))
    assert history.controller_epoch == 3
    # Reign 3 came to 190 writes; epochs 4 and 5 were only attempts.
    later = load_history(tables(5, 193, history.line()), 6)
    assert later.writes_at_most(3) == 193
    assert later.problem(MetadataSeen(3, 190)) == ""
    assert later.problem(MetadataSeen(3, 194)) != ""
    # Nobody can have heard of more from an attempt than of what was there.
    assert later.problem(MetadataSeen(5, 300)) != ""


@pytest.mark.parametrize(
    "line", ["{}", "7", '{"epoch":2,"since":1,"ends":[[1]]}', '{"epoch":2,"since":1,"ends":7}']
)
def test_a_damaged_line_is_not_believed(line: str) -> None:
    with pytest.raises(StoreCorruptError, match="history"):
        load_history(tables(3, 50, line), 4)
