"""SyncGroup: assignments, written before anybody hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairlead_broker.group.group_types import GroupState
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from group_driver import GroupDriver


def test_assignments_are_answered_only_when_they_are_written(pair: GroupDriver) -> None:
    """G1."""
    pair.sync("sa", "m2", 2)
    pair.sync("sb", "m1", 2, {"m1": b"p0", "m2": b"p1"})
    assert "sa" not in pair.answers
    assert "sb" not in pair.answers
    assert pair.state.name == GroupState.COMPLETING_REBALANCE.name
    pair.commit()
    assert (pair.synced("sb").assignment, pair.synced("sa").assignment) == (b"p0", b"p1")
    assert (pair.synced("sa").protocol_type, pair.synced("sa").protocol_name) == (
        "consumer",
        "range",
    )
    assert pair.state.name == GroupState.STABLE.name


def test_a_follower_that_syncs_late_is_answered_at_once(pair: GroupDriver) -> None:
    pair.sync("sb", "m1", 2, {"m1": b"p0", "m2": b"p1"})
    pair.commit()
    pair.sync("sa", "m2", 2)
    assert pair.synced("sa").assignment == b"p1"


def test_what_a_follower_assigns_counts_for_nothing(pair: GroupDriver) -> None:
    """G2."""
    pair.sync("sa", "m2", 2, {"m1": b"", "m2": b"all"})
    assert pair.writes == []
    pair.sync("sb", "m1", 2, {"m1": b"p0", "m2": b"p1"})
    pair.commit()
    assert (pair.synced("sb").assignment, pair.synced("sa").assignment) == (b"p0", b"p1")


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
    assert group.state.name == GroupState.PREPARING_REBALANCE.name
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
    assert group.state.name == GroupState.PREPARING_REBALANCE.name


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
    assert group.state.name == GroupState.COMPLETING_REBALANCE.name


def test_a_sync_in_a_rebalance_sends_the_member_to_join(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.join("b")
    group.sync("s", first, 1)
    assert group.synced("s").error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_never_syncs_is_removed(group: GroupDriver) -> None:
    """G11."""
    group.join("b", session_ms=300_000)
    group.join("a")
    group.join("b2", "m1", session_ms=300_000)
    group.sync("sa", "m2", 2)
    group.pass_time(60_000)
    assert group.synced("sa").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.heartbeat("m1", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    group.join("a2", "m2")
    assert group.joined("a2").leader == "m2"
