"""Transactions on three brokers that replicate to each other over their sockets."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from replica_cluster import ReplicaCluster
from transactional_producer import TransactionalProducer

from fairlead_broker.replication.partition import Partition

NOW_MS = 1_700_000_000_000
EVERYBODY = (1, 2, 3)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def index_files(partition: Partition) -> list[tuple[str, bytes]]:
    paths = sorted(partition.log.directory.glob("*.txnindex"))
    return [(path.name, path.read_bytes()) for path in paths]


def described(partition: Partition) -> list[tuple[int, ...]]:
    return [
        (each.producer_id, each.epoch, each.coordinator_epoch, each.transaction_first_offset)
        for each in partition.log.producers
    ]


def test_followers_know_what_their_leader_knows(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t", min_insync_replicas=2)
            leader, one = cluster.partition(1, "t"), TransactionalProducer(7, now_ms=NOW_MS)
            cluster.append(1, "t", b"plain")
            begun = one.put(leader, b"a", b"b")
            end = cluster.append(1, "t", b"plain")
            await cluster.until(
                lambda: all(
                    cluster.partition(each, "t").high_watermark == end for each in EVERYBODY
                )
            )
            for broker_id in EVERYBODY:
                assert cluster.partition(broker_id, "t").last_stable_offset == begun
            marker = one.end(leader, commits=False)
            await cluster.until(
                lambda: all(
                    cluster.partition(each, "t").last_stable_offset == marker + 1
                    for each in EVERYBODY
                )
            )
            await cluster.stop(1)
            cluster.change("t", leader=2, isr=(2, 3))
            successor = cluster.partition(2, "t")
            assert index_files(leader) == index_files(successor) != []
            assert described(leader) == described(successor)
            await cluster.until(lambda: successor.is_high_watermark_valid)
            (aborted,) = successor.log.aborted_transactions(0, marker + 1)
            assert (aborted.producer_id, aborted.first_offset) == (7, begun)
            # The transaction goes on nowhere: the coordinator has to be asked again.
            assert successor.begin_verification(7, 0, 2, supports_epoch_bump=False) is not None

    run(story())


def test_a_new_leader_reads_no_further_than_its_high_watermark_has_decided(tmp_path: Path) -> None:
    """The marker is on two of three: readers must not see beyond, on whoever leads."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t")
            leader, one = cluster.partition(1, "t"), TransactionalProducer(7, now_ms=NOW_MS)
            begun = one.put(leader, b"a", b"b")
            await cluster.until(
                lambda: all(
                    cluster.partition(each, "t").high_watermark == begun + 2 for each in EVERYBODY
                )
            )
            await cluster.stop(3)
            marker = one.end(leader, commits=True)
            await cluster.until(lambda: cluster.partition(2, "t").log_end_offset == marker + 1)
            assert (leader.high_watermark, leader.last_stable_offset) == (marker, begun)
            assert cluster.partition(2, "t").last_stable_offset == begun
            # Neither a restart nor an election makes it known that the marker is committed.
            for clean in (True, False):
                await cluster.stop(2, clean=clean)
                await cluster.start(2)
                producer = cluster.partition(2, "t").log.producers.get(7)
                assert producer is not None and producer.transaction_first_offset == -1
                assert cluster.partition(2, "t").last_stable_offset == begun
            cluster.change("t", leader=2)
            successor = cluster.partition(2, "t")
            assert successor.is_leader
            assert not successor.is_high_watermark_valid
            assert successor.last_stable_offset == begun
            await cluster.start(3)
            await cluster.until(lambda: successor.is_high_watermark_valid)
            assert successor.last_stable_offset == marker + 1

    run(story())
