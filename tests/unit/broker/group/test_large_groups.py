"""One group with very many members or offsets is told of while others are served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from group_cluster import NO_DELAY, GroupCluster, LaterCall, run
from replica_cluster import ReplicaCluster

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.group_offsets import encode_commit
from fairlead_broker.group.group_types import DescribedMember, GroupDescription
from fairlead_broker.handlers import in_turns
from fairlead_broker.handlers.groups import offset_fetch
from fairlead_broker.handlers.long_answer import LongAnswer
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from fairlead_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fairlead_wire.messages.describe_groups import DescribeGroupsRequest
from fairlead_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEMBERS = 10_000


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is done in turns, step by step."""
    taken: list[object] = []

    async def noted(each: Iterator[object], clock: Any) -> None:
        taken.extend(each)

    monkeypatch.setattr(in_turns, "in_slices", noted)
    monkeypatch.setattr(offset_fetch, "in_slices", noted)
    return taken


def test_a_group_of_very_many_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[object]
) -> None:
    """10,000 took the loop half a second, and half a second more to encode."""
    described = GroupDescription(
        "Stable",
        "consumer",
        "range",
        tuple(
            DescribedMember(f"m-{number}", None, "c", "/h", b"metadata", b"assignment")
            for number in range(MEMBERS)
        ),
    )
    monkeypatch.setattr(ClassicGroup, "describe", lambda _: described)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            call = LaterCall(cluster.members[1].broker, DescribeGroupsRequest(["g"]), 5)
            assert call.reply is None
            answer = await call.answer()
            assert isinstance(answer, LongAnswer)
            assert len(steps) > MEMBERS // 200 // 2 + MEMBERS // 100
            (group,) = answer.message.groups
            assert [each.member_id for each in group.members] == [
                f"m-{number}" for number in range(MEMBERS)
            ]

    run(story())


def test_a_group_of_the_consumer_protocol_is_told_of_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[object]
) -> None:
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 0)
    monkeypatch.setattr(in_turns, "_ITEMS_PER_STEP", 1)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for number in range(3):
                request = ConsumerGroupHeartbeatRequest(
                    group_id="g",
                    member_id=f"member-{number}",
                    member_epoch=0,
                    rebalance_timeout_ms=10_000,
                    subscribed_topic_names=["t"],
                    topic_partitions=[],
                )
                assert (await groups.ask(request, 1)).error_code == ErrorCode.NONE
            assert isinstance(groups.coordinator().groups["g"].protocol, ConsumerGroup)
            question = ConsumerGroupDescribeRequest(["g", "nobody"])
            call = LaterCall(cluster.members[1].broker, question, 1)
            answer = await call.answer()
            assert len(steps) == 2 + 2
            group, nobody = answer.groups
            assert sorted(each.member_id for each in group.members) == [
                f"member-{number}" for number in range(3)
            ]
            assert nobody.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(story())


def test_very_many_offsets_of_one_topic(tmp_path: Path, steps: list[object]) -> None:
    """100,000 took the loop half a second, and a second more to encode."""
    count = 20_000

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            offsets = groups.coordinator().groups["g"].offsets
            for partition in range(count):
                offsets.committed("t", partition, encode_commit(partition, 1, b"", 1))
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
            answer = await LaterCall(cluster.members[1].broker, request, 8).answer()
            assert isinstance(answer, LongAnswer)
            assert len(steps) >= count // 200 + count // 100
            (topic,) = answer.message.groups[0].topics
            assert [each.committed_offset for each in topic.partitions] == list(range(count))

    run(story())
