"""Members of a group of KIP-848: how they join, move, are fenced, and come back."""

from dataclasses import replace

import pytest
from consumer_group_cases import joined_by_a_third, pair, refused
from consumer_group_driver import SETTINGS, ConsumerGroupDriver, held, partitions

from fairlead_broker.group.assignors import by_name
from fairlead_broker.group.group_types import ConsumerHeartbeat
from fairlead_broker.group.records.consumer_records import MemberState, RecordKey, RecordType
from fairlead_wire.errors import ErrorCode

STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def test_the_first_member_is_given_everything_at_once() -> None:
    driver = ConsumerGroupDriver(t=2)
    answer = driver.join("a")
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", 2)
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assigned == partitions({"t": [0, 1]})
    assert driver.group.state_name == "Stable"
    (batch,) = driver.batches
    assert [int.from_bytes(key[:2], "big") for key, _ in batch] == [5, 3, 7, 6, 8]


def test_nothing_is_told_that_is_no_news() -> None:
    driver = pair()
    batches = len(driver.batches)
    assert driver.beat("a", 3).assigned is None
    assert driver.beat("a", 3, owned={"t": [0, 1]}).assigned is None
    full = driver.beat("a", 3, ["t"], owned={"t": [0, 1]}, timeout_ms=10_000)
    assert full.assigned == partitions({"t": [0, 1]})
    assert len(driver.batches) == batches


def test_a_partition_moves_only_when_it_was_given_up() -> None:
    driver = ConsumerGroupDriver(t=4)
    driver.join("a")
    joined = driver.join("b")
    assert (joined.member_epoch, joined.assigned) == (3, frozenset())
    assert driver.state.current("b").state is UNRELEASED
    assert driver.group.state_name == "Reconciling"
    told = driver.beat("a", 2, owned={"t": [0, 1, 2, 3]})
    assert (told.member_epoch, told.assigned) == (2, partitions({"t": [0, 1]}))
    assert driver.state.current("a").state is UNREVOKED
    # It says nothing of what it has, or still has some of it: nothing moves.
    for owned in (None, {"t": [0, 1, 3]}):
        assert driver.beat("a", 2, owned=owned).member_epoch == 2
        assert driver.beat("b", 3).assigned is None
    assert driver.beat("a", 2, owned={"t": [0, 1]}).member_epoch == 3
    assert driver.beat("b", 3).assigned == partitions({"t": [2, 3]})
    assert driver.state.current("b").state is STABLE
    assert driver.group.state_name == "Stable"


def test_a_member_that_has_given_up_already_moves_at_once() -> None:
    driver = ConsumerGroupDriver(t=4)
    driver.join("a")
    driver.join("b")
    told = driver.beat("a", 2, owned={"t": [0, 1]})
    assert (told.member_epoch, told.assigned) == (3, partitions({"t": [0, 1]}))


def test_what_is_not_given_up_yet_may_come_back_and_never_has_two_owners() -> None:
    """KAFKA-16147: given back before it was revoked, the partition was lost from the map."""
    driver = ConsumerGroupDriver(t=4)
    driver.join("a")
    driver.join("b")
    driver.beat("a", 2, owned={"t": [0, 1, 2, 3]})
    driver.beat("b", -1)
    assert driver.beat("a", 2, owned={"t": [0, 1, 2, 3]}).member_epoch == 2
    driver.join("c")
    for _ in range(3):
        driver.beat("c", driver.epoch("c"), owned=driver.held("c"))
        assert driver.held("c") == {}
    driver.settle("a", "c")
    assert (driver.held("a"), driver.held("c")) == ({"t": [0, 1]}, {"t": [2, 3]})


def test_kept_partitions_keep_the_epoch_at_which_they_came() -> None:
    driver = pair()
    assert set(driver.state.current("a").assigned.values()) == {2}
    assert set(driver.state.current("b").assigned.values()) == {3}


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (4, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {"t": [0]}, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {"t": [0, 2]}, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {"t": [0]}, None),
        (2, {}, None),
        (3, {"t": [0, 1]}, None),
    ],
)
def test_epochs_are_the_present_one_or_the_one_before_of_a_lost_reply(
    epoch: int, owned: dict[str, list[int]] | None, error: ErrorCode | None
) -> None:
    driver = pair()
    if error is None:
        assert driver.beat("a", epoch, owned=owned).member_epoch == 3
    else:
        assert refused(driver, "a", epoch, owned=owned) is error


def test_who_is_not_known_is_told_so() -> None:
    driver = pair()
    assert refused(driver, "c", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(driver, "c", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(driver, "a", 3, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fenced_member_comes_back_with_epoch_0() -> None:
    """KAFKA-19233: while the broker knows a higher epoch; it was fenced for ever."""
    driver, slow = joined_by_a_third()
    answer = driver.join(slow)
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, 4)
    assert answer.assigned == frozenset(driver.state.current(slow).assigned)
    assert driver.state.current(slow).state is STABLE
    assert driver.state.epoch == 4
    driver.settle("a", "b", "c")
    assert sorted(map(len, (driver.held(each).get("t", []) for each in "abc"))) == [1, 1, 2]


def test_a_member_that_leaves_frees_what_it_had_in_one_batch() -> None:
    driver = pair()
    answer = driver.beat("b", -1)
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, -1)
    kinds = [(int.from_bytes(key[:2], "big"), value is None) for key, value in driver.batches[-1]]
    assert kinds == [(8, True), (7, True), (5, True), (3, False)]
    assert driver.beat("a", 3, owned={"t": [0, 1]}).assigned == partitions({"t": [0, 1, 2, 3]})


def test_the_last_one_leaves_a_group_that_is_empty_and_at_rest() -> None:
    """KAFKA-20442: an empty group stayed Assigning."""
    driver = pair()
    driver.beat("a", -1)
    driver.beat("b", -1)
    assert driver.group.is_empty
    assert driver.group.state_name == "Empty"
    assert driver.state.assignment_epoch == driver.state.epoch == 5
    assert driver.join("a").member_epoch == 6


@pytest.mark.parametrize(
    ("change", "bumps"),
    [
        ({"topics": ["t", "u"]}, True),
        ({"topics": []}, True),
        ({"topics": ["t"]}, False),
        ({"assignor": "range"}, False),
        ({"rack": "r"}, False),
        ({"timeout_ms": 7}, False),
    ],
)
def test_the_group_epoch_rises_with_subscriptions_and_nothing_else(
    change: dict[str, object], bumps: bool
) -> None:
    driver = pair()
    driver.host.set_topics({"t": 4, "u": 1})
    driver.beat("a", 3)
    before = driver.state.epoch
    driver.beat("a", 3, **change)
    assert driver.state.epoch - before == bumps


@pytest.mark.parametrize("topics", [{"t": 6}, {}, {"t": 4, "u": 1}])
def test_topics_that_change_raise_the_epoch_once(topics: dict[str, int]) -> None:
    driver = pair()
    driver.host.set_topics(topics)
    for _ in range(2):
        driver.beat("a", driver.epoch("a"), owned=driver.held("a"))
    assert driver.state.epoch == 3 + (topics.get("t") != 4)
    driver.settle("a", "b")
    both = partitions(driver.held("a")) | partitions(driver.held("b"))
    assert both == partitions({"t": list(range(topics.get("t", 0)))})


def test_a_topic_that_is_dropped_is_taken_away_while_others_are_being_given_up() -> None:
    """KAFKA-19431: no record of a topic that the member no longer subscribes to."""
    driver = ConsumerGroupDriver(t=2, u=2)
    driver.join("a", ["t", "u"])
    driver.join("b", ["t", "u"])
    everything = {"t": [0, 1], "u": [0, 1]}
    driver.beat("a", 2, owned=everything)
    assert driver.state.current("a").state is UNREVOKED
    dropped = next(iter(driver.held("a")))
    told = driver.beat("a", 2, {"t", "u"} - {dropped}, owned=everything)
    assert told.assigned is not None
    assert dropped not in held(told.assigned) | driver.held("a")
    assert driver.state.current("a").state is UNREVOKED
    assert set(held(driver.state.current("a").pending_revocation)) == {"t", "u"}


def test_a_subscription_that_shrinks_takes_effect_before_the_next_target() -> None:
    driver = ConsumerGroupDriver(t=2, u=2)
    driver.host.settings = replace(SETTINGS, assignment_interval_ms=1_000)
    driver.join("a", ["t", "u"])
    told = driver.beat("a", 2, ["t"], owned={"t": [0, 1], "u": [0, 1]})
    assert (told.member_epoch, told.assigned) == (2, partitions({"t": [0, 1]}))
    assert driver.state.current("a").state is UNREVOKED
    assert driver.group.state_name == "Assigning"


def test_joins_within_the_interval_are_one_assignment() -> None:
    driver = ConsumerGroupDriver(t=4)
    driver.host.settings = replace(SETTINGS, assignment_interval_ms=1_000)
    assert driver.join("a").member_epoch == 2
    driver.now_ms = 999
    assert driver.join("b").member_epoch == 2
    assert driver.join("c").member_epoch == 2
    assert driver.state.assignment_epoch == 2
    assert driver.group.state_name == "Assigning"
    driver.now_ms = 1_000
    driver.settle("a", "b", "c")
    assert driver.state.assignment_epoch == driver.state.epoch == 4
    assert sorted(len(driver.held(each)["t"]) for each in "abc") == [1, 1, 2]


def test_the_interval_does_not_delay_the_end_of_a_dead_member() -> None:
    driver = pair()
    driver.host.settings = replace(SETTINGS, assignment_interval_ms=15_000)
    driver.pass_time(40_000)
    driver.beat("a", 3)
    driver.pass_time(5_000)
    assert set(driver.state.members) == {"a"}
    assert set(driver.state.holders.values()) == {"a"}


def test_a_full_group_takes_back_who_is_in_it_and_nobody_else() -> None:
    driver = pair()
    driver.host.settings = replace(SETTINGS, size_max=2)
    assert (
        refused(driver, "c", 0, ["t"], owned={}, timeout_ms=1) is ErrorCode.GROUP_MAX_SIZE_REACHED
    )
    assert driver.join("a").error is ErrorCode.NONE


def test_the_assignor_is_the_one_that_most_want() -> None:
    driver = ConsumerGroupDriver(t=3, u=3)
    assert (
        refused(driver, "a", 0, ["t"], owned={}, timeout_ms=1, assignor="best")
        is ErrorCode.UNSUPPORTED_ASSIGNOR
    )
    driver.join("a", ["t", "u"])
    assert driver.group.describe_members().assignor_name == "uniform"
    driver.join("b", ["t", "u"], assignor="range")
    assert driver.group.describe_members().assignor_name == "range"
    driver.settle("a", "b")
    # Ranges: the same partition numbers of either topic.
    assert driver.held("a") == {"t": [0, 1], "u": [0, 1]}


@pytest.mark.parametrize("wrong", ["twice", "nobody", "unasked", "beyond"])
def test_an_assignor_that_errs_changes_nothing(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pair()
    every = partitions({"t": [0, 1, 2, 3]})
    given = {
        "twice": dict.fromkeys("abc", every),
        "nobody": {"a": every},
        "unasked": {"a": partitions({"u": [0]}), "b": frozenset(), "c": frozenset()},
        "beyond": {"a": partitions({"t": [4]}), "b": frozenset(), "c": frozenset()},
    }[wrong]
    monkeypatch.setitem(by_name.ASSIGNORS, "uniform", lambda spec: given)
    before = driver.state.copy()
    asked = ConsumerHeartbeat(
        "c", 0, None, None, "c", "/h", 1, ("t",), None, None, frozenset(), lambda _: True
    )
    (write,) = driver.group.consumer_heartbeat(asked, "w", **driver.times).writes
    assert write.violation
    told = driver.group.written(write, ErrorCode.UNKNOWN_SERVER_ERROR, **driver.times)
    assert [result.error for _, result in told.replies] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    for name in before.__slots__:
        assert getattr(before, name) == getattr(driver.state, name), name


def test_a_member_in_a_state_of_a_later_kafka_has_to_begin_anew() -> None:
    driver = pair()
    current = driver.state.current("a")._replace(state=MemberState.UNKNOWN)
    key = RecordKey(RecordType.CURRENT_ASSIGNMENT, "g", "a")
    driver.group.members.speculative.committed.apply(key, current)
    driver.group.members.speculative.latest.apply(key, current)
    assert refused(driver, "a", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    assert refused(driver, "a", 3, owned={"t": [0]}) is ErrorCode.FENCED_MEMBER_EPOCH
    assert driver.beat("a", 3, owned={}).member_epoch == 3
    assert driver.state.current("a").state is STABLE


def test_a_static_member_that_is_away_keeps_what_it_has() -> None:
    driver = ConsumerGroupDriver(t=4)
    driver.join("a", instance="i")
    driver.join("b")
    driver.beat("a", 2, instance="i", owned={"t": [0, 1, 2, 3]})
    driver.beat("a", 2, instance="i", owned={"t": [0, 1]})
    driver.beat("b", 3)
    answer = driver.beat("a", -2, instance="i")
    assert (answer.error, answer.member_epoch) == (ErrorCode.NONE, -2)
    current = driver.state.current("a")
    assert current.member_epoch == -2
    assert set(current.assigned.values()) == {0}
    assert driver.state.epoch == 3
    driver.settle("b")
    assert driver.held("b") == {"t": [2, 3]}
    joined = driver.join("a2", instance="i")
    assert joined.assigned == partitions({"t": [0, 1]})
    assert (joined.member_epoch, driver.state.epoch) == (3, 3)
    assert "a" not in driver.state.members
    kinds = [(int.from_bytes(key[:2], "big"), value is None) for key, value in driver.batches[-1]]
    assert kinds[:3] == [(8, True), (7, True), (5, True)]
    driver.require_replayable()


def test_a_static_member_is_let_in_by_its_predecessor_or_its_end_alone() -> None:
    driver = ConsumerGroupDriver(t=2)
    driver.join("a", instance="i")
    assert (
        refused(driver, "a2", 0, ["t"], owned={}, timeout_ms=1, instance="i")
        is ErrorCode.UNRELEASED_INSTANCE_ID
    )
    # The same process, whose answer was lost, is no other.
    assert driver.join("a", instance="i").error is ErrorCode.NONE
    driver.pass_time(45_000)
    assert driver.join("a2", instance="i").error is ErrorCode.NONE


def test_whoever_has_lost_its_instance_id_is_fenced() -> None:
    driver = ConsumerGroupDriver(t=2)
    driver.join("a", instance="i")
    driver.beat("a", -2, instance="i")
    driver.join("a2", instance="i")
    for epoch in (2, -1, -2):
        assert refused(driver, "a", epoch, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert refused(driver, "a", 2, instance="j") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_with_other_topics_makes_a_new_epoch() -> None:
    driver = ConsumerGroupDriver(t=2, u=2)
    driver.join("a", ["t"], instance="i")
    driver.beat("a", -2, instance="i")
    joined = driver.join("a2", ["u"], instance="i")
    assert (joined.member_epoch, joined.assigned) == (3, partitions({"u": [0, 1]}))


def test_a_static_member_that_stays_away_is_fenced_with_its_session() -> None:
    driver = ConsumerGroupDriver(t=2)
    driver.join("a", instance="i")
    driver.join("b")
    driver.beat("a", -2, instance="i")
    driver.pass_time(44_999)
    driver.beat("b", driver.epoch("b"), owned={})
    driver.pass_time(1)
    assert set(driver.state.members) == {"b"}
    assert driver.state.epoch == 4
    driver.settle("b")
    assert driver.held("b") == {"t": [0, 1]}


def test_a_static_member_that_leaves_for_good_is_removed() -> None:
    driver = ConsumerGroupDriver(t=2)
    driver.join("a", instance="i")
    driver.beat("a", -1, instance="i")
    assert driver.group.is_empty
