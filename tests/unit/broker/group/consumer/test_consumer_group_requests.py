"""Groups of KIP-848 on real logs, asked through the handlers of group APIs."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from consumer_group_driver import subscription
from group_cluster import NO_DELAY, Call, GroupCluster, lead, records_of, run
from group_protocols import consumer_of
from replica_cluster import ReplicaCluster

from fairlead_broker.group.pattern_resolution import PatternResolution
from fairlead_broker.group.records.consumer_state import ConsumerGroupState
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fairlead_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.heartbeat import HeartbeatRequest
from fairlead_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fairlead_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fairlead_wire.messages.list_groups import ListGroupsRequest
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

Story = Callable[[GroupCluster], Coroutine[Any, Any, None]]


def play(story: Story, directory: Path, *, size: int = 1, **settings: Any) -> None:
    settings = NO_DELAY | {"group_consumer_assignment_interval_ms": "0"} | settings

    async def begin() -> None:
        async with ReplicaCluster(directory, size=size, **settings) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await story(groups)

    run(begin())


def heartbeat(member_id: str = "m", epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    """A request; one that joins says everything that it has to."""
    if epoch == 0:
        fields = {
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        } | fields
    return ConsumerGroupHeartbeatRequest(
        group_id=fields.pop("group_id", "g"), member_id=member_id, member_epoch=epoch, **fields
    )


async def beat(groups: GroupCluster, *args: Any, version: int = 1, **fields: Any) -> Any:
    broker_id = fields.pop("broker_id", 1)
    return await groups.ask(heartbeat(*args, **fields), version, broker_id=broker_id)


async def described(groups: GroupCluster, group_id: str = "g", **options: Any) -> Any:
    (group,) = (await groups.ask(ConsumerGroupDescribeRequest([group_id]), 1, **options)).groups
    return group


def classic_join(
    groups: GroupCluster, member_id: str = "", *, rebalance_timeout_ms: int = 10_000
) -> Call:
    metadata = subscription("t", owned={})
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", metadata)],
    )
    return groups.call(request, 3)


async def classic_group(groups: GroupCluster, **options: Any) -> tuple[str, int]:
    """A stable group of one member, which has all of `t`."""
    join = classic_join(groups, **options)
    await groups.cluster.until(lambda: join.reply is not None)
    member_id, generation = join.reply.member_id, join.reply.generation_id
    assignment = b"\0\1\0\0\0\1\0\1t\0\0\0\4" + b"".join(
        each.to_bytes(4, "big") for each in range(4)
    )
    parts = [SyncGroupRequestAssignment(member_id, assignment + b"\xff\xff\xff\xff")]
    request = SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member_id, assignments=parts
    )
    assert (await groups.ask(request, 3)).error_code == 0
    return member_id, generation


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"group_id": ""}, 1),
        ({"member_id": ""}, 1),
        ({"member_id": "", "epoch": 1}, 0),
        ({"member_id": "", "epoch": -1}, 0),
        ({"epoch": -3}, 1),
        ({"epoch": -2}, 1),
        ({"instance_id": ""}, 1),
        ({"rack_id": ""}, 1),
        ({"rebalance_timeout_ms": -1}, 1),
        ({"topic_partitions": None}, 1),
        ({"topic_partitions": [RequestTopicPartitions(bytes(16), [0])]}, 1),
        ({"subscribed_topic_names": None}, 1),
        ({"subscribed_topic_names": ["n" * 30_000] * 40}, 1),
        ({"subscribed_topic_names": [f"{each:x}" for each in range(10_001)]}, 1),
        (
            {
                "epoch": 1,
                "topic_partitions": [RequestTopicPartitions(bytes(16), [*range(50_001)])] * 2,
            },
            1,
        ),
    ],
)
def test_what_makes_no_sense_is_an_invalid_request(
    fields: dict[str, Any], version: int, tmp_path: Path
) -> None:
    async def story(groups: GroupCluster) -> None:
        reply = await beat(
            groups, fields.pop("member_id", "m"), fields.pop("epoch", 0), version=version, **fields
        )
        assert reply.error_code == ErrorCode.INVALID_REQUEST
        assert reply.error_message
        assert groups.coordinator().groups == {}

    play(story, tmp_path)


def test_a_member_lives_and_is_shown(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        joined = await beat(groups, rack_id="r")
        assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
        assert joined.heartbeat_interval_ms == 5_000
        (topic,) = joined.assignment.topic_partitions
        assert topic.partitions == [0, 1, 2, 3]
        told = await beat(groups, "m", 2)
        assert (told.error_code, told.assignment) == (0, None)
        group = await described(groups)
        assert (group.error_code, group.group_state, group.assignor_name) == (
            0,
            "Stable",
            "uniform",
        )
        assert (group.group_epoch, group.assignment_epoch) == (2, 2)
        (member,) = group.members
        assert (member.member_id, member.member_epoch, member.member_type) == ("m", 2, 1)
        assert (member.rack_id, member.client_host) == ("r", "/10.0.0.7")
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "")
        for assignment in (member.assignment, member.target_assignment):
            (topic,) = assignment.topic_partitions
            assert (topic.topic_name, topic.partitions) == ("t", [0, 1, 2, 3])
        for version, state, error in (
            (5, "Dead", ErrorCode.NONE),
            (6, "Dead", ErrorCode.GROUP_ID_NOT_FOUND),
        ):
            (shown,) = groups.call(DescribeGroupsRequest(["g"]), version).reply.groups
            assert (shown.group_state, shown.error_code) == (state, error)
        for types, names in ((["Consumer"], ["g"]), (["classic"], []), ([], ["g"])):
            listed = groups.call(ListGroupsRequest(types_filter=types), 5).reply.groups
            assert [each.group_id for each in listed] == names
        (listed,) = groups.call(ListGroupsRequest(states_filter=["stable"]), 5).reply.groups
        assert (listed.group_type, listed.protocol_type) == ("consumer", "consumer")

    play(story, tmp_path)


def test_who_subscribes_to_nothing_may_say_so_by_an_empty_pattern(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        joined = await beat(groups, subscribed_topic_names=None, subscribed_topic_regex="")
        assert (joined.error_code, joined.assignment.topic_partitions) == (0, [])

    play(story, tmp_path)


def test_what_a_member_has_yet_to_give_back_is_shown_as_its_own(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        first = await beat(groups)
        await beat(groups, "n")
        owned = [
            RequestTopicPartitions(each.topic_id, each.partitions)
            for each in first.assignment.topic_partitions
        ]
        await beat(groups, "m", 2, topic_partitions=owned)
        members = {each.member_id: each for each in (await described(groups)).members}
        (topic,) = members["m"].assignment.topic_partitions
        assert topic.partitions == [0, 1, 2, 3]
        (topic,) = members["m"].target_assignment.topic_partitions
        assert len(topic.partitions) == 2

    play(story, tmp_path)


def test_the_broker_makes_an_id_for_who_has_none(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        first, second = await beat(groups, "", version=0), await beat(groups, "", version=0)
        assert first.member_id != second.member_id
        assert len(first.member_id) == 22

    play(story, tmp_path)


def test_groups_of_another_kind_and_none_are_not_found(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        assert (await beat(groups, "m", 3)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await described(groups)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await described(groups, "")).error_code == ErrorCode.INVALID_GROUP_ID
        await classic_group(groups)
        assert (await beat(groups, "m", 3)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await described(groups)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(story, tmp_path)


def test_the_protocol_may_be_switched_off(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        assert (await beat(groups)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await described(groups)).error_code == ErrorCode.UNSUPPORTED_VERSION

    play(story, tmp_path, group_coordinator_rebalance_protocols="classic")


def test_the_feature_is_told(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        reply = await groups.ask(request, 4)
        levels = {each.name: each.max_version_level for each in reply.finalized_features}
        assert levels["group.version"] == 1

    play(story, tmp_path)


def test_another_coordinator_goes_on_with_the_same_epochs(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        await beat(groups)
        await beat(groups, "n")
        before = consumer_of(groups.coordinator().groups["g"]).members.speculative.committed
        await lead(groups.cluster, 2)
        await groups.ready(2)
        after = consumer_of(groups.coordinator(2).groups["g"]).members.speculative.committed
        for name in ConsumerGroupState.__slots__:
            assert getattr(before, name) == getattr(after, name), name
        assert (await beat(groups, "m", 2)).error_code == ErrorCode.NOT_COORDINATOR
        told = await beat(groups, "m", 2, broker_id=2, topic_partitions=[])
        assert (told.error_code, told.member_epoch) == (0, 3)

    play(story, tmp_path, size=3)


def test_who_waits_is_told_of_another_coordinator(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        call = groups.call(heartbeat(), 1)
        leave = groups.call(LeaveGroupRequest("g", members=[MemberIdentity("m")]), 3)
        assert call.reply is leave.reply is None
        await lead(groups.cluster, 2)
        assert cast("Any", call).reply.error_code == ErrorCode.NOT_COORDINATOR
        assert cast("Any", leave).reply.error_code == ErrorCode.NOT_COORDINATOR
        assert groups.coordinator().parked_count == 0

    play(story, tmp_path, size=3)


def test_an_administrator_removes_members_by_instance_and_by_id(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        await beat(groups, "m", instance_id="i")
        await beat(groups, "n")
        members = [MemberIdentity("", "i"), MemberIdentity("n"), MemberIdentity("o")]
        left = (await groups.ask(LeaveGroupRequest("g", members=members), 3)).members
        assert [each.error_code for each in left] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
        assert (await described(groups)).group_state == "Empty"
        assert groups.coordinator().memory.total_bytes == 0

    play(story, tmp_path)


def test_offsets_of_members_and_from_outside(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        async def commit(epoch: int, version: int, member_id: str = "m") -> int:
            slot = OffsetCommitRequestPartition(0, 7, -1, None)
            request = OffsetCommitRequest(
                group_id="g",
                member_id=member_id,
                generation_id_or_member_epoch=epoch,
                topics=[OffsetCommitRequestTopic(name="t", partitions=[slot])],
            )
            reply = await groups.ask(request, version)
            return int(reply.topics[0].partitions[0].error_code)

        def fetch(member_id: str | None, epoch: int) -> int:
            topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            asked = OffsetFetchRequestGroup("g", member_id, epoch, topics)
            (group,) = groups.call(OffsetFetchRequest(groups=[asked]), 9).reply.groups
            return int(group.error_code)

        assert await commit(3, 9) == ErrorCode.GROUP_ID_NOT_FOUND
        await beat(groups)
        assert await commit(2, 9) == ErrorCode.NONE
        assert await commit(2, 8) == ErrorCode.UNSUPPORTED_VERSION
        assert await commit(1, 9) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(3, 9) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(-1, 9, "") == ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.offset("g") == 7
        assert fetch("m", 2) == fetch(None, -1) == 0
        assert fetch("m", 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert fetch("n", 2) == ErrorCode.UNKNOWN_MEMBER_ID
        delete = OffsetDeleteRequest(
            "g", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
        )
        (topic,) = (await groups.ask(delete, 0)).topics
        assert topic.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        (refused,) = (await groups.ask(DeleteGroupsRequest(["g"]), 1)).results
        assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
        await beat(groups, "m", -1)
        assert await groups.committed("g", 9) is ErrorCode.NONE
        (deleted,) = (await groups.ask(DeleteGroupsRequest(["g"]), 1)).results
        assert deleted.error_code == ErrorCode.NONE
        assert "g" not in groups.coordinator().groups
        # Nothing of it comes back with another coordinator.
        await groups.cluster.stop(1)
        await groups.cluster.start(1)
        await groups.ready()
        assert "g" not in groups.coordinator().groups

    play(story, tmp_path)


def test_a_classic_group_with_members_is_joined_and_goes_back(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        member_id, generation = await classic_group(groups)
        assert await groups.committed("g", 5, member=(member_id, generation)) is ErrorCode.NONE
        joined = await beat(groups)
        assert (joined.error_code, joined.member_epoch) == (0, generation + 1)
        group = await described(groups)
        assert {each.member_type for each in group.members} == {0, 1}
        beaten = groups.call(HeartbeatRequest("g", generation, member_id), 3).reply
        assert beaten.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        join = classic_join(groups, member_id)
        await groups.cluster.until(lambda: join.reply is not None)
        assert (join.reply.error_code, join.reply.generation_id) == (0, generation + 1)
        assert groups.offset("g") == 5
        await beat(groups, "m", -1)
        (listed,) = groups.call(ListGroupsRequest(), 5).reply.groups
        assert (listed.group_type, listed.group_state) == ("classic", "PreparingRebalance")
        beaten = groups.call(HeartbeatRequest("g", generation + 1, member_id), 3).reply
        assert beaten.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert await groups.committed("g", 6, member=(member_id, generation + 1)) is ErrorCode.NONE
        await groups.cluster.stop(1)
        await groups.cluster.start(1)
        await groups.ready()
        # The next coordinator, too, knows that what the other member had is yet to be assigned.
        (listed,) = groups.call(ListGroupsRequest(), 5).reply.groups
        assert (listed.group_type, listed.group_state) == ("classic", "PreparingRebalance")
        assert groups.offset("g") == 6
        join = classic_join(groups, member_id)
        await groups.cluster.until(lambda: join.reply is not None)
        assert (join.reply.error_code, join.reply.generation_id) == (0, generation + 2)

    play(story, tmp_path)


def test_who_is_told_to_join_again_by_a_heartbeat_has_its_rebalance_timeout_for_it(
    tmp_path: Path,
) -> None:
    """It may be much shorter than the session, which was all that the timer knew of."""

    async def story(groups: GroupCluster) -> None:
        member_id, generation = await classic_group(groups, rebalance_timeout_ms=300)
        await beat(groups)
        group, clock = groups.coordinator().groups["g"], groups.coordinator().clock

        def left_ms() -> int:
            return 0 if group.scheduled_ms is None else group.scheduled_ms - clock.monotonic_ms()

        await groups.cluster.until(lambda: left_ms() > 3_000)
        beaten = groups.call(HeartbeatRequest("g", generation, member_id), 3).reply
        assert beaten.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert left_ms() <= 300

    play(story, tmp_path)


def test_who_waits_in_a_classic_group_joins_the_other(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        member_id, _ = await classic_group(groups)
        waiting = classic_join(groups)
        assert waiting.reply is None
        assert (await beat(groups)).error_code == 0
        assert cast("Any", waiting).reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        assert member_id in {each.member_id for each in (await described(groups)).members}

    play(story, tmp_path)


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_group_that_may_not_change_stays_what_it_is(policy: str, tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        member_id, generation = await classic_group(groups)
        assert (await beat(groups)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        beaten = groups.call(HeartbeatRequest("g", generation, member_id), 3).reply
        assert beaten.error_code == ErrorCode.NONE
        assert len(records_of(groups.cluster)) == 1

    play(story, tmp_path, group_consumer_migration_policy=policy)


@pytest.mark.parametrize("policy", ["bidirectional", "disabled"])
def test_a_group_without_members_speaks_what_its_first_member_speaks(
    policy: str, tmp_path: Path
) -> None:
    async def story(groups: GroupCluster) -> None:
        member_id, _ = await classic_group(groups)
        assert await groups.committed("g", 5, member=(member_id, 1)) is ErrorCode.NONE
        await groups.ask(LeaveGroupRequest("g", members=[MemberIdentity(member_id)]), 3)
        assert (await beat(groups)).member_epoch == 2
        await beat(groups, "m", -1)
        joined = classic_join(groups, "m")
        assert joined.reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await classic_group(groups)
        await groups.cluster.stop(1)
        await groups.cluster.start(1)
        await groups.ready()
        (listed,) = groups.call(ListGroupsRequest(), 5).reply.groups
        assert (listed.group_type, listed.group_state) == ("classic", "Stable")
        assert groups.offset("g") == 5
        last = {
            record.key: record.value for batch in records_of(groups.cluster) for record in batch
        }
        left = {key[:2] for key, value in last.items() if value is not None and key}
        assert left == {b"\0\1", b"\0\2"}

    play(story, tmp_path, group_consumer_migration_policy=policy)


def test_a_change_that_cannot_be_written_is_taken_back(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        member_id, generation = await classic_group(groups)
        coordinator = groups.coordinator()
        classic = coordinator.groups["g"].protocol
        log = groups.cluster.members[1].broker.partitions["__consumer_offsets", 0].log
        config, log.config = log.config, replace(log.config, max_message_bytes=300)
        assert (await beat(groups)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        log.config = config
        assert coordinator.groups["g"].protocol is classic
        assert coordinator.groups["g"].formers == []
        beaten = groups.call(HeartbeatRequest("g", generation, member_id), 3).reply
        assert beaten.error_code == ErrorCode.NONE
        assert (await beat(groups)).error_code == ErrorCode.NONE

    play(story, tmp_path)


def test_a_pattern_is_resolved_on_the_broker(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        wish: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|u.*"}
        joined = await beat(groups, **wish)
        assert joined.assignment.topic_partitions == []
        group = consumer_of(groups.coordinator().groups["g"])
        await groups.cluster.until(lambda: bool(group.state.regular_expressions))
        told = await beat(groups, "m", joined.member_epoch, topic_partitions=[])
        (topic,) = told.assignment.topic_partitions
        assert topic.partitions == [0, 1, 2, 3]
        assert (await described(groups, "nobodys")).error_message == "Group nobodys not found."
        wish = {"subscribed_topic_names": ["t"], "server_assignor": "best"}
        assert (await beat(groups, "o", **wish)).error_message == (
            "ServerAssignor best is not supported. Supported assignors: uniform, range."
        )
        assert (await beat(groups, "o", group_id="")).error_message == "GroupId can't be empty."
        bad = await beat(groups, "n", subscribed_topic_regex="(")
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert bad.error_message

    play(story, tmp_path)


def test_a_pattern_is_resolved_after_a_change_of_protocol_that_was_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up of before ended while the group spoke the other protocol."""
    monkeypatch.setattr("fairlead_broker.group.consumer.regular_expressions.PAUSE_MS", 0)

    async def story(groups: GroupCluster) -> None:
        may_end = asyncio.Event()
        ended = asyncio.Event()

        async def resolve(*_: Any) -> dict[str, frozenset[str]]:
            await may_end.wait()
            asyncio.get_running_loop().call_soon(ended.set)
            return {"t|u.*": frozenset({"t"})}

        monkeypatch.setattr(PatternResolution, "resolve", resolve)
        wish: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|u.*"}
        joined = await beat(groups, **wish)
        coordinator = groups.coordinator()
        group = coordinator.groups["g"]
        spoken, group.protocol = group.protocol, coordinator.build_protocol("g")
        may_end.set()
        await ended.wait()
        group.protocol = spoken
        assert not consumer_of(group).state.regular_expressions
        await beat(groups, "m", joined.member_epoch, topic_partitions=[])
        await groups.cluster.until(lambda: bool(consumer_of(group).state.regular_expressions))

    play(story, tmp_path)


def test_a_silent_member_is_fenced_by_the_timer(tmp_path: Path) -> None:
    async def story(groups: GroupCluster) -> None:
        await beat(groups)
        group = consumer_of(groups.coordinator().groups["g"])
        await groups.cluster.until(lambda: group.state_name == "Empty")

    play(
        story,
        tmp_path,
        group_consumer_min_session_timeout_ms="300",
        group_consumer_session_timeout_ms="300",
        group_consumer_min_heartbeat_interval_ms="100",
        group_consumer_heartbeat_interval_ms="100",
    )


def test_members_that_fall_silent_at_once_are_fenced_though_they_are_many(tmp_path: Path) -> None:
    """The records that end all of them do not fit into one batch."""

    async def story(groups: GroupCluster) -> None:
        for number in range(40):
            member_id = f"{number:02}" + 10_000 * "m"
            assert (await beat(groups, member_id, subscribed_topic_names=[])).error_code == 0
        # After a change of coordinators all sessions begin at the same time.
        await groups.cluster.stop(1)
        await groups.cluster.start(1)
        await groups.ready()
        group = consumer_of(groups.coordinator().groups["g"])
        assert len(group.state.members) == 40
        await groups.cluster.until(lambda: group.state_name == "Empty")

    play(
        story,
        tmp_path,
        group_consumer_min_session_timeout_ms="2000",
        group_consumer_session_timeout_ms="2000",
        group_consumer_min_heartbeat_interval_ms="100",
        group_consumer_heartbeat_interval_ms="100",
    )


def test_joins_beyond_the_memory_of_groups_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.group.group_memory.GROUP_MEMBERS_BYTES_MAX", 5_000)

    async def story(groups: GroupCluster) -> None:
        assert (await beat(groups)).error_code == 0
        assert groups.coordinator().memory.total_bytes > 2_000
        refused = await beat(groups, "n", subscribed_topic_names=["x" * 3_000])
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(story, tmp_path)
