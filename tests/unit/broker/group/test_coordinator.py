"""The coordinator of groups on real logs: who is in them, and how they are shown."""

from pathlib import Path

import pytest
from group_cluster import NO_DELAY, GroupCluster, records_of, run
from group_protocols import classic_of
from replica_cluster import ReplicaCluster

from fairlead_broker.group.classic.membership import SESSION_UNSTARTED
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fairlead_wire.messages.list_groups import ListGroupsRequest


def test_groups_are_listed_and_described(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("standalone", 1)
            member_id, _ = await groups.stable("live")
            listed = groups.call(ListGroupsRequest(), 5).reply.groups
            assert {(each.group_id, each.group_state, each.protocol_type) for each in listed} == {
                ("standalone", "Empty", ""),
                ("live", "Stable", "consumer"),
            }
            for states, types, names in [
                (["stable"], [], ["live"]),
                (["Empty", "Dead"], ["Classic"], ["standalone"]),
                ([], ["consumer"], []),
            ]:
                request = ListGroupsRequest(states_filter=states, types_filter=types)
                found = groups.call(request, 5).reply.groups
                assert [each.group_id for each in found] == names
            described = DescribeGroupsRequest(groups=["live", "standalone", "none"])
            live, standalone, missing = groups.call(described, 5).reply.groups
            (member,) = live.members
            assert (live.group_state, live.protocol_data) == ("Stable", "range")
            assert (member.member_id, member.client_host) == (member_id, "/10.0.0.7")
            assert bytes(member.member_assignment) == b"all"
            assert (standalone.group_state, standalone.error_code) == ("Empty", 0)
            assert (missing.group_state, missing.error_code) == ("Dead", 0)
            described = DescribeGroupsRequest(groups=["live", "none", "live"] * 5_000)
            found = groups.call(described, 5).reply.groups
            assert [each.group_id for each in found] == ["live", "none"], "each once"
            missing = groups.call(DescribeGroupsRequest(groups=["none"]), 6).reply.groups[0]
            assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(story())


def test_a_member_that_falls_silent_leaves_by_the_timer(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, group_min_session_timeout_ms="50", **NO_DELAY
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.stable("g", session_ms=3_000)
            group = groups.coordinator().groups["g"]
            await cluster.until(lambda: classic_of(group).state.value == "Empty")
            # Its generation is in the log, so a coordinator that comes after knows it.
            await cluster.stop(1)
            await cluster.start(1)
            await groups.ready()
            assert classic_of(groups.coordinator().groups["g"]).generation_id == 2

    run(story())


def test_whoever_is_given_an_id_and_never_comes_back_is_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, group_min_session_timeout_ms="50", **NO_DELAY
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            call = groups.join("g", session_ms=60, version=5)
            assert call.reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert call.reply.member_id.startswith("client-")
            assert "g" in groups.coordinator().groups
            await cluster.until(lambda: "g" not in groups.coordinator().groups)
            assert records_of(cluster) == []

    run(story())


def test_a_parked_member_whose_connection_closes_is_not_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, group_initial_rebalance_delay_ms="100"
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            gone, stays = groups.join("g"), groups.join("g")
            assert groups.coordinator().parked_count == 2
            gone.disconnect()
            assert groups.coordinator().parked_count == 1
            await cluster.until(lambda: stays.reply is not None)
            assert gone.reply is None
            assert groups.coordinator().parked_count == 0

    run(story())


def test_the_session_of_a_member_whose_connection_closes_begins_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.stable("g", session_ms=60_000)
            groups.join("g", session_ms=60_000).disconnect()
            members = classic_of(groups.coordinator().groups["g"]).members
            assert len(members) == 2
            await cluster.until(
                lambda: all(each.session_deadline_ms != SESSION_UNSTARTED for each in members)
            )

    run(story())


@pytest.mark.parametrize(
    ("group", "session_ms", "member_id", "code"),
    [
        ("", 10_000, "", ErrorCode.INVALID_GROUP_ID),
        ("g", 5_999, "", ErrorCode.INVALID_SESSION_TIMEOUT),
        ("g", 1_800_001, "", ErrorCode.INVALID_SESSION_TIMEOUT),
        ("g", 10_000, "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_join_that_cannot_be_makes_no_group(
    tmp_path: Path, group: str, session_ms: int, member_id: str, code: ErrorCode
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            reply = groups.join(group, member_id, session_ms=session_ms).reply
            assert (reply.error_code, reply.member_id) == (code, member_id)
            assert groups.coordinator().groups == {}

    run(story())


def test_members_leave_one_by_one_or_together(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            member_id, _ = await groups.stable("g")
            unknown = groups.call(LeaveGroupRequest("g", "nobody"), 1).reply
            assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            no_group = groups.call(LeaveGroupRequest("none", "nobody"), 0).reply
            assert no_group.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            request = LeaveGroupRequest(
                "g", members=[MemberIdentity(member_id), MemberIdentity("nobody")]
            )
            codes = [each.error_code for each in groups.call(request, 4).reply.members]
            assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
            assert classic_of(groups.coordinator().groups["g"]).state.value == "Empty"

    run(story())
