"""JoinGroup: who may join, who leads, what is agreed on, and when everybody is answered."""

from __future__ import annotations

import pytest
from group_driver import RANGE, GroupDriver, subscription

from fairlead_broker.group.group_types import GroupState
from fairlead_broker.limits import GROUP_PENDING_MEMBERS_MAX
from fairlead_wire.errors import ErrorCode


def test_the_first_member_leads_generation_1(group: GroupDriver) -> None:
    group.join("a")
    answer = group.joined("a")
    assert (answer.error, answer.generation_id, answer.leader) == (ErrorCode.NONE, 1, "m1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.metadata) for each in answer.members] == [("m1", b"sub")]
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_an_id_must_be_come_back_with_first(group: GroupDriver) -> None:
    group.join("a", needs_id=True)
    assert group.joined("a").error is ErrorCode.MEMBER_ID_REQUIRED
    assert group.state is GroupState.EMPTY
    group.join("b", group.joined("a").member_id, needs_id=True)
    assert (group.joined("b").error, group.joined("b").member_id) == (ErrorCode.NONE, "m1")


def test_an_id_that_is_not_come_back_with_is_forgotten_after_the_session(
    group: GroupDriver,
) -> None:
    group.join("a", needs_id=True, session_ms=6_000)
    group.pass_time(5_999)
    assert group.group.pending
    group.pass_time(1)
    assert not group.group.pending
    group.join("b", "m1", needs_id=True)
    assert group.joined("b").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.group.next_deadline_ms() is None


def test_ids_handed_out_are_bounded_and_the_oldest_goes_first(group: GroupDriver) -> None:
    for number in range(GROUP_PENDING_MEMBERS_MAX + 1):
        group.join(number, needs_id=True)
    assert len(group.group.pending) == GROUP_PENDING_MEMBERS_MAX
    group.join("first", "m1")
    assert group.joined("first").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_need_no_second_round(group: GroupDriver) -> None:
    group.join("a", instance="i1", needs_id=True)
    assert group.joined("a").error is ErrorCode.NONE


def test_an_id_that_was_handed_out_belongs_to_no_instance(group: GroupDriver) -> None:
    group.join("a", needs_id=True)
    group.join("b", "m1", instance="i1")
    assert group.joined("b").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert "m1" in group.group.pending


def test_an_unknown_id_or_instance_is_refused(group: GroupDriver) -> None:
    group.join("a", "nobody")
    group.join("b", "nobody", instance="i9")
    for waiter in ("a", "b"):
        assert group.joined(waiter).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.state is GroupState.EMPTY


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", RANGE), ("consumer", ()), ("connect", RANGE), ("consumer", (("sticky", b""),))],
)
def test_a_member_that_shares_no_protocol_is_refused(
    group: GroupDriver, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    group.gather(1)
    for waiter, member_id in (("b", ""), ("c", "nobody")):
        group.join(waiter, member_id, protocol_type=protocol_type, protocols=protocols)
        assert group.joined(waiter).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (group.state, len(group.group.members)) == (GroupState.STABLE, 1)


def test_a_group_without_members_takes_any_protocol_type(group: GroupDriver) -> None:
    (member_id,) = group.gather(1)
    group.leave((member_id, None))
    group.join("b", protocol_type="connect", protocols=(("v2", b""),))
    assert group.joined("b").protocol_type == "connect"


def test_a_full_group_lets_nobody_in() -> None:
    group = GroupDriver(size_max=2)
    ids = group.gather(2)
    group.join("c")
    assert group.joined("c").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (group.state, len(group.group.members)) == (GroupState.STABLE, 2)
    assert group.heartbeat(ids[1], group.group.generation_id) is ErrorCode.NONE


def test_in_a_rebalance_the_places_go_to_who_comes_first() -> None:
    group = GroupDriver(size_max=2)
    first, second = group.gather(2)
    group.join("a", first)
    group.join("c")
    group.join("b", second)
    assert group.joined("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {each.member_id for each in group.joined("a").members} == {first, "m3"}
    assert group.heartbeat(second, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_waits_for_an_id_whose_owner_found_no_room() -> None:
    group = GroupDriver(size_max=1)
    (first,) = group.gather(1)
    group.join("b", needs_id=True)
    assert group.joined("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not group.group.pending
    group.join("a", first)
    assert group.joined("a").error is ErrorCode.NONE


def test_a_dead_group_sends_members_to_look_again(group: GroupDriver) -> None:
    group.group.delete()
    group.join("a")
    assert group.joined("a").error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_first_rebalance_waits_for_more_members() -> None:
    group = GroupDriver(delay_ms=3_000)
    group.join("a")
    group.pass_time(2_999)
    assert not group.answers
    group.pass_time(1)
    assert group.joined("a").generation_id == 1


def test_the_wait_goes_on_while_members_come() -> None:
    group = GroupDriver(delay_ms=3_000)
    group.join("a")
    group.pass_time(2_000)
    group.join("b")
    group.pass_time(3_999)
    assert not group.answers
    group.pass_time(1)
    assert [group.joined(each).generation_id for each in "ab"] == [1, 1]


def test_the_wait_ends_with_the_rebalance_timeout() -> None:
    group = GroupDriver(delay_ms=3_000)
    group.join(0, rebalance_ms=7_000)
    for number in range(1, 7):
        group.pass_time(1_000)
        group.join(number, rebalance_ms=7_000)
    assert not group.answers
    group.pass_time(1_000)
    assert len(group.answers) == 7
    assert group.now_ms == 7_000


def test_without_a_delay_nobody_waits() -> None:
    group = GroupDriver(delay_ms=0)
    group.join("other", needs_id=True)
    group.join("a")
    assert group.joined("a").generation_id == 1


def test_a_new_member_makes_the_others_join_again(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.join("b")
    assert group.state is GroupState.PREPARING_REBALANCE
    assert group.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    group.join("a", first)
    assert (group.joined("a").generation_id, group.joined("a").leader) == (2, first)
    assert len(group.joined("a").members) == 2
    assert (group.joined("b").members, group.joined("b").leader) == ((), first)


def test_members_that_do_not_come_back_in_time_are_removed(group: GroupDriver) -> None:
    first, second = group.gather(2, session_ms=300_000)
    group.join("c", rebalance_ms=20_000)
    group.join("b", second)
    group.pass_time(59_999)
    assert "b" not in group.answers
    group.pass_time(1)
    assert group.joined("b").error is ErrorCode.NONE
    assert group.group.leader in {second, "m3"}
    assert group.heartbeat(first, group.group.generation_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_handed_out(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.join("b", needs_id=True)
    group.join("a", first, protocols=(("range", b"new"),))
    assert "a" not in group.answers
    group.join("c", group.joined("b").member_id, needs_id=True)
    assert len(group.joined("a").members) == 2


def test_the_rebalance_timeout_is_that_of_the_slowest_member(group: GroupDriver) -> None:
    group.join("a", rebalance_ms=90_000)
    group.join("b", rebalance_ms=10_000)
    assert group.group.next_deadline_ms() is not None
    group.pass_time(9_999)
    group.heartbeat("m1", 1)
    group.pass_time(1)
    assert "b" not in group.answers


def test_the_protocol_most_members_like_best_wins(group: GroupDriver) -> None:
    both = (("range", b""), ("sticky", b""))
    turned = (("sticky", b""), ("range", b""))
    group.join("a", protocols=both)
    group.join("b", protocols=turned)
    group.join("c", protocols=turned)
    group.join("a2", "m1", protocols=both)
    assert {group.joined(each).protocol_name for each in ("a2", "b", "c")} == {"sticky"}


def test_only_a_protocol_that_all_support_can_win(group: GroupDriver) -> None:
    group.join("a", protocols=(("sticky", b""), ("range", b"")))
    group.join("b", protocols=RANGE)
    group.join("a2", "m1", protocols=(("sticky", b""), ("range", b"")))
    assert group.joined("b").protocol_name == "range"


def test_naming_a_protocol_twice_counts_once(group: GroupDriver) -> None:
    group.join("a", protocols=(("range", b"1"), ("range", b"2")))
    group.leave(("m1", None))
    group.join("b")
    assert group.joined("b").protocol_name == "range"


def test_a_new_leader_is_one_that_is_there(group: GroupDriver) -> None:
    first, second = group.gather(2)
    group.join("b", second, protocols=(("range", b"new"),))
    group.leave((first, None))
    assert group.joined("b").leader == second
    assert [each.member_id for each in group.joined("b").members] == [second]


def test_a_follower_that_lost_its_answer_gets_it_again(group: GroupDriver) -> None:
    _, second = group.gather(2)
    generation = group.group.generation_id
    group.join("b", second)
    assert (group.joined("b").generation_id, group.joined("b").members) == (generation, ())
    assert group.state is GroupState.STABLE


def test_a_leader_that_lost_its_answer_gets_it_again_before_it_assigns(
    group: GroupDriver,
) -> None:
    group.join("a")
    group.join("again", "m1")
    assert group.joined("again").generation_id == 1
    assert len(group.joined("again").members) == 1


def test_the_leader_of_a_stable_group_makes_it_rebalance(group: GroupDriver) -> None:
    first, _ = group.gather(2)
    group.join("a", first)
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_member_with_other_metadata_makes_the_group_rebalance(group: GroupDriver) -> None:
    _, second = group.gather(2)
    group.join("b", second, protocols=(("range", b"new"),))
    assert group.state is GroupState.PREPARING_REBALANCE


def test_a_member_with_other_metadata_ends_a_rebalance_that_is_being_completed(
    group: GroupDriver,
) -> None:
    group.join("a")
    group.sync("s", "m1", 1, {"m1": b"x"})
    group.join("b", "m1", protocols=(("range", b"new"),))
    assert group.synced("s").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.joined("b").generation_id == 2
    group.commit()
    assert group.state is GroupState.COMPLETING_REBALANCE


def test_a_second_join_takes_the_place_of_the_first(group: GroupDriver) -> None:
    first, second = group.gather(2)
    group.join("old", second, protocols=(("range", b"new"),))
    group.join("new", second, protocols=(("range", b"new"),))
    assert group.joined("old").error is ErrorCode.REBALANCE_IN_PROGRESS
    group.join("a", first)
    assert group.joined("new").error is ErrorCode.NONE


def test_a_hundred_members_share_one_generation() -> None:
    group = GroupDriver(delay_ms=3_000)
    topics = (("range", subscription("t")),)
    for number in range(100):
        group.join(number, protocols=topics)
    group.pass_time(6_000)
    assert {group.joined(number).generation_id for number in range(100)} == {1}
    assert len(group.joined(0).members) == 100
