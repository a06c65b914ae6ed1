"""Heartbeats, sessions, and who commits offsets as a member."""

from __future__ import annotations

import pytest
from group_driver import RANGE, GroupDriver

from fairlead_broker.group.group_types import GroupState
from fairlead_wire.errors import ErrorCode


def test_heartbeats_keep_a_member_alive(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    for _ in range(10):
        group.pass_time(9_000)
        assert group.heartbeat(first, 1) is ErrorCode.NONE
    assert group.state.name == GroupState.STABLE.name


def test_a_silent_member_is_removed_after_its_session(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.pass_time(9_999)
    assert group.state.name == GroupState.STABLE.name
    group.pass_time(1)
    assert group.state.name == GroupState.EMPTY.name
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
    assert group.state.name == GroupState.EMPTY.name


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


def test_signs_of_life_cost_the_same_however_many_members_there_are() -> None:
    group = GroupDriver(delay_ms=3_000)
    for number in range(500):
        group.join(number, protocols=RANGE, session_ms=45_000)
    group.pass_time(6_000)
    due = group.group.next_deadline_ms()
    for number in range(1, 501):
        assert group.heartbeat(f"m{number}", 1) is ErrorCode.NONE
    assert group.group.next_deadline_ms() == due


def test_members_commit_while_stable_and_while_a_rebalance_begins(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    assert group.check_commit(first, 1) is ErrorCode.NONE
    group.join("b")
    assert group.state.name == GroupState.PREPARING_REBALANCE.name
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
    """G5."""
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
    assert group.state.name == GroupState.STABLE.name
