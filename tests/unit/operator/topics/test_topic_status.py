"""Statuses of Topics: what they say, and that they only change when that does."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead_operator.conditions import find_condition
from fairlead_operator.topics.plan import ClusterPresence
from fairlead_operator.topics.topic_resource import TopicResource, read_topic_resource
from fairlead_operator.topics.topic_status import (
    build_status_patch,
    build_topic_status,
    is_off_size,
    judge,
    turned_bad,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 1, 2, tzinfo=UTC)
OK = {"state": "ok", "reason": "Applied", "message": "", "topicId": "id"}
ENTRY: dict[str, Any] = {
    "name": "orders",
    "topicId": "AAAA",
    "partitions": 3,
    "replicationFactor": 3,
    "underReplicated": 0,
    "offline": 0,
    "reassigning": 0,
    "targetFactors": [3],
    "lossPossible": 0,
    "leaders": "0:1 1:1 2:1",
    "problems": [],
}
READY = (True, "Ready", "fine")


def resource(**fields: Any) -> TopicResource:
    metadata = {"namespace": "ns", "name": "orders", "uid": "u", "generation": 2}
    metadata |= fields.pop("metadata", {})
    return read_topic_resource({"metadata": metadata, "spec": {"clusterName": "demo", **fields}})


def verdict(**fields: Any) -> Any:
    known: dict[str, Any] = {
        "cluster": ClusterPresence.PRESENT,
        "owner": "orders",
        "result": OK,
        "entry": ENTRY,
    }
    return judge(resource(), **(known | fields))


@pytest.mark.parametrize(
    ("fields", "reason", "text"),
    [
        ({}, "Ready", "every partition"),
        ({"cluster": ClusterPresence.ABSENT}, "ClusterNotFound", "demo does not exist"),
        ({"cluster": ClusterPresence.DELETING}, "ClusterNotFound", "is being deleted"),
        ({"owner": "older", "result": None}, "Conflict", "Topic older is older"),
        ({"result": {**OK, "state": "refused", "reason": "InvalidSpec"}}, "InvalidSpec", ""),
        ({"result": {**OK, "state": "waiting", "reason": "TooFewBrokers"}}, "TooFewBrokers", ""),
        ({"entry": {**ENTRY, "offline": 1, "underReplicated": 2}}, "Offline", "1 of 3"),
        ({"entry": {**ENTRY, "underReplicated": 2}}, "UnderReplicated", "2 of 3"),
    ],
)
def test_ready_says_what_matters_most(fields: dict[str, Any], reason: str, text: str) -> None:
    is_ready, why, message = verdict(**fields)
    assert why == reason
    assert text in message
    assert is_ready == (reason == "Ready")


def test_a_cluster_of_another_namespace_that_is_away_goes_by_its_own() -> None:
    foreign = resource(clusterNamespace="data")
    given: dict[str, Any] = {"owner": None, "result": None, "entry": None}
    said = judge(foreign, cluster=ClusterPresence.ABSENT, **given)
    why = "spec.clusterName: LogCluster data/demo does not exist"
    assert said == (False, "ClusterNotFound", why)


def test_nothing_is_said_before_it_is_known() -> None:
    assert verdict(result=None) is None
    assert verdict(entry=None) is None


def test_the_worst_partition_is_named() -> None:
    problems = [
        {"partition": 0, "leader": 1, "replicas": [1, 2, 3], "isr": [1, 2]},
        {"partition": 2, "leader": 3, "replicas": [1, 2, 3], "isr": [3]},
    ]
    message = verdict(entry={**ENTRY, "underReplicated": 2, "problems": problems})[2]
    assert "partition 2: leader 3" in message


def test_an_unchanged_status_is_the_same_and_needs_no_write() -> None:
    first = build_topic_status(resource(), {}, READY, ENTRY, NOW)
    assert first["leaders"] == "0:1 1:1 2:1"
    assert first["observedGeneration"] == 2
    again = build_topic_status(resource(), first, READY, ENTRY, LATER)
    assert build_status_patch(first, again) == {}


def test_a_patch_names_what_differs_and_takes_away_what_is_gone() -> None:
    first = build_topic_status(resource(), {}, READY, ENTRY, NOW)
    grown = build_topic_status(resource(), first, READY, {**ENTRY, "partitions": 6}, LATER)
    assert build_status_patch(first, grown) == {"partitions": 6}
    lost = build_topic_status(resource(), first, (False, "Conflict", "x"), None, LATER)
    patch = build_status_patch(first, lost)
    assert patch["partitions"] is None
    assert patch["topicId"] is None
    assert patch["conditions"][0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_possible_loss_is_a_condition_while_it_lasts() -> None:
    lossy = build_topic_status(resource(), {}, READY, {**ENTRY, "lossPossible": 1}, NOW)
    assert [each["type"] for each in lossy["conditions"]] == ["Ready", "DataLossPossible"]
    assert lossy["conditions"][1]["status"] == "True"
    healed = build_topic_status(resource(), lossy, READY, ENTRY, LATER)
    assert [each["type"] for each in healed["conditions"]] == ["Ready"]


def test_a_protected_resource_that_is_to_be_deleted_says_what_to_do() -> None:
    going = resource(deletionProtection=True, metadata={"deletionTimestamp": "x"})
    status = build_topic_status(going, {}, READY, ENTRY, NOW)
    condition = status["conditions"][1]
    assert (condition["type"], condition["status"]) == ("Deleting", "False")
    assert "set spec.deletionProtection to false" in condition["message"]


def test_a_paused_resource_shows_its_topic_and_says_that_changes_wait() -> None:
    refused = {**OK, "state": "refused", "reason": "InvalidSpec"}
    assert verdict(is_paused=True, result=refused)[1] == "Ready", "the topic is well"
    assert verdict(is_paused=True, result=None, entry=None)[:2] == (False, "Paused")
    paused = build_topic_status(resource(), {}, READY, ENTRY, NOW, is_paused=True)
    condition = paused["conditions"][1]
    assert (condition["type"], condition["status"]) == ("Paused", "True")
    gone_on = build_topic_status(resource(), paused, READY, ENTRY, LATER)
    assert [each["type"] for each in gone_on["conditions"]] == ["Ready"]


def test_only_news_of_trouble_is_worth_an_event() -> None:
    bad = (False, "Offline", "1 of 3")
    assert not turned_bad({}, READY)
    assert turned_bad({}, bad)
    assert not turned_bad({}, (False, "WaitingForBrokers", "1 of 3")), "a cluster starts"
    known = build_topic_status(resource(), {}, bad, ENTRY, NOW)
    assert not turned_bad(known, bad)
    assert turned_bad(known, (False, "Conflict", "x"))
    # The text changes with each spec that is refused, and says what to correct.
    refused = build_topic_status(resource(), {}, (False, "InvalidSpec", "a"), ENTRY, NOW)
    assert turned_bad(refused, (False, "InvalidSpec", "b"))
    long = (False, "InvalidSpec", "x" * 2000)
    assert not turned_bad(build_topic_status(resource(), {}, long, ENTRY, NOW), long)


def test_a_topic_that_recovers_step_by_step_is_told_of_once() -> None:
    """Each of a thousand topics would get ten Events a minute while a broker catches up."""
    status: dict[str, Any] = {}
    told = []
    steps = [(8, 100), *((0, count) for count in range(100, 0, -1)), (0, 0)]
    for offline, under in steps:
        entry = {**ENTRY, "partitions": 100, "offline": offline, "underReplicated": under}
        found = verdict(entry=entry)
        if turned_bad(status, found):
            told.append(found[1])
        status = build_topic_status(resource(), status, found, entry, NOW)
    assert told == ["Offline", "UnderReplicated"]


def test_replicas_that_come_or_go_are_a_condition_while_they_do() -> None:
    moving = {**ENTRY, "replicationFactor": 2, "reassigning": 2, "targetFactors": [3]}
    status = build_topic_status(resource(), {}, READY, moving, NOW)
    condition = find_condition(status["conditions"], "Reassigning") or {}
    assert condition["message"] == "2 of 3 partitions are being reassigned: 3 instead of 2 each"
    assert (status["reassigning"], status["replicationFactor"]) == (2, 2)
    drained = {**ENTRY, "reassigning": 1}
    status = build_topic_status(resource(), status, READY, drained, NOW)
    condition = find_condition(status["conditions"], "Reassigning") or {}
    assert condition["message"] == "1 of 3 partitions are being reassigned"
    status = build_topic_status(resource(), status, READY, ENTRY, NOW)
    assert find_condition(status["conditions"], "Reassigning") is None


def test_a_topic_with_another_number_of_replicas_to_come_is_told_to_the_controller_again() -> None:
    assert is_off_size(resource(replicationFactor=2), ENTRY)
    assert is_off_size(resource(replicationFactor=3), {**ENTRY, "targetFactors": [2, 3]})
    assert not is_off_size(resource(replicationFactor=3), ENTRY)
    assert not is_off_size(resource(), ENTRY)


def test_a_topic_of_a_cluster_that_sleeps_says_so_and_alarms_nobody() -> None:
    offline = ENTRY | {"offline": 3}
    refused = OK | {"state": "refused", "reason": "Refused", "message": "there are no brokers"}
    for fields, text in (
        ({"entry": offline}, "sleeps"),
        ({"entry": offline, "is_paused": True}, "sleeps"),
        ({"entry": None, "result": None}, "sleeps"),
        ({"entry": None, "result": refused}, "no brokers"),
    ):
        told = verdict(is_asleep=True, **fields)
        assert told[:2] == (False, "Hibernated")
        assert text in told[2]
        assert not turned_bad({}, told)
    assert verdict(is_asleep=True, owner="older")[1] == "Conflict"
