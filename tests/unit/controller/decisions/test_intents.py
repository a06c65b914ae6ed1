"""What is about to be done is durable before it is, and forgotten when it was."""

from typing import Any

import pytest

from fairlead_controller.decisions.events import ClearIntent, RecordIntent
from fairlead_controller.decisions.intents import INTENTS_MAX
from fairlead_controller.decisions.state import CountersChanged, Intent
from fairlead_controller.decisions.tables.lines import INTENT_PREFIX
from fairlead_controller.decisions.tables.loading import load_state
from fairlead_controller.decisions.tables.stored_table import StoredTable
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    TableLayout,
    WritePlan,
    first_lines,
)
from fairlead_model.session.refusals import RefusedError


def test_an_intent_is_a_line_that_the_next_controller_reads(world: Any) -> None:
    decision = world.decide(RecordIntent("id-1", "delete-pod", "a-0", 5))
    assert decision.reply == {"id": "id-1"}
    plan = WritePlan(TableLayout())
    plan.add(decision.changes)
    ((name, table),) = plan.stages()[0].items()
    assert name == CLUSTER_TABLE
    assert set(table) == {f"{INTENT_PREFIX}id-1"}
    lines = {**first_lines("c", CountersChanged(1, 0)), **table}
    stored = StoredTable("v", 1, 0, {key: line for key, line in lines.items() if line})
    loaded = load_state({CLUSTER_TABLE: stored}, controller_epoch=2)
    assert loaded.state.intents == {"id-1": Intent("delete-pod", "a-0", 5)}


def test_asked_twice_it_is_the_same_intent(world: Any) -> None:
    assert world.do(RecordIntent("id-1", "delete-pod", "a-0", 5)) == {"id": "id-1"}
    assert world.do(RecordIntent("id-2", "delete-pod", "a-0", 6)) == {"id": "id-1"}
    assert world.do(RecordIntent("id-3", "delete-pod", "a-1", 6)) == {"id": "id-3"}


def test_clearing_removes_the_line_once(world: Any) -> None:
    world.do(RecordIntent("id-1", "delete-pod", "a-0", 5))
    assert world.do(ClearIntent("id-1")) == {"was_known": True}
    assert world.state.intents == {}
    assert world.decide(ClearIntent("id-1")).changes == ()


def test_there_is_a_bound(world: Any) -> None:
    for number in range(INTENTS_MAX):
        world.do(RecordIntent(f"id-{number}", "delete-pod", f"a-{number}", 5))
    with pytest.raises(RefusedError, match="open already"):
        world.do(RecordIntent("more", "delete-pod", "more", 5))
