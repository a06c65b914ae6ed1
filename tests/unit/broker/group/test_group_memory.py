"""How much the members of all groups may make a coordinator hold."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from group_cluster import NO_DELAY, Call, GroupCluster, LaterCall, lead, run
from group_driver import GroupDriver
from replica_cluster import ReplicaCluster

from fairlead_broker.coordinator import slicing
from fairlead_broker.group import group_memory
from fairlead_broker.handlers.groups import offset_fetch
from fairlead_broker.handlers.long_answer import LongAnswer
from fairlead_broker.limits import (
    MEMBER_OVERHEAD_BYTES,
    PENDING_MEMBER_BYTES,
    SUBSCRIBED_TOPIC_BYTES,
)
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fairlead_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fairlead_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PROTOCOLS = (("range", bytes(100)), ("sticky", bytes(50)))
MEMBER_BYTES = MEMBER_OVERHEAD_BYTES + 161


def test_a_group_counts_what_its_members_bring_and_are_given() -> None:
    """G10."""
    driver = GroupDriver()
    group = driver.group
    driver.join("a", protocols=PROTOCOLS)
    assert group.memory_bytes == MEMBER_BYTES
    driver.join("id", needs_id=True)
    assert group.memory_bytes == MEMBER_BYTES + PENDING_MEMBER_BYTES
    driver.join("b", "m2", protocols=PROTOCOLS[:1])
    assert group.memory_bytes == 2 * MEMBER_BYTES - 56
    driver.join("a again", "m1", protocols=PROTOCOLS[:1])
    assert group.memory_bytes == 2 * (MEMBER_BYTES - 56)
    driver.sync("s", "m1", 2, {"m1": bytes(7), "m2": bytes(30)})
    driver.commit()
    assert group.memory_bytes == 2 * (MEMBER_BYTES - 56) + 37
    driver = driver.reload()
    assert driver.group.memory_bytes == 2 * (MEMBER_BYTES - 56) + 37
    driver.leave(("m2", None))
    assert driver.group.memory_bytes == MEMBER_BYTES - 56 + 7
    driver.leave(("m1", None))
    assert driver.group.memory_bytes == 0


def test_long_names_of_members_are_counted_as_they_change() -> None:
    """G10."""
    driver = GroupDriver()
    group = driver.group
    driver.join("a", instance="i" * 2_000, protocols=PROTOCOLS)
    held = group.memory_bytes
    assert MEMBER_BYTES + 1_400 < held < MEMBER_BYTES + 2_000
    driver.sync("s", "m1", 1, {"m1": b""})
    driver.commit()
    driver.join("again", instance="i" * 2_000, protocols=PROTOCOLS, new_id="m" * 1_002)
    assert group.memory_bytes == held + 1_000
    driver.join("back", "m" * 1_002, instance="i" * 2_000, protocols=PROTOCOLS)
    assert group.memory_bytes == held + 1_000
    driver.leave(("m" * 1_002, "i" * 2_000))
    assert group.memory_bytes == 0


def join(groups: GroupCluster, group: str, member_id: str = "", size: int = 3_000) -> Call:
    return groups.call(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", bytes(size))],
        ),
        3,
    )


def test_members_beyond_the_memory_are_refused_and_those_inside_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_memory, "GROUP_MEMBERS_BYTES_MAX", 10_000)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            memory = groups.coordinator().memory
            members = [join(groups, f"g{number}").reply for number in range(2)]
            assert [each.error_code for each in members] == [ErrorCode.NONE] * 2
            held = memory.total_bytes
            refused = join(groups, "g2").reply
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "g2" not in groups.coordinator().groups
            known = members[0].member_id
            grown = join(groups, "g0", known, 6_000).reply
            assert grown.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert join(groups, "g0", known).reply.error_code == ErrorCode.NONE
            assert memory.total_bytes == held
            request = LeaveGroupRequest(group_id="g0", members=[MemberIdentity(known)])
            groups.call(request, 3)
            assert memory.total_bytes == held // 2
            assert join(groups, "g2").reply.error_code == ErrorCode.NONE

    run(story())


def test_a_leader_assigns_no_more_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10: groups that were small when they joined could all be given a mebibyte."""
    monkeypatch.setattr(group_memory, "GROUP_MEMBERS_BYTES_MAX", 20_000)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            memory = groups.coordinator().memory

            async def sync(group: str, member_id: str, generation: int, size: int) -> ErrorCode:
                request = SyncGroupRequest(
                    group_id=group,
                    generation_id=generation,
                    member_id=member_id,
                    assignments=[
                        SyncGroupRequestAssignment(member_id, bytes(size)),
                        SyncGroupRequestAssignment("nobody", bytes(100_000)),
                    ],
                )
                return ErrorCode((await groups.ask(request, 3)).error_code)

            members = {name: join(groups, name).reply.member_id for name in ("g0", "g1")}
            held = memory.total_bytes
            assert await sync("g0", members["g0"], 1, 9_000) is ErrorCode.NONE
            assert memory.total_bytes == held + 9_000, "what is meant for nobody is not kept"
            for _ in range(2):
                refused = await sync("g1", members["g1"], 1, 9_000)
                assert refused is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await sync("g1", members["g1"], 1, 100) is ErrorCode.NONE
            # Who leads a group comes back with as much as it has, however little room there is.
            monkeypatch.setattr(group_memory, "GROUP_MEMBERS_BYTES_MAX", 0)
            assert join(groups, "g0", members["g0"]).reply.error_code == ErrorCode.NONE
            assert await sync("g0", members["g0"], 2, 9_000) is ErrorCode.NONE
            assert memory.total_bytes == held + 9_100

    run(story())


def test_assignments_on_their_way_to_the_log_are_counted() -> None:
    """G10."""
    driver = GroupDriver()
    group = driver.group
    driver.join("a", protocols=PROTOCOLS)
    driver.sync("s", "m1", 1, {"m1": bytes(500), "nobody": bytes(9_000)})
    assert group.memory_bytes == MEMBER_BYTES + 500
    driver.commit()
    assert group.memory_bytes == MEMBER_BYTES + 500


def test_members_with_long_names_are_refused_beyond_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10: half a million members of 32 KiB names each are no more than others by number."""
    monkeypatch.setattr(group_memory, "GROUP_MEMBERS_BYTES_MAX", 20_000)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()

            def join_as(instance_id: str) -> Call:
                return groups.call(
                    JoinGroupRequest(
                        group_id="c",
                        session_timeout_ms=10_000,
                        rebalance_timeout_ms=60_000,
                        group_instance_id=instance_id,
                        protocol_type="consumer",
                        protocols=[JoinGroupRequestProtocol("range", b"")],
                    ),
                    5,
                )

            async def beat(epoch: int, rack_id: str) -> ErrorCode:
                reply = await groups.ask(
                    ConsumerGroupHeartbeatRequest(
                        group_id="g",
                        member_id="m",
                        member_epoch=epoch,
                        rack_id=rack_id,
                        rebalance_timeout_ms=10_000,
                        subscribed_topic_names=["t"],
                        topic_partitions=[],
                    ),
                    1,
                )
                return ErrorCode(reply.error_code)

            assert join_as("i" * 5_000).reply.error_code == ErrorCode.NONE
            too_long = join_as("j" * 19_000).reply
            assert too_long.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await beat(0, "r" * 19_000) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await beat(0, "r" * 3_000) is ErrorCode.NONE
            assert await beat(2, "r" * 19_000) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await beat(2, "r" * 2_000) is ErrorCode.NONE

    run(story())


def test_a_heartbeat_brings_no_more_topics_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G10, of KIP-848: a member may name other topics whenever it likes."""
    monkeypatch.setattr(group_memory, "GROUP_MEMBERS_BYTES_MAX", 10_000)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()

            async def beat(epoch: int, topics: list[str] | None, **fields: Any) -> ErrorCode:
                reply = await groups.ask(
                    ConsumerGroupHeartbeatRequest(
                        group_id="g",
                        member_id="m",
                        member_epoch=epoch,
                        rebalance_timeout_ms=10_000,
                        subscribed_topic_names=topics,
                        topic_partitions=[],
                        **fields,
                    ),
                    1,
                )
                return ErrorCode(reply.error_code)

            many = ["t", *(f"u{number}" for number in range(100))]
            assert await beat(0, ["t"]) is ErrorCode.NONE
            group = groups.coordinator().groups["g"].protocol
            few_bytes = group.memory_bytes
            assert await beat(2, many) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await beat(2, None, subscribed_topic_regex="x" * 10_000) is (
                ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
            assert group.memory_bytes == few_bytes
            assert await beat(2, many[:11]) is ErrorCode.NONE
            assert group.memory_bytes > few_bytes + 10 * SUBSCRIBED_TOPIC_BYTES
            monkeypatch.setattr(group_memory, "GROUP_MEMBERS_BYTES_MAX", 0)
            assert await beat(0, many[:11]) is ErrorCode.NONE, "it has no more than before"

    run(story())


def test_what_is_no_longer_coordinated_takes_no_memory(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.stable("g")
            held = groups.coordinator().memory.total_bytes
            assert held > MEMBER_OVERHEAD_BYTES
            await lead(cluster, 2)
            await groups.ready(2)
            await asyncio.sleep(0)
            assert groups.coordinator(1).memory.total_bytes == 0
            assert groups.coordinator(2).memory.total_bytes == held

    run(story())


def test_a_fetch_names_no_more_offsets_than_fit_into_a_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that asks again and again for all that one group has."""
    monkeypatch.setattr(offset_fetch, "OFFSETS_FOUND_MAX", 10)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for partition in range(4):
                await groups.committed("g", 1, partition=partition)

            def ask(count: int) -> Call:
                everything = OffsetFetchRequestGroup("g", topics=None)
                return groups.call(OffsetFetchRequest(groups=[everything] * count), 8)

            assert len(ask(2).reply.groups) == 2
            for count in (3, 10_000):
                # Nothing is looked up beyond what is too much.
                with pytest.raises(RemoteProtocolError, match=" 12 offsets"):
                    ask(count)

    run(story())


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_the_offsets_of_many_groups_are_encoded_while_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """500,000 offsets took the loop 0.4 s to encode."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g7", 5)
            monkeypatch.setattr(offset_fetch, "OFFSETS_A_TURN", 0)
            topic = cluster.image.topic("t")
            assert topic is not None
            wanted = OffsetFetchRequestTopics("t", topic.topic_id, [0, 1])
            names = [f"g{number}" for number in range(150)]
            asked = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(name, topics=[wanted]) for name in names]
            )
            if version < 8:
                asked = OffsetFetchRequest("g7", [OffsetFetchRequestTopic("t", [0, 1])])
            call = LaterCall(cluster.members[1].broker, asked, version)
            answer = await call.answer()
            encoded = b"".join(answer.encode(version))
            told, _ = OffsetFetchResponse.decode(memoryview(encoded), 0, version)
            if version < 8:
                assert answer == told
                return
            assert isinstance(answer, LongAnswer)
            assert [each.group_id for each in told.groups] == names
            assert encoded == b"".join(answer.message.encode(version))
            (found,) = told.groups[7].topics
            assert [each.committed_offset for each in found.partitions] == [5, -1]

    run(story())


def test_a_large_fetch_gives_way_to_others_and_to_another_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_fetch, "OFFSETS_A_TURN", 3)
    monkeypatch.setattr(slicing, "HOUSEKEEPING_SLICE_MS", 0)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            cluster.create("u", partitions=4)
            await groups.ready()
            for partition in range(4):
                await groups.committed("g", 1, partition=partition)
                await groups.committed("g", 2, partition=partition, topic="u")
            answers: list[Any] = []
            others: list[int] = []
            for is_led_on in (True, False):
                asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
                call = LaterCall(cluster.members[1].broker, asked, 8)
                loop = asyncio.get_running_loop()
                loop.call_soon(others.append, len(answers))
                if not is_led_on:
                    loop.call_soon(groups.coordinator().runtime.stop)
                answers.append((await call.answer()).groups[0])
                assert len(others) == len(answers), "nobody else was served meanwhile"
            whole, lost = answers
            assert [(each.name, len(each.partitions)) for each in whole.topics] == [
                ("t", 4),
                ("u", 4),
            ]
            assert (lost.error_code, lost.topics) == (ErrorCode.NOT_COORDINATOR, [])

    run(story())
