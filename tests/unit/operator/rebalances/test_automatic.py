"""When the mode Auto begins a round: thresholds, limits, cool-down, quiet, rest."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_resource_server import merged
from measured_clusters import GB, MB, answer, state_of

from fairlead_controller.decisions.state import ControllerState
from fairlead_operator.rebalances.automatic import (
    URGENT_QUIET_S,
    Begin,
    Memory,
    Moved,
    Wait,
    decide_round,
    read_memory,
    remember_moves,
)
from fairlead_operator.rebalances.measured_load import LoadReading, MeasuredLoad
from fairlead_operator.rebalances.status import RebalanceStatusDraft
from fairlead_operator.resources.rebalance import RESTING_MAX, AutomaticLimits

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LIMITS = AutomaticLimits()
FRESH = Memory()
SECOND = timedelta(seconds=1)


def measured(state: ControllerState, size: int = GB, rate: int = MB) -> MeasuredLoad:
    """All partitions weigh the same."""
    reading = LoadReading(state)
    for broker_id in state.image.brokers:
        topics: dict[str, list[list[Any]]] = {}
        for topic in state.image.topics():
            for index, partition in enumerate(topic.partitions):
                if broker_id in partition.replicas:
                    row = [index, size]
                    row += [rate, rate] if partition.leader == broker_id else []
                    topics.setdefault(topic.name, []).append(row)
        reading.add(answer(broker_id, topics))
    return reading.finish(NOW)


def ring(count: int, on: int) -> list[tuple[int, ...]]:
    return [(index % on, (index + 1) % on) for index in range(count)]


EVEN = state_of(3, {"t": ring(30, 3)})
NEW_BROKER = state_of(4, {"t": ring(30, 3)})
UNEVEN = state_of(3, {"t": [*ring(20, 3), *[(0, 1)] * 20]})


def decide(
    state: ControllerState, memory: Memory = FRESH, limits: AutomaticLimits = LIMITS
) -> Begin | Wait:
    return decide_round(state, measured(state), limits, memory, NOW)


def waits(outcome: Begin | Wait, reason: str) -> Wait:
    assert isinstance(outcome, Wait), outcome
    assert outcome.reason == reason
    return outcome


def begins(outcome: Begin | Wait) -> Begin:
    assert isinstance(outcome, Begin), outcome
    return outcome


def test_an_even_cluster_is_left_alone() -> None:
    assert waits(decide(EVEN), "Even").is_even is True


def test_an_uneven_one_gets_a_round_that_says_why() -> None:
    round_ = begins(decide(UNEVEN))
    assert round_.why == "disks: broker 2 is 51 % below its share"
    assert 0 < len(round_.plan["moves"]) <= LIMITS.max_moves
    assert round_.plan["bytes"] > 0
    calm = replace(LIMITS, start_above_percent=103)
    waits(decide(UNEVEN, limits=calm), "Even")


def test_a_new_broker_does_not_stay_empty_whatever_was_before() -> None:
    just_now = Memory(ended_at=NOW)
    round_ = begins(decide(NEW_BROKER, just_now))
    assert round_.why == "broker 3 holds nothing"
    assert {each for move in round_.plan["moves"] for each in move["after"]} >= {3}
    waits(decide(UNEVEN, just_now), "CoolingDown")
    # It waits a minute after a disturbance such as its own start; the others wait longer.
    disturbed = Memory(disturbed_at=NOW - URGENT_QUIET_S * SECOND)
    begins(decide(NEW_BROKER, disturbed))
    waits(decide(NEW_BROKER, Memory(disturbed_at=NOW - (URGENT_QUIET_S - 1) * SECOND)), "Quiet")
    waits(decide(UNEVEN, disturbed), "Quiet")


def test_with_more_brokers_than_replicas_one_stays_empty_and_all_is_quiet() -> None:
    state = state_of(3, {"t": [(0,), (1,)]})
    waits(decide(state), "Even")


@pytest.mark.parametrize(
    ("memory", "reason", "seconds"),
    [
        (Memory(ended_at=NOW), "CoolingDown", LIMITS.cool_down_seconds),
        (Memory(disturbed_at=NOW), "Quiet", LIMITS.quiet_seconds),
        (Memory(ended_at=NOW, disturbed_at=NOW), "CoolingDown", LIMITS.cool_down_seconds),
    ],
)
def test_it_says_until_when_it_waits_and_begins_then(
    memory: Memory, reason: str, seconds: int
) -> None:
    told = waits(decide(UNEVEN, memory), reason)
    assert told.until == NOW + seconds * SECOND
    then = told.until
    assert isinstance(decide_round(UNEVEN, measured(UNEVEN), LIMITS, memory, then - SECOND), Wait)
    begins(decide_round(UNEVEN, measured(UNEVEN), LIMITS, memory, then))


def test_without_measurement_nothing_moves_by_itself() -> None:
    unknown = LoadReading(NEW_BROKER).finish(NOW)
    told = waits(decide_round(NEW_BROKER, unknown, LIMITS, FRESH, NOW), "NotMeasured")
    assert "Broker 0 does not report" in told.message


def test_a_round_keeps_its_limits_and_the_next_one_goes_on() -> None:
    few = replace(LIMITS, max_moves=3)
    plan = begins(decide(UNEVEN, limits=few)).plan
    assert len(plan["moves"]) == 3
    assert plan["leftOut"] > 0
    small = replace(LIMITS, max_gibibytes=2)
    assert begins(decide(UNEVEN, limits=small)).plan["bytes"] <= 2 << 30
    tiny = decide_round(UNEVEN, measured(UNEVEN, size=5 * GB), replace(LIMITS, max_gibibytes=1),
                        FRESH, NOW)  # fmt: skip
    assert isinstance(tiny, Wait) or tiny.plan["bytes"] == 0, "leaders at most"


def test_what_is_not_worth_it_is_not_done() -> None:
    demanding = replace(LIMITS, min_improvement_percent=100, max_moves=1)
    told = waits(decide(UNEVEN, limits=demanding), "NotWorthIt")
    assert "improve that by 100 %" in told.message


def test_what_has_moved_rests_and_a_full_memory_moves_nothing() -> None:
    everything = {("t", index): Moved(NOW - SECOND) for index in range(40)}
    waits(decide(UNEVEN, Memory(moved=everything)), "NotWorthIt")
    rested = dict.fromkeys(everything, Moved(NOW - LIMITS.rest_seconds * SECOND))
    begins(decide(UNEVEN, Memory(moved=rested)))
    again = dict.fromkeys(everything, Moved(NOW - LIMITS.rest_seconds * SECOND, times=2))
    waits(decide(UNEVEN, Memory(moved=again)), "NotWorthIt")
    others = {("others", index): Moved(NOW) for index in range(RESTING_MAX)}
    waits(decide(UNEVEN, Memory(moved=others)), "NotWorthIt")


def test_what_moves_again_soon_rests_for_longer_and_memory_is_bounded() -> None:
    rest, at = LIMITS.rest_seconds * SECOND, ("t", 0)
    moved = remember_moves(FRESH, [at], LIMITS, NOW)
    assert moved == {at: Moved(NOW)}
    soon = remember_moves(Memory(moved=moved), [at], LIMITS, NOW + rest)
    assert soon == {at: Moved(NOW + rest, times=2)}
    late = remember_moves(Memory(moved=moved), [at], LIMITS, NOW + 4 * rest)
    assert late == {at: Moved(NOW + 4 * rest)}
    many = {("many", index): Moved(NOW + index * SECOND) for index in range(RESTING_MAX)}
    kept = remember_moves(Memory(moved=many), [at, ("t", 1)], LIMITS, NOW + rest)
    assert len(kept) == RESTING_MAX
    assert ("many", 0) not in kept
    assert ("many", RESTING_MAX - 1) in kept


def test_small_things_are_no_reason() -> None:
    state = state_of(3, {"t": [(0,), (0,), (1,), (2,)]})
    small = decide_round(state, measured(state, size=1000, rate=10), LIMITS, FRESH, NOW)
    waits(small, "Even")


def test_a_status_remembers_what_the_next_decision_needs() -> None:
    draft = RebalanceStatusDraft({"metadata": {"generation": 1}, "status": {}})
    draft.tell("DrillRunning", "a drill", NOW - 60 * SECOND, is_disturbed=True)
    round_ = begins(decide(UNEVEN))
    draft.begin_round(round_.plan, round_.why, NOW)
    moves = round_.plan["moves"]
    progress = {"done": len(moves), "moving": 0, "notMoved": 0, "changedSince": 0}
    draft.end_round("Complete", "all done", progress, LIMITS, NOW)
    written = json.loads(json.dumps(draft.as_patch()))
    assert (written["phase"], written["auto"]["rounds"], written["auto"]["failedRounds"]) == (
        "Watching", 1, 0,
    )  # fmt: skip
    assert written["auto"]["lastRound"]["bytes"] == round_.plan["bytes"]
    memory = read_memory(written)
    assert (memory.disturbed_at, memory.ended_at) == (NOW - 60 * SECOND, NOW)
    assert memory.moved == {(move["topic"], move["partition"]): Moved(NOW) for move in moves}
    again = RebalanceStatusDraft({"metadata": {"generation": 1}, "status": written})
    rest = timedelta(seconds=LIMITS.rest_seconds)
    again.begin_round({**round_.plan, "moves": moves[:1]}, round_.why, NOW + rest)
    again.end_round("Failed", "not all", progress, LIMITS, NOW + rest)
    after = read_memory(again.as_patch())
    assert after.moved[moves[0]["topic"], moves[0]["partition"]] == Moved(NOW + rest, times=2)
    assert len(after.moved) == len(moves)
    assert again.as_patch()["auto"]["failedRounds"] == 1


def test_nothing_is_remembered_of_a_new_resource() -> None:
    assert read_memory({}) == Memory()


def test_a_plan_keeps_nothing_of_the_one_before() -> None:
    measured_plan = {"id": "p1", "bytes": 5, "durationSeconds": 512, "isMeasured": True}
    plan = {"id": "p2", "isMeasured": False}
    status = {"phase": "Watching", "plan": measured_plan, "auto": {"rounds": 1}}
    resource = {"metadata": {"name": "auto", "generation": 1}, "status": status}
    draft = RebalanceStatusDraft(resource)
    draft.begin_round({**plan, "partitions": 2, "leaders": 1}, "uneven", NOW)
    written = merged(status, draft.as_patch())["plan"]
    assert written == {"id": "p2", "isMeasured": False, "partitions": 2, "leaders": 1}
