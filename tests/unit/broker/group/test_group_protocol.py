"""A group of another protocol than the classic one, asked through the handlers of group APIs."""

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from group_cluster import GroupCluster, LaterCall, commit_code, lead, records_of, run
from other_protocol import KEYS, OtherProtocol
from replica_cluster import ReplicaCluster

from fairlead_broker.group.removal import expire
from fairlead_broker.handlers import in_turns
from fairlead_broker.http.group_families import expose_groups, measure_groups
from fairlead_broker.measures.exposition import Exposition
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.heartbeat import HeartbeatRequest
from fairlead_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fairlead_wire.messages.list_groups import ListGroupsRequest
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fairlead_wire.messages.sync_group import SyncGroupRequest


def play(
    story: Callable[[GroupCluster, OtherProtocol], Coroutine[Any, Any, None]],
    directory: Path,
    *,
    size: int = 1,
) -> None:
    """With a group `other` that has the member `m` in epoch 5."""

    async def begin() -> None:
        async with ReplicaCluster(directory, size=size) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            protocol = OtherProtocol("m")
            group = groups.coordinator().add("other", protocol)
            groups.coordinator().memory.count(group)
            await story(groups, protocol)

    run(begin())


def test_very_many_groups_are_listed_while_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 took the loop two thirds of a second."""
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 499)

    async def story(groups: GroupCluster, _: OtherProtocol) -> None:
        broker = groups.cluster.members[1].broker
        coordinator = groups.coordinator()
        for number in range(499):
            coordinator.add(f"g{number}", OtherProtocol())
        steps: list[None] = []

        async def noted(taken: Iterator[None], clock: Any) -> None:
            steps.extend(taken)
            # What is deleted before it is its turn is not told.
            coordinator.groups["other"].is_gone = True

        monkeypatch.setattr(in_turns, "in_slices", noted)
        for told in (500, 499):
            call = LaterCall(broker, ListGroupsRequest(), 5)
            assert call.reply is None
            answer = await call.answer()
            assert len(answer.message.groups) == told
            assert len(steps) == 3 + 5
            steps.clear()

    play(story, tmp_path)


def test_it_is_described_listed_and_counted(tmp_path: Path) -> None:
    async def story(groups: GroupCluster, _: OtherProtocol) -> None:
        assert await groups.committed("simple", 1) is ErrorCode.NONE
        (described,) = groups.call(DescribeGroupsRequest(["other"]), 5).reply.groups
        assert (described.group_state, described.protocol_data) == ("Reconciling", "other")
        assert [each.member_id for each in described.members] == ["m"]
        for request, names in (
            (ListGroupsRequest(), {"other", "simple"}),
            (ListGroupsRequest(types_filter=["Other"]), {"other"}),
            (ListGroupsRequest(types_filter=["classic"]), {"simple"}),
            (ListGroupsRequest(states_filter=["reconciling"]), {"other"}),
            (ListGroupsRequest(states_filter=["Stable"]), set()),
        ):
            listed = groups.call(request, 5).reply.groups
            assert {each.group_id for each in listed} == names
        (other,) = groups.call(ListGroupsRequest(types_filter=["other"]), 5).reply.groups
        assert (other.group_type, other.protocol_type, other.group_state) == (
            "other",
            "consumer",
            "Reconciling",
        )
        broker = groups.cluster.members[1].broker
        sums = await measure_groups(broker)
        assert (sums.classic, sums.consumer) == ({"Empty": 1}, {"Reconciling": 1})
        page = Exposition()
        expose_groups(page, broker, sums)
        told = dict(line.rsplit(" ", 1) for line in page.text().splitlines())
        manager = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        metrics = "kafka_server_group_coordinator_metrics"
        assert (told[manager], told[f"{manager}empty"], told[f"{manager}stable"]) == ("2", "1", "0")
        assert told[f'{metrics}_group_count{{protocol="consumer"}}'] == "1"
        assert told[f'{metrics}_group_count{{protocol="classic"}}'] == "1"
        assert told[f'{metrics}_consumer_group_count{{state="reconciling"}}'] == "1"
        assert told[f'{metrics}_consumer_group_count{{state="assigning"}}'] == "0"
        assert groups.coordinator().memory.total_bytes == 1_000

    play(story, tmp_path)


def test_its_members_commit_by_their_epoch(tmp_path: Path) -> None:
    async def story(groups: GroupCluster, protocol: OtherProtocol) -> None:
        assert await groups.committed("other", 7, member=("m", 5)) is ErrorCode.NONE
        assert await groups.committed("other", 8, member=("m", 4)) is ErrorCode.STALE_MEMBER_EPOCH
        assert await groups.committed("other", 8, member=("n", 5)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await groups.committed("other", 8) is ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.offset("other") == 7

    play(story, tmp_path)


def test_requests_of_the_classic_protocol_are_its_own_to_refuse(tmp_path: Path) -> None:
    async def story(groups: GroupCluster, protocol: OtherProtocol) -> None:
        join = groups.join("other")
        assert join.reply.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        for request in (
            HeartbeatRequest("other", 5, "m"),
            SyncGroupRequest(group_id="other", generation_id=5, member_id="m"),
        ):
            assert groups.call(request, 3).reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        leave = LeaveGroupRequest("other", members=[MemberIdentity("m"), MemberIdentity("n")])
        left = groups.call(leave, 3).reply.members
        assert [each.error_code for each in left] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
        assert protocol.is_empty
        assert groups.coordinator().memory.total_bytes == 0

    play(story, tmp_path)


def test_its_offsets_stay_while_they_are_in_use(tmp_path: Path) -> None:
    async def story(groups: GroupCluster, protocol: OtherProtocol) -> None:
        assert await groups.committed("other", 7, member=("m", 5)) is ErrorCode.NONE
        coordinator = groups.coordinator()
        group = coordinator.groups["other"]
        late_ms = groups.cluster.members[1].broker.clock.now_ms() + 10_000
        expire(coordinator, group, now_ms=late_ms, retention_ms=1_000)
        topics = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
        request = OffsetDeleteRequest("other", topics)
        (topic,) = (await groups.ask(request, 0)).topics
        assert topic.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert groups.offset("other") == 7
        protocol.members.clear()
        (topic,) = (await groups.ask(request, 0)).topics
        assert topic.partitions[0].error_code == ErrorCode.NONE
        assert groups.offset("other") == -1

    play(story, tmp_path)


def test_it_is_deleted_with_its_offsets_and_all_of_its_records(tmp_path: Path) -> None:
    async def story(groups: GroupCluster, protocol: OtherProtocol) -> None:
        assert await groups.committed("other", 7, member=("m", 5)) is ErrorCode.NONE
        request = DeleteGroupsRequest(["other"])
        (refused,) = (await groups.ask(request, 1)).results
        assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
        protocol.members.clear()
        (deleted,) = (await groups.ask(request, 1)).results
        assert deleted.error_code == ErrorCode.NONE
        assert protocol.outcomes == [ErrorCode.NONE]
        assert "other" not in groups.coordinator().groups
        last = records_of(groups.cluster)[-1]
        assert [record.value for record in last] == [None] * 3
        assert [record.key for record in last[1:]] == list(KEYS)

    play(story, tmp_path)


def test_with_another_coordinator_it_is_told_so(tmp_path: Path) -> None:
    async def story(groups: GroupCluster, protocol: OtherProtocol) -> None:
        waiting = groups.commit("other", 7, member=("m", 5))
        await lead(groups.cluster, 2)
        assert commit_code(waiting) is ErrorCode.NOT_COORDINATOR
        assert protocol.failed_with is ErrorCode.NOT_COORDINATOR
        assert groups.coordinator().groups == {}
        assert groups.coordinator().memory.total_bytes == 0

    play(story, tmp_path, size=3)
