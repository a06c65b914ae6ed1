"""SyncGroup, Heartbeat, LeaveGroup, commits, sessions and the end of a group."""

from __future__ import annotations

import pytest
from group_driver import RANGE, WALL_MS, GroupDriver, subscription

from fairlead_broker.group.classic_group import ClassicGroup
from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.records import decode_group_value, encode_group_value
from fairlead_wire.errors import ErrorCode


@pytest.fixture
def group() -> GroupDriver:
    return GroupDriver()


# SyncGroup.


def test_assignments_are_answered_only_when_they_are_written(group: GroupDriver) -> None:
    group.join("b")
    group.join("a")
    group.join("b2", "m1")
    group.sync("sa", "m2", 2)
    group.sync("sb", "m1", 2, {"m1": b"p0", "m2": b"p1"})
    assert "sa" not in group.answers
    assert "sb" not in group.answers
    assert group.state is GroupState.COMPLETING_REBALANCE
    group.commit()
    assert (group.synced("sb").assignment, group.synced("sa").assignment) == (b"p0", b"p1")
    assert (group.synced("sa").protocol_type, group.synced("sa").protocol_name) == (
        "consumer",
        "range",
    )
    assert group.state is GroupState.STABLE


def test_a_follower_that_syncs_late_is_answered_at_once(group: GroupDriver) -> None:
    group.join("b")
    group.join("a")
    group.join("b2", "m1")
    group.sync("sb", "m1", 2, {"m1": b"p0", "m2": b"p1"})
    group.commit()
    group.sync("sa", "m2", 2)
    assert group.synced("sa").assignment == b"p1"


def test_a_member_that_the_leader_forgot_has_nothing(group: GroupDriver) -> None:
    group.join("a")
    group.sync("s", "m1", 1, {})
    group.commit()
    assert (group.synced("s").error, group.synced("s").assignment) == (ErrorCode.NONE, b"")


def test_a_failed_write_makes_the_group_rebalance(group: GroupDriver) -> None:
    group.join("a")
    group.sync("s", "m1", 1, {"m1": b"p0"})
    group.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert group.synced("s").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.state is GroupState.PREPARING_REBALANCE
    group.join("b", "m1")
    group.sync("t", "m1", 2, {"m1": b"p1"})
    group.commit()
    assert group.synced("t").assignment == b"p1"


def test_a_leader_that_syncs_twice_writes_once(group: GroupDriver) -> None:
    group.join("a")
    group.sync("s", "m1", 1, {"m1": b"p0"})
    group.sync("t", "m1", 1, {"m1": b"other"})
    assert group.synced("s").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(group.writes) == 1
    group.commit()
    assert group.synced("t").assignment == b"p0"


def test_a_write_that_a_rebalance_overtook_changes_nothing(group: GroupDriver) -> None:
    group.join("a")
    group.sync("s", "m1", 1, {"m1": b"p0"})
    group.join("b")
    assert group.synced("s").error is ErrorCode.REBALANCE_IN_PROGRESS
    group.commit()
    assert group.state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("member_id", "generation", "names", "error"),
    [
        ("nobody", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", 0, {}, ErrorCode.ILLEGAL_GENERATION),
        ("m1", 2, {}, ErrorCode.ILLEGAL_GENERATION),
        ("m1", 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("m1", 1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("m1", 1, {"instance": "i1"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_of_another_generation_is_refused(
    group: GroupDriver, member_id: str, generation: int, names: dict[str, str], error: ErrorCode
) -> None:
    group.join("a")
    group.sync("s", member_id, generation, {"m1": b"x"}, **names)
    assert group.synced("s").error is error
    assert not group.writes
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_a_sync_in_a_rebalance_sends_the_member_to_join(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.join("b")
    group.sync("s", first, 1)
    assert group.synced("s").error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_never_syncs_is_removed(group: GroupDriver) -> None:
    group.join("b", session_ms=300_000)
    group.join("a")
    group.join("b2", "m1", session_ms=300_000)
    group.sync("sa", "m2", 2)
    group.pass_time(60_000)
    assert group.synced("sa").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat("m1", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    group.join("a2", "m2")
    assert group.joined("a2").leader == "m2"


# Heartbeats and sessions.


def test_heartbeats_keep_a_member_alive(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    for _ in range(10):
        group.pass_time(9_000)
        assert group.heartbeat(first, 1) is ErrorCode.NONE
    assert group.state is GroupState.STABLE


def test_a_silent_member_is_removed_after_its_session(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.pass_time(9_999)
    assert group.state is GroupState.STABLE
    group.pass_time(1)
    assert group.state is GroupState.EMPTY
    assert group.heartbeat(first, 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("m1", 0, ErrorCode.ILLEGAL_GENERATION),
        ("m1", 2, ErrorCode.ILLEGAL_GENERATION),
        ("m9", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_heartbeat_that_is_not_of_this_generation_is_refused(
    group: GroupDriver, member_id: str, generation: int, error: ErrorCode
) -> None:
    group.gather(1)
    assert group.heartbeat(member_id, generation) is error


def test_a_refused_heartbeat_is_no_sign_of_life(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.pass_time(9_000)
    group.heartbeat(first, 0)
    group.pass_time(1_000)
    assert group.state is GroupState.EMPTY


def test_members_that_wait_are_alive(group: GroupDriver) -> None:
    first, second = group.gather(2, session_ms=300_000)
    group.join("b", second, protocols=(("range", b"new"),), session_ms=6_000)
    group.pass_time(50_000)
    group.join("a", first)
    assert len(group.joined("a").members) == 2
    generation = group.group.generation_id
    group.sync("sb", second, generation)
    for _ in range(8):
        group.pass_time(5_000)
        assert group.heartbeat(first, generation) is ErrorCode.NONE
    assert "sb" not in group.answers


def test_a_member_whose_connection_is_gone_has_its_session_left(group: GroupDriver) -> None:
    first, second = group.gather(2, session_ms=300_000)
    group.join("b", second, protocols=(("range", b"new"),), session_ms=6_000)
    group.pass_time(20_000)
    group.group.forget_waiter("b")
    group.pass_time(5_000)
    assert group.heartbeat(second, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    group.pass_time(6_000)
    assert group.heartbeat(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    group.join("a", first)
    assert len(group.joined("a").members) == 1


def test_a_forgotten_waiter_is_not_answered(group: GroupDriver) -> None:
    group.join("a")
    group.sync("s", "m1", 1, {"m1": b"p"})
    group.group.forget_waiter("s")
    group.group.forget_waiter("unknown")
    group.commit()
    assert "s" not in group.answers
    group.sync("t", "m1", 1)
    assert group.synced("t").assignment == b"p"


# LeaveGroup.


def test_who_leaves_makes_the_others_rebalance(group: GroupDriver) -> None:
    first, second = group.gather(2)
    assert group.leave((first, None)) == [ErrorCode.NONE]
    assert group.state is GroupState.PREPARING_REBALANCE
    group.join("b", second)
    assert group.joined("b").leader == second


def test_the_last_to_leave_empties_the_group_with_a_generation_and_a_record(
    group: GroupDriver,
) -> None:
    (first,) = group.gather(1)
    group.pass_time(500)
    group.leave((first, None))
    assert (group.state, group.group.generation_id) == (GroupState.EMPTY, 2)
    group.commit()
    assert group.logged is not None
    record = decode_group_value(group.logged)
    assert (record.generation_id, record.members, record.protocol_type) == (2, (), "consumer")
    assert (record.protocol, record.leader) == (None, None)
    assert record.state_timestamp_ms == group.group.state_timestamp_ms == WALL_MS + 500


def test_a_record_of_an_empty_group_that_fails_is_written_again(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.leave((first, None))
    group.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.pass_time(10_000)
    group.commit()
    assert group.logged is not None
    assert decode_group_value(group.logged).generation_id == 2


def test_nobody_commits_to_a_group_that_is_not_logged_as_empty(group: GroupDriver) -> None:
    """With another coordinator its members would be back, and commit over it."""
    (first,) = group.gather(1)
    group.leave((first, None))
    group.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert group.check_commit("", -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.group.delete()[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.pass_time(1_000)
    group.commit()
    assert group.check_commit("", -1) is ErrorCode.NONE


def test_many_leave_at_once_each_with_its_own_answer(group: GroupDriver) -> None:
    first, second = group.gather(2)
    group.join("p", needs_id=True)
    pending = group.joined("p").member_id
    errors = group.leave((second, None), ("nobody", None), (pending, None), ("", None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [ErrorCode.NONE, unknown, ErrorCode.NONE, unknown]
    group.join("a", first)
    assert len(group.joined("a").members) == 1


def test_an_id_that_is_given_back_disturbs_nobody(group: GroupDriver) -> None:
    group.gather(1)
    group.join("p", needs_id=True)
    group.leave((group.joined("p").member_id, None))
    assert group.state is GroupState.STABLE


def test_who_leaves_while_it_waits_is_answered(group: GroupDriver) -> None:
    first, second = group.gather(2)
    group.join("b", second, protocols=(("range", b"new"),))
    group.leave((second, None))
    assert group.joined("b").error is ErrorCode.UNKNOWN_MEMBER_ID
    group.join("a", first)
    assert len(group.joined("a").members) == 1


# Commits.


def test_members_commit_while_stable_and_while_a_rebalance_begins(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    assert group.check_commit(first, 1) is ErrorCode.NONE
    group.join("b")
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.check_commit(first, 1) is ErrorCode.NONE


def test_nobody_commits_while_a_rebalance_is_being_completed(group: GroupDriver) -> None:
    group.join("a")
    assert group.check_commit("m1", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_waits_for_its_first_generation_commits_to_none(group: GroupDriver) -> None:
    group.gather(1)
    group.join("b")
    assert group.check_commit("m2", 1) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    ("member_id", "generation", "error"),
    [
        ("m1", 0, ErrorCode.ILLEGAL_GENERATION),
        ("m1", -1, ErrorCode.ILLEGAL_GENERATION),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m9", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_from_outside_a_group_with_members_are_refused(
    group: GroupDriver, member_id: str, generation: int, error: ErrorCode
) -> None:
    group.gather(1)
    assert group.check_commit(member_id, generation) is error


def test_anybody_commits_to_an_empty_group(group: GroupDriver) -> None:
    assert group.check_commit("", -1) is ErrorCode.NONE
    assert group.check_commit("m1", 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_are_signs_of_life(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    for _ in range(4):
        group.pass_time(9_000)
        assert group.check_commit(first, 1) is ErrorCode.NONE
    assert group.state is GroupState.STABLE


# The end, and another coordinator.


def test_only_an_empty_group_is_deleted(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    error, effects = group.group.delete()
    assert (error, effects.writes) == (ErrorCode.NON_EMPTY_GROUP, [])
    group.leave((first, None))
    group.commit()
    error, effects = group.group.delete()
    assert (error, [write.value for write in effects.writes]) == (ErrorCode.NONE, [None])
    assert group.state is GroupState.DEAD
    assert group.group.delete()[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.group.next_deadline_ms() is None


def test_a_group_whose_tombstone_fails_lives_on(group: GroupDriver) -> None:
    _, effects = group.group.delete()
    group.take(effects)
    group.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert group.state is GroupState.EMPTY


def test_a_dead_group_answers_nothing_else(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.take(group.group.fail_all(ErrorCode.NOT_COORDINATOR))
    group.sync("s", first, 1)
    assert group.synced("s").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.heartbeat(first, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.check_commit(first, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.leave((first, None)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert group.group.tick(now_ms=10**9, now_wall_ms=0).writes == []


def test_everybody_who_waits_learns_of_another_coordinator(group: GroupDriver) -> None:
    group.join("b")
    group.join("a")
    group.join("b2", "m1")
    group.sync("sb", "m1", 2, {})
    group.sync("sa", "m2", 2)
    group.take(group.group.fail_all(ErrorCode.NOT_COORDINATOR))
    assert {group.synced(each).error for each in ("sa", "sb")} == {ErrorCode.NOT_COORDINATOR}
    group.commit()
    assert group.state is GroupState.DEAD


def test_another_coordinator_goes_on_from_the_record(group: GroupDriver) -> None:
    first, second = group.gather(2)
    other = group.reload()
    assert other.group.describe() == group.group.describe()
    assert other.group.leader == first
    assert other.heartbeat(second, group.group.generation_id) is ErrorCode.NONE
    other.sync("s", second, group.group.generation_id)
    assert other.synced("s").assignment == second.encode()


def test_sessions_begin_anew_with_another_coordinator(group: GroupDriver) -> None:
    group.gather(1)
    group.pass_time(9_000)
    other = group.reload()
    other.pass_time(9_999)
    assert other.state is GroupState.STABLE
    other.pass_time(1)
    assert other.state is GroupState.EMPTY


def test_a_record_that_names_a_member_twice_is_damaged(group: GroupDriver) -> None:
    group.gather(1)
    assert group.logged is not None
    record = decode_group_value(group.logged)
    twice = encode_group_value(record._replace(members=record.members * 2))
    with pytest.raises(ValueError, match="names m1 twice"):
        ClassicGroup.from_record("g", twice, initial_rebalance_delay_ms=0, size_max=10, now_ms=0)


def test_a_record_whose_leader_is_gone_gets_another(group: GroupDriver) -> None:
    group.gather(1)
    assert group.logged is not None
    record = decode_group_value(group.logged)
    group.logged = encode_group_value(record._replace(leader="gone"))
    assert group.reload().group.leader == "m1"


# What others ask.


def test_subscribed_topics_are_those_of_all_members(group: GroupDriver) -> None:
    group.join("a", protocols=(("range", subscription("t", "u")),))
    group.join("b", protocols=(("range", subscription("u", "ü")),))
    assert group.group.subscribed_topics() == {"t", "u", "ü"}


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0\0\0\0\0\2\0\1t", b"\0\0\0\0\0\1\0\5t", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1\0\1\xff"],
)
def test_topics_are_unknown_if_one_member_says_something_else(
    group: GroupDriver, metadata: bytes
) -> None:
    group.join("a", protocols=(("range", metadata),))
    assert group.group.subscribed_topics() is None


def test_only_consumers_name_topics(group: GroupDriver) -> None:
    assert group.group.subscribed_topics() == frozenset()
    group.join("a", protocol_type="connect", protocols=(("v1", subscription("t")),))
    assert group.group.subscribed_topics() is None


def test_a_group_is_described_with_what_its_members_have(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    described = group.group.describe()
    assert (described.state, described.protocol_type, described.protocol_name) == (
        GroupState.STABLE,
        "consumer",
        "range",
    )
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (
        first,
        "client",
        "/10.0.0.1",
    )
    assert (member.metadata, member.assignment) == (b"sub", b"m1")
    group.join("b")
    described = group.group.describe()
    assert (described.state, described.protocol_name) == (GroupState.PREPARING_REBALANCE, "")
    # What it was given it may still read, and who looks at lag wants to know it.
    assert [(each.metadata, each.assignment) for each in described.members] == [
        (b"", b"m1"),
        (b"", b""),
    ]
    group.join("a", first)
    described = group.group.describe()
    assert described.state is GroupState.COMPLETING_REBALANCE
    assert [each.assignment for each in described.members] == [b"m1", b""]


def test_signs_of_life_cost_the_same_however_many_members_there_are() -> None:
    group = GroupDriver(delay_ms=3_000)
    for number in range(500):
        group.join(number, protocols=RANGE, session_ms=45_000)
    group.pass_time(6_000)
    due = group.group.next_deadline_ms()
    for number in range(1, 501):
        assert group.heartbeat(f"m{number}", 1) is ErrorCode.NONE
    assert group.group.next_deadline_ms() == due


def test_a_request_to_leave_may_name_nobody(group: GroupDriver) -> None:
    group.gather(1)
    assert group.leave() == []
    assert group.state is GroupState.STABLE
