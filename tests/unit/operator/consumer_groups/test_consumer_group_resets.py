"""What is to be done about a reset of offsets, by what is known."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from fake_groups import sight

from fairlead_operator.consumer_groups.group_sight import GroupSight, Place
from fairlead_operator.consumer_groups.reset_plan import (
    CommitAgain,
    Confirm,
    GiveUp,
    Keep,
    Refusal,
    ResetStep,
    Settle,
    Wait,
    choose_places,
    decide_reset,
    settle_targets,
)
from fairlead_operator.consumer_groups.reset_record import (
    ResetRecord,
    build_reset_status,
    past_resets,
    read_reset_record,
)
from fairlead_operator.resources.consumer_group import (
    PAST_RESETS_MAX,
    RESET_PARTITIONS_MAX,
    OffsetReset,
    ResetTopic,
)

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
AT = "2026-11-21T08:00:00Z"
A, B = ("a", 0), ("b", 0)


def wish(to: Any = "Earliest", id: str = "one", **fields: Any) -> OffsetReset:
    return OffsetReset(id=id, to=to, **fields)


def record(phase: Any, id: str = "one", **fields: Any) -> ResetRecord:
    return ResetRecord(id, phase, AT, **fields)


COMMITTING = record("Committing", targets={A: 0, B: 0}, before={A: 5, B: 6})
DONE, FAILED, WAITING = record("Done"), record("Failed"), record("Waiting")


@pytest.mark.parametrize(
    ("asked", "last", "past", "seen", "step"),
    [
        (None, None, [], sight(a=1), Keep(None)),
        (None, DONE, ["one"], sight(a=1), Keep(DONE)),
        (None, WAITING, [], sight(a=1), Keep(None)),
        (wish(), None, [], sight(a=1), Settle()),
        (wish(), None, [], sight(), Settle()),
        (wish(), WAITING, [], sight(a=1), Settle()),
        (wish(), DONE, ["one"], sight(a=1), Keep(DONE)),
        (wish(), FAILED, ["one"], sight(a=1), Keep(FAILED)),
        (wish(), DONE, ["one"], sight("c", a=1), Keep(DONE)),
        (wish(id="two"), DONE, ["one"], sight(a=1), Settle()),
        (
            wish(),
            record("Done", "two"),
            ["one", "two"],
            sight(a=1),
            Keep(record("Done", "two"), "one"),
        ),
        (wish(), record("Waiting", "two"), ["one"], sight(a=1), Keep(None, "one")),
        (wish(), None, [], GroupSight("CompletingRebalance"), "state CompletingRebalance"),
        (wish(), None, [], sight("c", a=1), "stop the group's 1 members"),
        (wish(), None, [], sight(*"gfedcba", a=1), "e (10.0.0.1) and 2 more"),
    ],
)
def test_a_reset_is_begun_once_and_only_where_nobody_reads(
    asked: OffsetReset | None,
    last: ResetRecord | None,
    past: list[str],
    seen: GroupSight,
    step: ResetStep | str,
) -> None:
    decided = decide_reset(asked, last, past, seen)
    if isinstance(step, str):
        assert isinstance(decided, Wait)
        assert step in decided.message
    else:
        assert decided == step


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (sight(a=0, b=0), Confirm),
        (sight("c", a=0, b=0), Confirm),
        (sight(a=5, b=6), CommitAgain),
        (sight(a=0, b=6), CommitAgain),
        (sight("c", a=5, b=6), GiveUp),
        (sight("c", a=3, b=0), GiveUp),
        (sight(a=3, b=0), GiveUp),
        (sight(a=0), GiveUp),
    ],
)
@pytest.mark.parametrize("asked", [None, wish(), wish(id="two")], ids=str)
def test_an_interrupted_reset_is_ended_before_anything_else(
    asked: OffsetReset | None, seen: GroupSight, step: type
) -> None:
    decided = decide_reset(asked, COMMITTING, [], seen)
    assert isinstance(decided, step)
    assert getattr(decided, "record", None) == COMMITTING


def test_a_partition_without_an_offset_before_may_still_have_none() -> None:
    interrupted = replace(COMMITTING, before={A: 5})
    assert decide_reset(wish(), interrupted, [], sight(a=5)) == CommitAgain(interrupted)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (wish(), [A, B]),
        (wish(topics=(ResetTopic(name="c"),)), [("c", 0), ("c", 1)]),
        (wish(topics=(ResetTopic(name="c", partitions=(1, 1)),)), [("c", 1)]),
        (wish(topics=(ResetTopic(name="d"),)), "there is no topic d"),
        (wish(topics=(ResetTopic(name="c", partitions=(2,)),)), "no partition 2"),
        (wish("ShiftBy", shift_by=1), [A, B]),
        (
            wish("ShiftBy", shift_by=1, topics=(ResetTopic(name="c"),)),
            "nothing to shift from in c-0, c-1",
        ),
        (wish(topics=(ResetTopic(name="huge"),)), f"one reset takes {RESET_PARTITIONS_MAX}"),
    ],
)
def test_partitions_are_those_named_or_else_those_committed(
    asked: OffsetReset, found: list[Place] | str
) -> None:
    counts = {"c": 2, "huge": RESET_PARTITIONS_MAX + 1}
    chosen = choose_places(asked, {A: 5, B: 6}, counts)
    if isinstance(found, str):
        assert isinstance(chosen, Refusal)
        assert found in chosen.message
    else:
        assert chosen == found


def test_nothing_is_to_be_reset_without_offsets_and_topics() -> None:
    refusal = choose_places(wish(), {}, {})
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "NothingToReset"


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        (wish("Earliest"), 10),
        (wish("Latest"), 20),
        (wish("Offset", offset=15), 15),
        (wish("Offset", offset=3), 10),
        (wish("Offset", offset=99), 20),
        (wish("ShiftBy", shift_by=-2), 14),
        (wish("ShiftBy", shift_by=-100), 10),
        (wish("ShiftBy", shift_by=100), 20),
        (wish("Timestamp", timestamp="2026-11-20T06:00:00Z"), 13),
    ],
)
def test_targets_stay_within_the_log(asked: OffsetReset, target: int) -> None:
    log = {"committed": {A: 16}, "starts": {A: 10}, "ends": {A: 20}}
    assert settle_targets(asked, [A], **log, at_time={A: 13}) == {A: target}


@pytest.mark.parametrize("at_time", [{}, {A: -1}])
def test_a_time_after_the_last_record_is_the_end(at_time: dict[Place, int]) -> None:
    asked = wish("Timestamp", timestamp="2026-11-20T06:00:00Z")
    targets = settle_targets(
        asked, [A], committed={}, starts={A: 10}, ends={A: 20}, at_time=at_time
    )
    assert targets == {A: 20}


def test_a_record_is_read_back_as_it_was_written() -> None:
    full = replace(COMMITTING, before={A: 5}, reason="Because", message="so")
    status = build_reset_status(full)
    assert status["topics"] == [
        {"name": "a", "offsets": "0:0", "before": "0:5"},
        {"name": "b", "offsets": "0:0", "before": ""},
    ]
    for each in (full, WAITING, DONE.turned("Failed", NOW, "no", "Never")):
        assert read_reset_record({"lastReset": build_reset_status(each)}) == each
    assert read_reset_record({}) is None


def test_the_largest_record_fits_the_store() -> None:
    targets = {("t" * 249, number): 2**53 for number in range(RESET_PARTITIONS_MAX)}
    (topic,) = build_reset_status(record("Committing", targets=targets, before=targets))["topics"]
    assert len(topic["offsets"]) < 262_144
    assert len(topic["offsets"]) + len(topic["before"]) < 700_000


def test_a_record_of_many_topics_that_does_not_fit_the_store_is_refused() -> None:
    """The API server keeps 1.5 MiB, in which are also the names of all fields of the record."""

    def topics(count: int) -> dict[Place, int]:
        return {(f"{number:05d}" + "t" * 60, 0): 2**53 for number in range(count)}

    many = topics(RESET_PARTITIONS_MAX)
    status = build_reset_status(record("Committing", targets=many, before=many))
    assert len(json.dumps(status)) > 1_000_000
    refused = choose_places(wish(), many, {})
    assert isinstance(refused, Refusal)
    assert (refused.reason, "10000 topics" in refused.message) == ("TooManyPartitions", True)
    assert choose_places(wish(), topics(3_000), {}) == sorted(topics(3_000))


def test_ids_that_are_over_are_remembered_the_oldest_not_for_ever() -> None:
    assert past_resets({}, None) == []
    assert past_resets({}, WAITING) == []
    assert past_resets({"pastResets": ["one"]}, DONE) == ["one"]
    known = [str(number) for number in range(PAST_RESETS_MAX)]
    assert past_resets({"pastResets": known}, FAILED) == [*known[1:], "one"]
