"""Partitions of groups that are loaded, led by another broker, or damaged."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from group_cluster import NO_DELAY, GroupCluster, commit_code, delete_topic, lead, run
from group_protocols import classic_of
from present import present
from replica_cluster import ReplicaCluster

from fairlead_broker.coordinator.record_batching import build_batch, encode_body
from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.group import stale_offsets
from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.coordinated_group import CoordinatedGroup
from fairlead_broker.group.group_memory import GroupMemory
from fairlead_broker.group.group_protocol import GroupProtocol
from fairlead_broker.group.group_replay import GroupReplay
from fairlead_broker.group.group_types import Effects, GroupState
from fairlead_broker.group.offset_memory import OffsetMemory
from fairlead_broker.group.records.classic_records import (
    GroupKey,
    GroupValue,
    MemberRecord,
    encode_group_value,
    encode_key,
)
from fairlead_broker.group.shard_groups import ShardGroups
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_model.cluster import ClusterDelta, PartitionChanged
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.heartbeat import HeartbeatRequest
from fairlead_wire.messages.list_groups import ListGroupsRequest


def test_nothing_completes_under_another_leader_epoch(tmp_path: Path) -> None:
    """G8, R20: what was appended here may be committed later, but not as this coordinator's."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await cluster.stop(3)
            waiting = groups.commit("g", 2)
            joining = groups.join("h")
            await cluster.until(lambda: joining.reply is not None)
            member_id = joining.reply.member_id
            other = groups.join("h")
            assert other.reply is None
            await cluster.until(lambda: cluster.partition(2, CONSUMER_OFFSETS).log_end_offset >= 1)
            await lead(cluster, 2)
            assert commit_code(waiting) is ErrorCode.NOT_COORDINATOR
            assert cast("Any", other).reply.error_code == ErrorCode.NOT_COORDINATOR
            assert (waiting.replies, other.replies) == (1, 1)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await groups.ready(2)
            assert groups.offset("g", broker_id=2) == 2
            assert (waiting.replies, other.replies) == (1, 1)
            beat = groups.call(HeartbeatRequest("h", 1, member_id), 3).reply
            assert beat.error_code == ErrorCode.NOT_COORDINATOR
            assert groups.fetch("g").error_code == ErrorCode.NOT_COORDINATOR
            assert groups.coordinator(1).groups == {}
            assert groups.coordinator(1).parked_count == 0
            # And back again, in a third epoch: what was written in between is there.
            assert await groups.committed("g", 3, broker_id=2) is ErrorCode.NONE
            await lead(cluster, 1)
            await groups.ready(1)
            assert groups.offset("g") == 3

    run(story())


def test_a_coordinator_that_does_not_know_yet_of_the_next_one_answers_nothing_old(
    tmp_path: Path,
) -> None:
    """G4: while it is in the in-sync set, the next one has neither answers nor commits."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            assert await groups.committed("g", 1) is ErrorCode.NONE
            behind = cluster.members[1]
            topic = cluster.image.topic(CONSUMER_OFFSETS)
            assert topic is not None
            record = topic.partitions[0].changed(leader=2)
            change = PartitionChanged(topic.topic_id, 0, record)
            cluster.publish(change, without=behind)
            late = groups.commit("g", 2)
            led = cluster.partition(2, CONSUMER_OFFSETS)
            await cluster.until(lambda: present(led.leader).followers[3].end_offset == 1)
            assert groups.offset("g") == 1
            loading = groups.fetch("g", broker_id=2)
            assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            refused = commit_code(groups.commit("g", 3, broker_id=2))
            assert refused is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert late.reply is None
            behind.broker.publish(ClusterDelta((change,)), cluster.image)
            assert groups.fetch("g").error_code == ErrorCode.NOT_COORDINATOR
            assert commit_code(late) is ErrorCode.NOT_COORDINATOR
            await groups.ready(2)
            assert groups.offset("g", broker_id=2) == 1
            assert await groups.committed("g", 3, broker_id=2) is ErrorCode.NONE
            assert groups.offset("g", broker_id=2) == 3

    run(story())


def test_while_the_high_watermark_is_unknown_groups_are_loading(tmp_path: Path) -> None:
    """R22."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            assert await groups.committed("g", 1) is ErrorCode.NONE
            await cluster.stop(3)
            waiting = groups.commit("g", 2)
            replica = cluster.partition(2, CONSUMER_OFFSETS)
            await cluster.until(lambda: replica.log_end_offset == 2)
            await cluster.stop(1)
            await lead(cluster, 2)
            await asyncio.sleep(0.05)
            loading = groups.fetch("g", broker_id=2)
            assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            # A member that is alive needs not know.
            beat = groups.call(HeartbeatRequest("g", 1, "m"), 3, broker_id=2).reply
            assert beat.error_code == ErrorCode.NONE
            listed = groups.call(ListGroupsRequest(), 4, broker_id=2).reply
            assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            cluster.change(CONSUMER_OFFSETS, isr=(2,))
            await groups.ready(2)
            assert groups.offset("g", broker_id=2) == 2
            assert waiting.reply is None or commit_code(waiting) is not ErrorCode.NONE

    run(story())


def test_groups_of_several_segments_are_loaded_in_pieces(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, size=1, offsets_load_buffer_size="2000", log_segment_bytes="16384"
        ) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for turn in range(20):
                calls = [groups.commit(f"g{number}", turn) for number in range(30)]
                await cluster.until(partial(lambda calls: all(each.reply for each in calls), calls))
            log = cluster.partition(1, CONSUMER_OFFSETS).log
            assert len(log.segments) > 1
            await cluster.stop(1)
            await cluster.start(1)
            await groups.ready()
            assert [groups.offset(f"g{number}") for number in range(30)] == [19] * 30

    run(story())


def test_a_group_that_is_larger_than_it_may_be_by_now_rebalances_when_loaded(
    tmp_path: Path,
) -> None:
    """A lower `group.max.size` and a restart end a runaway deployment."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, group_max_size="2") as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            member = MemberRecord("m", None, "client", "/host", 60_000, 10_000, b"", b"")
            for group_id, count in (("small", 2), ("large", 3)):
                members = tuple(member._replace(member_id=f"m{each}") for each in range(count))
                value = GroupValue("consumer", 4, "range", "m0", 1_000, members)
                append(cluster, GroupKey(group_id), encode_group_value(value))
            await cluster.stop(1)
            await cluster.start(1)
            await groups.ready()
            for group_id, code in (
                ("small", ErrorCode.NONE),
                ("large", ErrorCode.REBALANCE_IN_PROGRESS),
            ):
                beat = groups.call(HeartbeatRequest(group_id, 4, "m0"), 3).reply
                assert beat.error_code == code

    run(story())


def test_a_damaged_log_is_not_served(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            await cluster.stop(1, clean=True)
            path = tmp_path / f"broker-1/{CONSUMER_OFFSETS}-0/{0:020d}.log"
            data = bytearray(path.read_bytes())
            data[70] ^= 1
            path.write_bytes(data)
            await cluster.start(1)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            await cluster.until(lambda: groups.fetch("g").error_code == code)

    run(story())


def append(cluster: ReplicaCluster, key: GroupKey, value: bytes) -> None:
    """A record that no coordinator here has written."""
    batch = build_batch([encode_body(encode_key(key), value)], timestamp_ms=1_000)
    cluster.partition(1, CONSUMER_OFFSETS).append_as_leader(
        memoryview(batch), required_acks=ALL_IN_SYNC, now_ms=1_000, has_keys=True
    )


def test_a_record_that_names_a_member_twice_is_passed_over(tmp_path: Path) -> None:
    """Whoever may write to the topic must not keep all other groups of a partition from loading."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            await groups.committed("twice", 2)
            member = MemberRecord("m", None, "client", "/host", 60_000, 10_000, b"", b"")
            value = GroupValue("consumer", 4, "range", "m", 1_000, (member, member))
            append(cluster, GroupKey("twice"), encode_group_value(value))
            await cluster.stop(1)
            await cluster.start(1)
            await groups.ready()
            assert (groups.offset("g"), groups.offset("twice")) == (1, 2)
            assert classic_of(groups.coordinator().groups["twice"]).state is GroupState.EMPTY

    run(story())


def test_a_shard_that_cannot_be_read_is_missed_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the reason is that nobody thought of."""

    def fail(*_: object) -> None:
        raise KeyError("a fault of ours")

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await cluster.stop(1)
            monkeypatch.setattr(GroupReplay, "decode", fail)
            await cluster.start(1)
            shard = groups.coordinator().runtime.shards[0]
            await cluster.until(lambda: shard.state is ShardState.FAILED)
            assert groups.fetch("g").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            listed = groups.call(ListGroupsRequest(), 4).reply
            assert listed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(story())


def test_a_topic_made_anew_while_groups_are_loaded_begins_without_offsets(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 5)
            await cluster.stop(3)
            groups.commit("g", 6)
            replica = cluster.partition(2, CONSUMER_OFFSETS)
            await cluster.until(lambda: replica.log_end_offset == 2)
            await cluster.stop(1)
            await lead(cluster, 2)
            delete_topic(cluster, "t")
            cluster.create("t", partitions=4)
            loading = groups.fetch("g", broker_id=2)
            assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            cluster.change(CONSUMER_OFFSETS, isr=(2,))
            await groups.ready(2)
            await cluster.until(lambda: groups.offset("g", broker_id=2) == -1)

    run(story())


def test_a_topic_made_anew_while_nobody_coordinates_begins_without_offsets(tmp_path: Path) -> None:
    """Its name is what it was: only the topic id tells what was committed for which."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 5)
            await groups.committed("g", 6, partition=1, metadata="note")
            await cluster.stop(1)
            delete_topic(cluster, "t")
            cluster.create("t", partitions=4)
            await cluster.start(1)
            await groups.ready()
            assert [groups.offset("g", partition=index) for index in range(2)] == [-1, -1]
            await groups.committed("g", 7, partition=1)
            offsets = groups.coordinator().groups["g"].offsets
            await cluster.until(lambda: [*offsets.partitions()] == [("t", 1)])
            assert groups.offset("g", partition=1) == 7
            await cluster.stop(1)
            await cluster.start(1)
            await groups.ready()
            assert groups.offset("g", partition=1) == 7

    run(story())


def test_an_offset_of_an_earlier_topic_is_told_to_nobody_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("g", 5)
            await cluster.stop(1)
            delete_topic(cluster, "t")
            cluster.create("t", partitions=4)
            monkeypatch.setattr(stale_offsets, "append_tombstones", lambda *_, **__: None)
            await cluster.start(1)
            await groups.ready()
            found = groups.coordinator().groups["g"].offsets.find("t", 0)
            assert found is not None
            assert found.offset == 5
            assert groups.offset("g") == -1

    run(story())


class SlowHost:
    """The coordinator of groups, and its clock, of a machine that takes a second for each."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self.clock: Any = self
        self.memory = GroupMemory()
        self.offset_memory = OffsetMemory()
        self.groups: dict[str, CoordinatedGroup] = {}

    def monotonic_ms(self) -> int:
        return self.passed_ms

    now_ms = monotonic_ms

    def build_protocol(self, group_id: str, record: bytes) -> GroupProtocol:
        self.passed_ms += 1_000
        return ClassicGroup.from_record(
            group_id, record, initial_rebalance_delay_ms=0, size_max=10, now_ms=self.passed_ms
        )

    def carry_out(self, group: CoordinatedGroup, effects: Effects) -> None:
        assert not effects.writes


def test_sessions_begin_when_all_groups_are_built() -> None:
    """Whoever says meanwhile that it lives cannot be heard."""
    member = MemberRecord("m", None, "c", "/h", 60_000, 10_000, b"", b"")
    value = encode_group_value(GroupValue("consumer", 3, "range", "m", -1, (member,)))
    host: Any = SlowHost()
    groups = ShardGroups(host, host)
    records = {encode_key(GroupKey(f"g{number}")): value for number in range(30)}
    for _ in (*groups.replay(records), *groups.begin()):
        pass
    assert len(groups.by_id) == 30
    for group in groups.by_id.values():
        group.protocol.tick(now_ms=host.passed_ms + 9_000, now_wall_ms=0)
        assert not group.protocol.is_empty
        assert group.protocol.state_name == "Stable"
        group.protocol.tick(now_ms=host.passed_ms + 11_000, now_wall_ms=0)
        assert group.protocol.state_name != "Stable"
