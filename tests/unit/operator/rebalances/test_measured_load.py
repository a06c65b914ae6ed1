"""What brokers say of their replicas, put together: whose word goes, and what is left unknown."""

import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from measured_clusters import GB, MB, answer, state_of

from fairlead_controller.decisions.balance.cluster_facts import DiskUse, PartitionLoad
from fairlead_controller.decisions.balance.facts import Goal
from fairlead_controller.decisions.state import ControllerState
from fairlead_operator.rebalances.measured_load import (
    LoadAnswerError,
    LoadReading,
    MeasuredLoad,
)
from fairlead_operator.rebalances.plan_status import AGE_MAX, find_changes, make_plan
from fairlead_operator.rebalances.status import describe_plan

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measured(state: ControllerState, *answers: dict[str, Any]) -> MeasuredLoad:
    reading = LoadReading(state)
    for each in answers:
        reading.add(json.loads(json.dumps(each)))
    return reading.finish(NOW)


@pytest.mark.parametrize("order", [1, -1])
def test_the_word_of_the_leader_goes_whoever_answers_first(order: int) -> None:
    state = state_of(2, {"t": [(0, 1), (1, 0)]})
    answers = [
        answer(0, {"t": [[0, 500, 7, 8], [1, 900]]}),
        answer(1, {"t": [[0, 700], [1, 300, 5, 6]]}, copyBytesPerSecond=MB),
    ]
    load = measured(state, *answers[::order])
    assert load.loads == {
        ("t", 0): PartitionLoad(500, 7.0, 8.0),
        ("t", 1): PartitionLoad(300, 5.0, 6.0),
    }
    assert load.disks == {each: DiskUse(100 * GB, 90 * GB) for each in (0, 1)}
    assert load.copy_bytes_per_s == MB, "that of the slowest"
    assert (load.is_whole, load.knows_rates, load.rates_known, load.partitions) == (
        True,
        True,
        2,
        2,
    )


def test_what_is_not_known_of_a_leader_is_the_mean_of_its_topic() -> None:
    state = state_of(1, {"a": [(0,)] * 3, "b": [(0,)]})
    told: dict[str, list[list[Any]]] = {
        "a": [[0, 1, 10, 0], [1, 1, 30, 4], [2, 1, None, None]],
        "b": [[0, 1, None, None]],
    }
    load = measured(state, answer(0, told))
    assert load.loads["a", 2] == PartitionLoad(1, 20.0, 2.0)
    assert load.loads["b", 0] == PartitionLoad(1, 0.0, 0.0)
    assert (load.rates_known, load.knows_rates) == (2, True)
    plan = make_plan(state, load, NOW)
    assert plan["notes"] == [
        "Bytes in and out are known of 2 of 4 partitions, whose leaders have led for half a minute;"
        " the others count as the mean of their topics."
    ]


def test_a_silent_broker_is_named_and_then_no_size_is_judged() -> None:
    state = state_of(3, {"t": [(0, 1)] * 9})
    reading = LoadReading(state)
    reading.add(answer(0, {"t": [[index, GB, 1, 1] for index in range(9)]}))
    reading.miss("demo-brokers-1", "no answer within 5 s")
    load = reading.finish(NOW)
    assert not load.is_whole
    plan = make_plan(state, load, NOW)
    assert plan["moves"]
    assert [each["goal"] for each in plan["goals"]] == ["racks", "replicas", "leaders"]
    assert not plan["isMeasured"]
    assert plan.keys().isdisjoint({"bytes", "bytesNeeded", "durationSeconds"})
    (note,) = plan["notes"]
    assert "Broker 1 does not report what it holds (pod demo-brokers-1: no answer" in note
    assert "Broker 2" in note
    assert "to copy" not in describe_plan(plan)


def test_a_plan_says_what_is_copied_how_long_that_takes_and_what_it_is_good_for() -> None:
    state = state_of(3, {"t": [(0, 1)] * 12})
    rows = [[index, GB, 1000, 2000] for index in range(12)]
    followed = [[index, GB] for index in range(12)]
    told = (answer(0, {"t": rows}), answer(1, {"t": followed}), answer(2, {}))
    plan = make_plan(state, measured(state, *told), NOW)
    assert [each["goal"] for each in plan["goals"]] == [str(goal) for goal in Goal]
    disks = plan["goals"][1]
    assert disks["after"] < disks["before"]
    assert plan["bytes"] == sum(move["bytes"] for move in plan["moves"]) >= 7 * GB
    assert plan["bytesNeeded"] <= plan["bytes"] <= 1.3 * plan["bytesNeeded"]
    assert plan["bytesPerSecond"] == 32 * MB
    # Broker 0 leads everything, so it sends everything.
    assert plan["durationSeconds"] == -(-plan["bytes"] // (32 * MB))
    shares = {share["broker"]: share for share in plan["shares"]}
    assert (shares[2]["bytesBefore"], shares[2]["bytesInBefore"]) == (0, 0)
    assert shares[2]["bytesAfter"] == plan["bytes"]
    assert sum(share["bytesInAfter"] for share in shares.values()) == 12_000
    assert "GiB to copy, which takes at least 0:0" in describe_plan(plan)


def test_large_partitions_weigh_more_than_many_small_ones() -> None:
    state = state_of(2, {"big": [(0,)] * 2, "small": [(1,)] * 2})
    counts = make_plan(state, measured(state), NOW)
    assert counts["moves"] == [], "by numbers they are even"
    told = (
        answer(0, {"big": [[index, 50 * GB, 0, 0] for index in range(2)]}),
        answer(1, {"small": [[index, MB, 0, 0] for index in range(2)]}),
    )
    plan = make_plan(state, measured(state, *told), NOW)
    assert {(move["topic"], move["goal"]) for move in plan["moves"]} >= {("big", "disks")}


def test_a_measurement_of_yesterday_is_not_carried_out() -> None:
    state = state_of(3, {"t": [(0, 1)] * 6})
    told = [answer(each, {}) for each in range(3)]
    plan = make_plan(state, measured(state, *told), NOW)
    assert find_changes(plan, state, NOW + AGE_MAX) == []
    late = NOW + AGE_MAX + timedelta(hours=2)
    assert find_changes(plan, state, late) == ["it was measured 26 hours ago"]
    counted = make_plan(state, measured(state), NOW)
    assert find_changes(counted, state, late) == [], "numbers of replicas do not age"


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"version": 2},
        answer(7, {}),
        answer(0, {}, brokerId=True),
        answer(0, {}, totalBytes=-1),
        answer(0, {}, freeBytes="all"),
        answer(0, {}, copyBytesPerSecond=None),
        answer(0, {}) | {"topics": []},
        answer(0, {"t": {}}),  # type: ignore[dict-item]
        answer(0, {"t": [7]}),  # type: ignore[list-item]
        answer(0, {"t": [[0]]}),
        answer(0, {"t": [[0, 1, 2]]}),
        answer(0, {"t": [[0, 1.5]]}),
        answer(0, {"t": [[0, 5, 1, 1], [1, 1 << 61]]}),
    ],
)
def test_a_malformed_answer_is_none_at_all(wrong: Any) -> None:
    state = state_of(1, {"t": [(0,), (0,)]})
    reading = LoadReading(state)
    with pytest.raises(LoadAnswerError):
        reading.add(wrong)
    load = reading.finish(NOW)
    assert not load.is_whole
    assert set(load.loads.values()) == {PartitionLoad()}
    assert load.disks == {}


def test_what_a_broker_tells_of_replicas_that_it_does_not_have_is_left_out() -> None:
    state = state_of(2, {"t": [(0,)]})
    lies = {"t": [[0, GB, 9, 9], [5, GB]], "nobody's": [[0, GB]]}
    load = measured(state, answer(0, {"t": [[0, 1, 1, 1]]}), answer(1, lies))
    assert load.loads == {("t", 0): PartitionLoad(1, 1.0, 1.0)}
    with pytest.raises(LoadAnswerError, match="a second broker"):
        reading = LoadReading(state)
        reading.add(answer(0, {}))
        reading.add(answer(0, {}))


def test_twenty_thousand_partitions_take_little_memory() -> None:
    count = 20_000
    state = state_of(3, {f"t{each}": [(0, 1, 2)] * 100 for each in range(count // 100)})
    pages = [
        json.dumps(
            answer(
                broker,
                {
                    f"t{each}": [
                        [index, GB, 1, 1] if broker == 0 else [index, GB] for index in range(100)
                    ]
                    for each in range(count // 100)
                },
            )
        )
        for broker in range(3)
    ]
    assert max(map(len, pages)) < 1 << 20
    reading = LoadReading(state)
    tracemalloc.start()
    try:
        for page in pages:
            reading.add(json.loads(page))
        load = reading.finish(NOW)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(load.loads) == load.rates_known == count
    assert kept < 16 << 20
    assert peak < 48 << 20
