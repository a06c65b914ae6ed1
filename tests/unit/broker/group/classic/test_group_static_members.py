"""Static members (KIP-345, KIP-814): a process comes back under its instance id and goes on."""

from __future__ import annotations

import pytest
from group_driver import GroupDriver, subscription

from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.records.classic_records import decode_group_value
from fairlead_wire.errors import ErrorCode


@pytest.fixture
def group() -> GroupDriver:
    driver = GroupDriver()
    driver.gather(2, static=True)
    return driver


def test_an_instance_that_comes_back_goes_on_without_a_rebalance(group: GroupDriver) -> None:
    group.join("back", instance="i2")
    assert group.state.name == GroupState.STABLE.name
    group.commit()
    answer = group.joined("back")
    assert (answer.error, answer.member_id, answer.generation_id) == (ErrorCode.NONE, "m3", 2)
    group.sync("s", "m3", 2, instance="i2")
    assert group.synced("s").assignment == b"m2"


def test_it_is_answered_only_when_its_new_id_is_written(group: GroupDriver) -> None:
    group.join("back", instance="i2")
    assert "back" not in group.answers
    group.commit()
    assert group.logged is not None
    members = decode_group_value(group.logged).members
    assert [(each.group_instance_id, each.member_id) for each in members] == [
        ("i1", "m1"),
        ("i2", "m3"),
    ]


def test_the_process_before_it_is_fenced(group: GroupDriver) -> None:
    """G3."""
    group.join("back", instance="i2")
    group.commit()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert group.heartbeat("m2", 2, "i2") is fenced
    assert group.check_commit("m2", 2, "i2") is fenced
    group.sync("s", "m2", 2, instance="i2")
    group.join("j", "m2", instance="i2")
    assert (group.synced("s").error, group.joined("j").error) == (fenced, fenced)
    assert group.leave(("m2", "i2")) == [fenced]
    assert group.heartbeat("m2", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state.name == GroupState.STABLE.name


def test_another_coordinator_fences_it_too(group: GroupDriver) -> None:
    group.join("back", instance="i2")
    group.commit()
    other = group.reload()
    assert other.heartbeat("m2", 2, "i2") is ErrorCode.FENCED_INSTANCE_ID
    assert other.heartbeat("m3", 2, "i2") is ErrorCode.NONE


def test_a_parked_request_of_the_process_before_it_is_fenced(group: GroupDriver) -> None:
    group.join("old", "m2", instance="i2", protocols=(("range", b"new"),))
    group.join("back", instance="i2")
    assert group.joined("old").error is ErrorCode.FENCED_INSTANCE_ID
    group.join("a", "m1", instance="i1")
    assert group.joined("back").error is ErrorCode.NONE
    assert {each.member_id for each in group.joined("a").members} == {"m1", "m3"}


def test_a_leader_that_comes_back_is_told_that_it_need_not_assign(group: GroupDriver) -> None:
    group.join("back", instance="i1", skips=True)
    group.commit()
    answer = group.joined("back")
    assert answer.skip_assignment
    assert answer.leader == answer.member_id == "m3"
    assert {each.member_id for each in answer.members} == {"m3", "m2"}


def test_an_old_client_that_led_takes_itself_for_a_follower(group: GroupDriver) -> None:
    group.join("back", instance="i1")
    group.commit()
    answer = group.joined("back")
    assert (answer.leader, answer.members, answer.skip_assignment) == ("m1", (), False)
    assert group.group.leader == "m3"


def test_a_follower_that_comes_back_is_told_who_leads(group: GroupDriver) -> None:
    group.join("back", instance="i2", skips=True)
    group.commit()
    answer = group.joined("back")
    assert (answer.leader, answer.members, answer.skip_assignment) == ("m1", (), False)


def test_an_instance_that_changes_the_protocol_makes_the_group_rebalance() -> None:
    group = GroupDriver()
    both = (("range", b""), ("sticky", b""))
    group.gather(1, static=True, protocols=both)
    group.join("back", instance="i1", protocols=(("sticky", b""),))
    assert group.joined("back").generation_id == 2
    assert group.joined("back").protocol_name == "sticky"


def test_an_instance_that_reads_other_topics_makes_the_group_rebalance() -> None:
    group = GroupDriver()
    group.gather(1, static=True, protocols=(("range", subscription("t")),))
    group.join("same", instance="i1", protocols=(("range", subscription("t") + b"more"),))
    group.commit()
    assert group.joined("same").generation_id == 1
    group.join("other", instance="i1", protocols=(("range", subscription("t", "u")),))
    assert group.joined("other").generation_id == 2


def test_an_instance_that_comes_back_in_the_middle_makes_the_group_begin_again(
    group: GroupDriver,
) -> None:
    group.join("a", "m1", instance="i1", protocols=(("range", b"x"),))
    group.join("b", "m2", instance="i2", protocols=(("range", b"x"),))
    group.sync("s", "m1", 3, {"m1": b"p0", "m2": b"p1"}, instance="i1")
    group.join("back", instance="i2")
    assert group.synced("s").error is ErrorCode.REBALANCE_IN_PROGRESS
    group.join("a2", "m1", instance="i1")
    assert group.joined("back").generation_id == 4


def test_an_instance_that_is_away_keeps_its_place_for_its_session(group: GroupDriver) -> None:
    group.pass_time(5_000)
    assert group.heartbeat("m1", 2, "i1") is ErrorCode.NONE
    group.pass_time(4_999)
    assert group.state.name == GroupState.STABLE.name
    group.pass_time(1)
    assert group.state.name == GroupState.PREPARING_REBALANCE.name


def test_a_rebalance_does_not_remove_an_instance_that_is_away() -> None:
    group = GroupDriver()
    group.gather(2, static=True, session_ms=300_000, rebalance_ms=20_000)
    group.join("a", "m1", instance="i1", session_ms=300_000, rebalance_ms=20_000)
    group.pass_time(20_000)
    assert {each.member_id for each in group.joined("a").members} == {"m1", "m2"}


def test_a_group_of_instances_that_are_all_away_waits_for_them() -> None:
    group = GroupDriver()
    group.gather(1, static=True, session_ms=100_000, rebalance_ms=20_000)
    group.join("a", "m1", instance="i1", protocols=(("range", b"x"),), session_ms=100_000)
    group.join("b", needs_id=True, session_ms=100_000)
    group.join("c", "m1", instance="i1", protocols=(("range", b"y"),), session_ms=100_000)
    assert group.state.name == GroupState.PREPARING_REBALANCE.name
    group.group.forget_waiter("c")
    group.pass_time(60_000)
    assert group.state.name == GroupState.PREPARING_REBALANCE.name
    group.pass_time(60_000)
    assert group.state.name == GroupState.EMPTY.name


def test_an_administrator_removes_an_instance_by_its_name(group: GroupDriver) -> None:
    assert group.leave(("", "i2"), ("", "i9")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert group.state.name == GroupState.PREPARING_REBALANCE.name
    assert group.heartbeat("m2", 2, "i2") is ErrorCode.UNKNOWN_MEMBER_ID


def test_of_two_processes_the_later_has_the_instance(group: GroupDriver) -> None:
    group.join("one", instance="i2")
    group.join("two", instance="i2")
    group.commit()
    assert group.joined("one").error is ErrorCode.FENCED_INSTANCE_ID
    assert (group.joined("two").error, group.joined("two").member_id) == (ErrorCode.NONE, "m4")


def test_two_instances_that_come_back_at_once_are_both_in_the_record(group: GroupDriver) -> None:
    group.join("one", instance="i1")
    group.join("two", instance="i2")
    group.commit()
    assert group.reload().group.describe() == group.group.describe()


def test_an_instance_removed_while_it_is_written_is_told(group: GroupDriver) -> None:
    group.join("back", instance="i2")
    group.leave(("", "i2"))
    group.commit()
    assert group.joined("back").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_whose_write_fails_comes_again(group: GroupDriver) -> None:
    group.join("back", instance="i2")
    group.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert group.joined("back").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.join("again", instance="i2")
    group.commit()
    assert group.joined("again").member_id == "m4"
    group.pass_time(5_000)
    group.commit()
    assert group.reload().group.describe() == group.group.describe()


def test_an_instance_that_waits_for_its_record_is_alive(group: GroupDriver) -> None:
    group.join("back", instance="i2", session_ms=6_000)
    for _ in range(4):
        group.pass_time(5_000)
        group.heartbeat("m1", 2, "i1")
    group.commit()
    assert group.joined("back").error is ErrorCode.NONE
    assert group.state.name == GroupState.STABLE.name


def test_a_connection_that_is_gone_before_the_record_is_written_is_not_answered(
    group: GroupDriver,
) -> None:
    group.join("back", instance="i2", session_ms=6_000)
    group.group.forget_waiter("back")
    group.commit()
    assert "back" not in group.answers
    group.pass_time(6_000)
    assert group.state.name == GroupState.PREPARING_REBALANCE.name


def test_an_instance_finds_its_place_in_a_full_group() -> None:
    group = GroupDriver(size_max=2)
    group.gather(2, static=True)
    group.join("back", instance="i2")
    group.commit()
    assert group.joined("back").error is ErrorCode.NONE


def test_another_coordinator_answers_those_who_wait_for_a_record(group: GroupDriver) -> None:
    group.join("back", instance="i2")
    group.take(group.group.fail_all(ErrorCode.NOT_COORDINATOR))
    group.commit(ErrorCode.NOT_COORDINATOR)
    assert group.joined("back").error is ErrorCode.NOT_COORDINATOR
