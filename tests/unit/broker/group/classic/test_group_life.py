"""LeaveGroup, the end of a group, another coordinator, and what others ask."""

from __future__ import annotations

import pytest
from group_driver import WALL_MS, GroupDriver, subscription

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.group_types import GroupState
from fairlead_broker.group.records.classic_records import decode_group_value, encode_group_value
from fairlead_wire.errors import ErrorCode


def test_who_leaves_makes_the_others_rebalance(group: GroupDriver) -> None:
    first, second = group.gather(2)
    assert group.leave((first, None)) == [ErrorCode.NONE]
    assert group.state.name == GroupState.PREPARING_REBALANCE.name
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
    """G9."""
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
    assert group.state.name == GroupState.STABLE.name


def test_who_leaves_while_it_waits_is_answered(group: GroupDriver) -> None:
    first, second = group.gather(2)
    group.join("b", second, protocols=(("range", b"new"),))
    group.leave((second, None))
    assert group.joined("b").error is ErrorCode.UNKNOWN_MEMBER_ID
    group.join("a", first)
    assert len(group.joined("a").members) == 1


def test_a_request_to_leave_may_name_nobody(group: GroupDriver) -> None:
    group.gather(1)
    assert group.leave() == []
    assert group.state.name == GroupState.STABLE.name


def test_only_an_empty_group_is_deleted(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    error, effects = group.group.delete()
    assert (error, effects.writes) == (ErrorCode.NON_EMPTY_GROUP, [])
    group.leave((first, None))
    group.commit()
    error, effects = group.group.delete()
    assert (error, [write.records[0][1] for write in effects.writes]) == (
        ErrorCode.NONE,
        [None],
    )
    assert group.state.name == GroupState.DEAD.name
    assert group.group.delete()[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.group.next_deadline_ms() is None


def test_a_group_whose_tombstone_fails_lives_on(group: GroupDriver) -> None:
    _, effects = group.group.delete()
    group.take(effects)
    group.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert group.state.name == GroupState.EMPTY.name


def test_a_dead_group_answers_nothing_else(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    group.take(group.group.fail_all(ErrorCode.NOT_COORDINATOR))
    group.sync("s", first, 1)
    assert group.synced("s").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.heartbeat(first, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.check_commit(first, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group.leave((first, None)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert group.group.tick(now_ms=10**9, now_wall_ms=0).writes == []


def test_everybody_who_waits_learns_of_another_coordinator(pair: GroupDriver) -> None:
    pair.sync("sb", "m1", 2, {})
    pair.sync("sa", "m2", 2)
    pair.take(pair.group.fail_all(ErrorCode.NOT_COORDINATOR))
    assert {pair.synced(each).error for each in ("sa", "sb")} == {ErrorCode.NOT_COORDINATOR}
    pair.commit()
    assert pair.state.name == GroupState.DEAD.name


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
    assert other.state.name == GroupState.STABLE.name
    other.pass_time(1)
    assert other.state.name == GroupState.EMPTY.name


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


def test_subscribed_topics_are_those_of_all_members(group: GroupDriver) -> None:
    group.join("a", protocols=(("range", subscription("t", "u")),))
    group.join("b", protocols=(("range", subscription("u", "ü")),))
    assert group.group.subscribed_topics() == frozenset({"t", "u", "ü"})


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


def test_only_a_stable_group_tells_what_its_members_will_go_on_reading(group: GroupDriver) -> None:
    """Expiry asks (R21); in a rebalance whoever reads a topic may be about to join."""
    protocols = (("range", subscription("t")),)
    assert group.group.subscriptions().is_empty
    group.gather(1, protocols=protocols)
    assert group.group.subscriptions().topics == frozenset({"t"})
    group.join("b", protocols=protocols)
    assert group.state.name == GroupState.PREPARING_REBALANCE.name
    assert group.group.subscriptions().topics is None
    assert not group.group.subscriptions().is_empty


def test_a_group_is_described_with_what_its_members_have(group: GroupDriver) -> None:
    (first,) = group.gather(1)
    described = group.group.describe()
    assert (described.state_name, described.protocol_type, described.protocol_name) == (
        "Stable",
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
    assert (described.state_name, described.protocol_name) == ("PreparingRebalance", "")
    # What it was given it may still read, and who looks at lag wants to know it.
    assert [(each.metadata, each.assignment) for each in described.members] == [
        (b"", b"m1"),
        (b"", b""),
    ]
    group.join("a", first)
    described = group.group.describe()
    assert described.state_name == "CompletingRebalance"
    assert [each.assignment for each in described.members] == [b"m1", b""]
