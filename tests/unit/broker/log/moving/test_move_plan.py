"""The order of the steps of a move, whatever happens to the log and to the wish meanwhile."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from fairlead_broker.limits import MOVE_TAIL_BYTES_MAX
from fairlead_broker.log.moving.move_plan import MoveFacts, Step, next_step

READY = MoveFacts(is_synced=True, is_noted=True)
"""All is copied; nothing has been held up for it yet."""
EFFECTS: dict[Step, dict[str, Any]] = {
    Step.KEEP: {"has_kept": True, "has_strange_copies": False, "is_synced": False},
    Step.DISCARD: {"has_strange_copies": False, "is_synced": False, "is_noted": False},
    Step.COPY: {"missing_bytes": 0, "is_synced": False},
    Step.RECORD: {"has_unlisted": False},
    Step.SYNC: {"is_synced": True, "is_sealed_missing": False},
    Step.NOTE: {"is_noted": True},
    Step.HOLD: {"is_held": True},
    Step.ANNOUNCE: {"is_announced": True, "is_marked": True, "is_sealed_missing": False},
    Step.SWITCH: {"is_switched": True},
    Step.NAME: {"is_named": True},
    Step.LEAVE: {"is_left": True},
    Step.WAIT: {"is_in_use": False, "is_flushing": False},
    Step.LET_GO: {"is_held": False, "is_announced": False},
    Step.UNMARK: {"is_marked": False},
    Step.REMOVE: {"is_removed": True},
}


def steps_from(facts: MoveFacts) -> list[Step]:
    steps: list[Step] = []
    while (step := next_step(facts)) is not Step.END:
        steps.append(step)
        assert len(steps) < 20, steps
        facts = replace(facts, **EFFECTS[step])
    return steps


def test_a_move_in_peace() -> None:
    assert steps_from(MoveFacts(has_kept=False, missing_bytes=10**9)) == [
        Step.KEEP,
        Step.COPY,
        Step.SYNC,
        Step.NOTE,
        Step.HOLD,
        Step.ANNOUNCE,
        Step.SWITCH,
        Step.NAME,
        Step.LET_GO,
        Step.LEAVE,
    ]


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"is_in_use": True}, Step.WAIT),
        ({"has_kept": False}, Step.KEEP),
        ({"has_strange_copies": True}, Step.DISCARD),
        ({"missing_bytes": MOVE_TAIL_BYTES_MAX + 1}, Step.COPY),
        ({"is_noted": False}, Step.NOTE),
    ],
)
def test_what_changes_the_log_lets_flushes_go_on_first(change: dict[str, Any], step: Step) -> None:
    held = replace(READY, is_held=True, is_announced=True, is_marked=True)
    assert next_step(replace(READY, **change)) is step
    assert next_step(replace(held, **change)) is Step.LET_GO


def test_a_segment_is_listed_before_more_is_copied_but_holds_up_no_switch() -> None:
    whole = replace(READY, has_unlisted=True)
    assert next_step(replace(whole, missing_bytes=10**9)) is Step.RECORD
    assert next_step(replace(whole, is_synced=False)) is Step.RECORD
    assert next_step(replace(whole, is_held=True, is_announced=True)) is Step.SWITCH


def test_a_little_more_is_copied_with_the_switch() -> None:
    held = replace(READY, is_held=True, is_announced=True, missing_bytes=MOVE_TAIL_BYTES_MAX)
    assert next_step(held) is Step.SWITCH


def test_a_segment_that_was_sealed_meanwhile_is_made_durable_before_the_switch() -> None:
    held = replace(READY, is_held=True, is_announced=True, is_sealed_missing=True)
    assert next_step(held) is Step.ANNOUNCE


def test_a_flush_that_is_under_way_ends_first() -> None:
    assert next_step(replace(READY, is_flushing=True)) is Step.WAIT


def test_from_any_state_a_move_that_is_given_up_leaves_nothing_behind() -> None:
    for held, marked, kept, strange in product((False, True), repeat=4):
        facts = replace(
            READY,
            is_given_up=True,
            is_held=held,
            is_announced=held,
            is_marked=marked,
            has_kept=kept,
            has_strange_copies=strange,
        )
        steps = steps_from(facts)
        assert steps[-1] is Step.REMOVE
        assert (Step.UNMARK in steps) == marked
        assert (Step.LET_GO in steps) == held
        assert Step.SWITCH not in steps


def test_after_the_switch_nothing_calls_it_back() -> None:
    facts = replace(READY, is_switched=True, is_held=True, is_marked=True, is_given_up=True)
    assert steps_from(facts) == [Step.NAME, Step.LET_GO, Step.LEAVE]


def test_the_old_log_stays_if_the_name_of_the_new_one_is_not_durable() -> None:
    facts = replace(READY, is_switched=True, is_held=True, is_name_lost=True)
    assert steps_from(facts) == [Step.LET_GO]
