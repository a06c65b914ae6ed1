from datetime import UTC, datetime, timedelta

from fairlead_operator.conditions import find_condition, set_condition, without_condition

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def test_a_new_claim_goes_to_the_end() -> None:
    other = {"type": "Progressing", "status": "False"}
    conditions = set_condition(
        [other], "Ready", True, "Ready", "all brokers serve", generation=3, now=NOW
    )
    assert conditions == [
        other,
        {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "all brokers serve",
            "lastTransitionTime": "2026-11-21T09:30:00Z",
            "observedGeneration": 3,
        },
    ]


def test_saying_the_same_again_changes_nothing() -> None:
    first = set_condition([], "Ready", None, "Placing", "", generation=3, now=NOW)
    assert set_condition(first, "Ready", None, "Placing", "", generation=3, now=LATER) == first


def test_the_time_changes_only_with_the_status() -> None:
    first = set_condition([], "Ready", False, "Placing", "waits", generation=3, now=NOW)
    other_reason = set_condition(first, "Ready", False, "Offline", "", generation=4, now=LATER)
    assert other_reason[0]["lastTransitionTime"] == "2026-11-21T09:30:00Z"
    assert (other_reason[0]["reason"], other_reason[0]["observedGeneration"]) == ("Offline", 4)
    other_status = set_condition(first, "Ready", True, "Ready", "", generation=3, now=LATER)
    assert other_status[0]["lastTransitionTime"] == "2026-11-21T09:35:00Z"


def test_the_given_list_is_left_alone() -> None:
    first = set_condition([], "Ready", False, "Placing", "", generation=3, now=NOW)
    set_condition(first, "Ready", True, "Ready", "", generation=3, now=LATER)
    assert first[0]["status"] == "False"


def test_long_messages_are_cut_to_what_the_schema_takes() -> None:
    (condition,) = set_condition([], "Ready", False, "Offline", "x" * 2000, generation=1, now=NOW)
    assert len(condition["message"]) == 1024
    assert condition["message"].endswith("x…")


def test_finding_and_removing() -> None:
    conditions = set_condition([], "Ready", True, "Ready", "", generation=1, now=NOW)
    found = find_condition(conditions, "Ready")
    assert found is not None
    assert found["status"] == "True"
    assert find_condition(conditions, "Degraded") is None
    assert without_condition(conditions, "Ready") == []
