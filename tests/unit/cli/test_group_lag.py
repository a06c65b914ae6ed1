"""Lag and what is wrong with a committed offset; how groups are shown."""

import pytest

from fairlead_cli.client.groups import (
    Committed,
    GroupDescription,
    Member,
    build_members_error,
)
from fairlead_cli.client.places import Place, format_places
from fairlead_cli.group.describe import build_document, short_name
from fairlead_cli.group.lag import PartitionLag, build_lags, total_lag

PLACE = Place("orders", 0)
ENDS = {PLACE: (10, 100)}
LEADERS = {"orders": {0: 1, 1: -1}}
MEMBER = Member(
    "app-7c398251-5635-4b88-b121-d1d4fbf7c277", None, "app", "10.0.0.7", (PLACE, Place("x", 3))
)


def lag_of(offset: int, place: Place = PLACE) -> PartitionLag:
    (lag,) = build_lags({place: Committed(offset, 0, "")}, (), ENDS, LEADERS)
    return lag


@pytest.mark.parametrize(
    ("offset", "lag", "problem"),
    [
        (100, 0, None),
        (99, 1, None),
        (10, 90, None),
        (9, 91, "below the log start 10: 1 gone"),
        (103, 0, "3 beyond the log end"),
    ],
)
def test_lag_is_the_log_end_less_the_committed_offset(
    offset: int, lag: int, problem: str | None
) -> None:
    found = lag_of(offset)
    assert (found.lag, found.problem) == (lag, problem)


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        (Place("orders", 1), "no leader"),
        (Place("orders", 2), "no such partition"),
        (Place("gone", 0), "no such topic"),
    ],
)
def test_what_nobody_can_look_at_has_no_lag(place: Place, problem: str) -> None:
    found = lag_of(5, place)
    assert (found.lag, found.log_end, found.problem) == (None, None, problem)


def test_assigned_partitions_are_there_without_a_commit() -> None:
    lags = build_lags({PLACE: Committed(40, 2, "m")}, (MEMBER,), ENDS, LEADERS)
    assert [(str(lag.place), lag.lag, lag.member) for lag in lags] == [
        ("orders-0", 60, MEMBER),
        ("x-3", None, MEMBER),
    ]
    assert total_lag(lags) == 60
    assert total_lag(lags[1:]) is None
    assert total_lag([]) is None


def test_json_has_every_field_whatever_is_known() -> None:
    group = GroupDescription("g", "Stable", "classic", False, "range", (1, "h", 9092), (MEMBER,))
    lags = build_lags({PLACE: Committed(40, 2, "m")}, (MEMBER,), ENDS, LEADERS)
    document = build_document(group, lags)
    assert document["coordinator"] == {"id": 1, "host": "h", "port": 9092}
    assert document["offsets"] == [
        {
            "topic": "orders",
            "partition": 0,
            "committed": 40,
            "leaderEpoch": 2,
            "metadata": "m",
            "logStart": 10,
            "logEnd": 100,
            "lag": 60,
            "memberId": MEMBER.member_id,
            "problem": None,
        },
        {
            "topic": "x",
            "partition": 3,
            "committed": None,
            "leaderEpoch": None,
            "metadata": None,
            "logStart": None,
            "logEnd": None,
            "lag": None,
            "memberId": MEMBER.member_id,
            "problem": "no such topic",
        },
    ]
    assert document["members"][0]["partitions"][1] == {"topic": "x", "partition": 3}


@pytest.mark.parametrize(
    ("member_id", "instance_id", "name"),
    [
        (MEMBER.member_id, None, "app-7c398251…"),
        (MEMBER.member_id, "app-1", "app-1"),
        ("ABCDEFGHIJKLMNOPQRSTUV", None, "ABCDEFGHIJKLMNOPQRSTUV"),
    ],
)
def test_members_have_short_names(member_id: str, instance_id: str | None, name: str) -> None:
    assert short_name(Member(member_id, instance_id, "app", "h", ())) == name


def test_partitions_are_shown_as_ranges() -> None:
    places = [Place("b", 1), *(Place("a", number) for number in (0, 1, 2, 5, 7, 8))]
    assert format_places(places) == "a: 0-2, 5, 7-8; b: 1"
    assert format_places([]) == ""


def test_a_refusal_names_members_and_says_how_long_to_wait() -> None:
    static = Member("id", "app-1", "app", "10.0.0.8", ())
    group = GroupDescription("g", "Stable", "classic", False, "range", None, (MEMBER, static))
    error = build_members_error("nothing was changed", group)
    assert error.message == "nothing was changed: group 'g' is Stable and has 2 members"
    assert error.hint is not None
    assert f"member {MEMBER.member_id} (client app, host 10.0.0.7, 2 partitions)" in error.hint
    assert "instance app-1 (client app, host 10.0.0.8, 0 partitions)" in error.hint
    assert "session times out" in error.hint
    many = GroupDescription("g", "Stable", "classic", False, "range", None, (MEMBER,) * 100)
    hint = build_members_error("not deleted", many).hint
    assert hint is not None
    assert "\n  and 90 more\n" in hint
    empty = GroupDescription("g", "Dead", "classic", True, "", None, ())
    assert build_members_error("not deleted", empty).hint == "Try again in a moment."
