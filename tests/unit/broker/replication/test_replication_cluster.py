"""Three brokers that replicate to each other over their sockets: stories of a partition."""

import asyncio
import errno
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from replica_cluster import ReplicaCluster

from fairlead_broker.replication.leader_state import PendingShrinkIsr
from fairlead_wire.errors import ErrorCode, KafkaError


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def is_alike(cluster: ReplicaCluster, name: str, end_offset: int) -> bool:
    replicas = [cluster.partition(broker_id, name) for broker_id in cluster.members]
    return all(replica.log_end_offset == end_offset for replica in replicas)


def test_followers_hold_what_the_leader_holds_and_it_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t", min_insync_replicas=2)
            for number in range(50):
                end = cluster.append(1, "t", b"v%d" % number, b"w" * 1000, acks=-1)
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            assert is_alike(cluster, "t", end)
            assert cluster.content(1, "t") == cluster.content(2, "t") == cluster.content(3, "t")
            await cluster.until(lambda: cluster.partition(3, "t").high_watermark == end)

    run(story())


def test_nothing_is_committed_without_every_member_of_the_isr(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t")
            end = cluster.append(1, "t", b"a")
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            await cluster.stop(3)
            cluster.append(1, "t", b"b")
            await cluster.until(lambda: cluster.partition(2, "t").log_end_offset == end + 1)
            await asyncio.sleep(0.05)
            assert leader.high_watermark == end
            cluster.change("t", isr=(1, 2))
            await cluster.until(lambda: leader.high_watermark == end + 1)

    run(story())


def test_a_follower_that_stops_asking_leaves_the_isr_and_returns(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, replica_lag_time_max_ms="300") as cluster:
            cluster.create("t")
            await cluster.stop(3)
            end = cluster.append(1, "t", b"a")
            await cluster.until(lambda: cluster.isr("t") == {1, 2})
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            await cluster.start(3)
            await cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
            assert is_alike(cluster, "t", end)

    run(story())


def test_idle_followers_stay_in_the_isr(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(
            tmp_path, replica_lag_time_max_ms="3000", replica_fetch_wait_max_ms="50"
        ) as cluster:
            cluster.create("t")
            end = cluster.append(1, "t", b"a")
            await cluster.until(lambda: is_alike(cluster, "t", end))
            await asyncio.sleep(3.5)  # they have asked for nothing new for longer than that
            assert cluster.isr("t") == {1, 2, 3}
            assert cluster.proposals == []

    run(story())


def test_a_new_leader_goes_on_where_the_old_one_died_and_nothing_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t", min_insync_replicas=2)
            end = cluster.append(1, "t", b"a", b"b", acks=-1)
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            await cluster.stop(1)
            cluster.fence(1)
            cluster.change("t", leader=2, isr=(2, 3))
            successor = cluster.partition(2, "t")
            assert successor.is_leader
            end = cluster.append(2, "t", b"c", acks=-1)
            await cluster.until(lambda: successor.high_watermark == end)
            assert successor.log.epochs.entries() == [(0, 0), (1, 2)]

    run(story())


def test_a_deposed_leader_truncates_what_nobody_else_has_and_catches_up(tmp_path: Path) -> None:
    """I7."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t")
            end = cluster.append(1, "t", b"a")
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            await cluster.stop(2)
            await cluster.stop(3)
            cluster.append(1, "t", b"never committed", b"nor this")
            await cluster.stop(1)
            await cluster.start(2)
            await cluster.start(3)
            cluster.change("t", leader=2, isr=(2, 3))
            end = cluster.append(2, "t", b"b")
            successor = cluster.partition(2, "t")
            await cluster.until(lambda: successor.high_watermark == end)
            await cluster.start(1)
            await cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
            assert cluster.content(1, "t") == cluster.content(2, "t")
            assert cluster.partition(1, "t").log.epochs.entries() == [(0, 0), (1, 1)]

    run(story())


def test_a_replica_that_lost_its_disk_starts_from_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t")
            end = cluster.append(1, "t", b"a", b"b")
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            await cluster.stop(3)
            cluster.change("t", isr=(1, 2))
            (tmp_path / "broker-3").rename(tmp_path / "gone")
            await cluster.start(3)
            await cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
            assert is_alike(cluster, "t", end)

    run(story())


def test_a_follower_below_the_leaders_start_begins_there(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t")
            await cluster.stop(3)
            cluster.change("t", isr=(1, 2))
            for _ in range(5):
                end = cluster.append(1, "t", b"a" * 100)
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            leader.delete_records(3)
            await cluster.start(3)
            await cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
            returned = cluster.partition(3, "t")
            assert (returned.log_start_offset, returned.log_end_offset) == (3, 5)
            await cluster.until(lambda: cluster.partition(2, "t").log_start_offset == 3)

    run(story())


def test_a_start_that_moves_is_told_and_followed_at_once(tmp_path: Path) -> None:
    """Nobody appends, and followers' fetches wait for longer than this test does."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, replica_fetch_wait_max_ms="600000") as cluster:
            cluster.create("t")
            end = cluster.append(1, "t", b"a", b"b", b"c")
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: leader.high_watermark == end)
            assert leader.low_watermark == 0
            for start in (1, 3):
                leader.delete_records(start)
                await cluster.until(partial(lambda start: leader.low_watermark == start, start))
                for broker_id in (2, 3):
                    assert cluster.partition(broker_id, "t").log_start_offset == start

    run(story())


def test_too_small_an_isr_refuses_acks_all_before_the_append(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t", min_insync_replicas=2)
            cluster.change("t", isr=(1,))
            with pytest.raises(KafkaError) as refusal:
                cluster.append(1, "t", b"a", acks=-1)
            assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
            await cluster.until(lambda: cluster.isr("t") == {1, 2, 3})
            cluster.append(1, "t", b"a", acks=-1)

    run(story())


def test_without_controller_the_isr_stays_and_nothing_is_committed_without_it(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, replica_lag_time_max_ms="300") as cluster:
            cluster.create("t")
            cluster.is_controller_away = True
            await cluster.stop(3)
            end = cluster.append(1, "t", b"a")
            leader = cluster.partition(1, "t")
            await cluster.until(
                lambda: (
                    leader.leader is not None
                    and isinstance(leader.leader.isr_state, PendingShrinkIsr)
                )
            )
            await asyncio.sleep(0.05)
            assert leader.high_watermark < end
            cluster.is_controller_away = False
            await cluster.until(lambda: leader.high_watermark == end)

    run(story())


def test_a_broker_with_another_secret_follows_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = ReplicaCluster(tmp_path, replica_lag_time_max_ms="300")
        cluster.secrets[3] = b"the secret of another cluster"
        async with cluster:
            cluster.create("t")
            end = cluster.append(1, "t", b"a")
            leader = cluster.partition(1, "t")
            await cluster.until(lambda: cluster.isr("t") == {1, 2})
            await cluster.until(lambda: leader.high_watermark == end)
            assert cluster.partition(3, "t").log_end_offset == 0

    run(story())


def test_a_process_that_was_replaced_does_not_end_the_session_of_its_successor(
    tmp_path: Path,
) -> None:
    """R11: it is cut off from the controller, and goes on asking the leader."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2) as cluster:
            cluster.create("t")
            sessions = cluster.members[1].broker.follower_sessions
            await cluster.until(lambda: sessions.session_of(2) is not None)
            replaced = cluster.members[2]
            (fetcher,) = replaced.background._fetchers._fetchers.values()
            cluster.directory = tmp_path / "another machine"
            present = await cluster.start(2)
            await cluster.until(lambda: epoch_of_session(cluster) == present.broker_epoch)
            session = sessions.session_of(2)
            await cluster.until(lambda: fetcher._failures >= 3)
            assert sessions.session_of(2) is session
            end = cluster.append(1, "t", b"a", acks=-1)
            await cluster.until(lambda: cluster.partition(1, "t").high_watermark == end)
            await replaced.stop(clean=False)

    def epoch_of_session(cluster: ReplicaCluster) -> int:
        session = cluster.members[1].broker.follower_sessions.session_of(2)
        return -1 if session is None else session.broker_epoch

    run(story())


def test_many_idle_partitions_are_not_asked_about(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2, replica_fetch_wait_max_ms="20") as cluster:
            cluster.create("idle", partitions=200)
            cluster.create("busy")
            broker = cluster.members[1].broker
            for member in cluster.members.values():
                await member.broker.replicas.settled()
            leader = cluster.partition(1, "busy")
            await cluster.until(lambda: len(broker.follower_sessions) == 1)
            session = broker.follower_sessions.session_of(2)
            await cluster.until(lambda: session is not None and len(session.watched) == 201)
            for _ in range(20):
                cluster.append(1, "busy", b"v")
                await cluster.until(lambda: leader.high_watermark == leader.log_end_offset)
                assert session is not None
                assert len(session.news) <= 1

    run(story())


class BrokenDisk:
    """A disk that takes no bytes any more."""

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.EIO, "input/output error")

    def truncate(self, fd: int, size: int) -> None:
        raise OSError(errno.EIO, "input/output error")


def test_a_replica_whose_disk_fails_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("bad")
            cluster.create("good")
            end = cluster.append(1, "good", b"a")
            await cluster.until(lambda: is_alike(cluster, "good", end))
            broken = cluster.partition(2, "bad").log
            broken.active._disk = cast("Any", BrokenDisk())
            # In one answer, so that what becomes of the one can harm the other.
            cluster.append(1, "bad", b"cannot be written")
            end = cluster.append(1, "good", b"b")
            await cluster.until(lambda: broken.is_offline)
            await cluster.until(lambda: is_alike(cluster, "good", end))
            for number in range(3):
                end = cluster.append(1, "good", b"v%d" % number)
                await cluster.until(partial(lambda end: is_alike(cluster, "good", end), end))
            await cluster.until(lambda: cluster.isr("bad") == {1, 3})
            bad = cluster.partition(1, "bad")
            await cluster.until(lambda: bad.high_watermark == bad.log_end_offset)

    run(story())
    assert "Exception in callback" not in caplog.text
