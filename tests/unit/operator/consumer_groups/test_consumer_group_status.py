"""The status of a ConsumerGroup, by what was seen."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fake_groups import sight

from fairlead_operator.conditions import find_condition
from fairlead_operator.consumer_groups.group_resource import GroupResource, read_group_resource
from fairlead_operator.consumer_groups.group_sight import GroupSight, Member, lag_by_topic
from fairlead_operator.consumer_groups.group_status import (
    COORDINATOR_MOVES,
    FOLLOWED,
    NOT_FOUND,
    Verdict,
    build_group_status,
    turned_bad,
)
from fairlead_operator.consumer_groups.reset_record import ResetRecord
from fairlead_operator.resources.consumer_group import MEMBERS_SHOWN_MAX, TOPICS_SHOWN_MAX

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def resource(**spec: Any) -> GroupResource:
    metadata = {"namespace": "ns", "name": "billing", "uid": "u", "generation": 3}
    return read_group_resource(
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": metadata,
            "spec": {"clusterName": "demo"} | spec,
        }
    )


def status(
    seen: GroupSight | None,
    before: dict[str, Any] | None = None,
    now: datetime = NOW,
    ready: Verdict = FOLLOWED,
    **fields: Any,
) -> dict[str, Any]:
    given = {"record": None} | fields
    return build_group_status(resource(), before or {}, ready, now, sight=seen, **given)


def test_a_spec_is_read_with_its_defaults_and_its_problems() -> None:
    bare, named = resource(), resource(groupId="shop.Billing", refreshSeconds=5)
    assert (bare.group_id, bare.refresh_s, bare.reset, bare.problem) == ("billing", 30.0, None, "")
    assert (named.group_id, named.refresh_s) == ("shop.Billing", 5.0)
    broken = resource(refreshSeconds=1)
    assert broken.problem.startswith("spec.refreshSeconds: expected a whole number of 5 to 3600")
    assert broken.is_ours


def test_a_group_is_described() -> None:
    seen = GroupSight(
        "Stable",
        protocol="Classic",
        assignor="range",
        coordinator=2,
        members=(Member("app", "app-1", "", "10.0.0.1", (("a", 0), ("a", 1), ("b", 0))),),
        committed={("a", 0): 4, ("a", 1): 12, ("b", 0): 9},
        log_ends={("a", 0): 10, ("a", 1): 10},
    )
    described = status(seen)
    assert described | {"conditions": []} == {
        "conditions": [],
        "observedGeneration": 3,
        "groupId": "billing",
        "state": "Stable",
        "protocol": "Classic",
        "assignor": "range",
        "coordinator": 2,
        "members": 1,
        "memberList": [
            {
                "clientId": "app",
                "memberId": "app-1",
                "instanceId": "",
                "host": "10.0.0.1",
                "partitions": 3,
            }
        ],
        "lag": 6,
        "lagMax": 6,
        "committedPartitions": 3,
        "uncommittedPartitions": 0,
        "topics": [
            {"name": "a", "partitions": 2, "lag": 6, "lagMax": 6},
            {"name": "b", "partitions": 1, "lag": 0, "lagMax": 0},
        ],
    }
    assert find_condition(described["conditions"], "Ready")["status"] == "True"  # type: ignore[index]


def test_what_is_read_without_an_offset_is_counted_apart() -> None:
    seen = GroupSight("Stable", members=(Member("app", partitions=(("a", 0), ("a", 1))),))
    described = status(seen)
    assert (described["uncommittedPartitions"], "lag" in described) == (2, False)


def test_nothing_changes_where_nothing_has_changed() -> None:
    first = status(sight("app", a=1), record=ResetRecord("one", "Done", "t", message="set"))
    again = status(
        sight("app", a=1),
        first,
        LATER,
        record=ResetRecord("one", "Done", "t", message="set"),
    )
    assert again == first
    assert first["pastResets"] == ["one"]


def test_lag_can_wait_while_members_cannot() -> None:
    first = status(sight("app", a=1))
    second = status(sight("app", "other", a=7), first, LATER, are_figures_kept=True)
    assert (second["members"], second["lag"]) == (2, first["lag"]) == (2, 9)
    assert status(sight("app", "other", a=7), first, LATER)["lag"] == 3


def test_what_was_seen_stays_while_brokers_are_silent_and_goes_with_the_cluster() -> None:
    first = status(sight("app", a=1))
    silent = Verdict(None, "BrokersNotReachable", "nobody answers")
    kept = status(None, first, LATER, silent, is_seen_kept=True)
    assert kept | {"conditions": []} == first | {"conditions": []}
    assert find_condition(kept["conditions"], "Ready")["status"] == "Unknown"  # type: ignore[index]
    gone = status(None, first, LATER, Verdict(False, "ClusterNotFound", "gone"))
    assert gone.keys() == {"conditions", "observedGeneration", "groupId"}


def test_a_group_to_come_is_absent() -> None:
    described = status(sight(), ready=NOT_FOUND)
    assert (described["state"], described["members"], described.get("lag")) == ("Absent", 0, None)
    assert not turned_bad({}, NOT_FOUND)
    assert not turned_bad({}, FOLLOWED)
    assert not turned_bad({}, Verdict(None, COORDINATOR_MOVES, "it loads"))
    silent = Verdict(None, "BrokersNotReachable", "nobody answers")
    assert turned_bad(described, silent)
    assert not turned_bad(status(None, ready=silent), silent)


def test_lists_are_bounded_and_keep_what_matters() -> None:
    members = tuple(Member(f"m-{number:03}") for number in range(MEMBERS_SHOWN_MAX + 5))
    places = {(f"t-{number:03}", 0): 0 for number in range(TOPICS_SHOWN_MAX + 5)}
    ends = {place: int(place[0][2:]) for place in places}
    described = status(GroupSight("Stable", members=members, committed=places, log_ends=ends))
    assert described["members"] == MEMBERS_SHOWN_MAX + 5
    assert [each["clientId"] for each in described["memberList"]][-1] == "m-019"
    names = [topic["name"] for topic in described["topics"]]
    assert names == [f"t-{number:03}" for number in range(5, TOPICS_SHOWN_MAX + 5)]
    assert described["lag"] == sum(ends.values())


def test_an_offset_beyond_the_end_is_no_lag() -> None:
    seen = GroupSight("Empty", committed={("a", 0): 12}, log_ends={("a", 0): 10})
    assert [(topic.name, topic.total) for topic in lag_by_topic(seen)] == [("a", 0)]


def test_a_reset_shows_as_a_condition() -> None:
    record = ResetRecord("one", "Waiting", "t", message="stop app")
    waiting = find_condition(status(sight("app"), record=record)["conditions"], "OffsetReset")
    assert waiting is not None
    assert (waiting["status"], waiting["reason"], waiting["message"]) == (
        "False",
        "WaitingForEmptyGroup",
        "stop app",
    )
    failed = ResetRecord("one", "Failed", "t", reason="UnknownTopic", message="no")
    shown = find_condition(status(sight(), record=failed)["conditions"], "OffsetReset")
    assert shown is not None and shown["reason"] == "UnknownTopic"
    repeated = status(sight(), record=None, repeated_id="one")["conditions"]
    claim = find_condition(repeated, "OffsetReset")
    assert claim is not None and claim["reason"] == "AlreadyOver"
    assert (
        find_condition(status(sight(), {"conditions": repeated})["conditions"], "OffsetReset")
        is None
    )
