"""Reads of records that lie elsewhere: waited for, and nothing else waits with them."""

import time
from pathlib import Path
from typing import Any

import pytest
from distant_segments import DistantRecords
from group_cluster import NO_DELAY, GroupCluster, lead, run
from live_broker import FrameClient, LiveBroker, batch
from replica_cluster import ReplicaCluster

from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

VERSION = 12
FOLLOWER_VERSION = 17


def fetch(
    *partitions: tuple[int, int], max_wait_ms: int = 20_000, isolation_level: int = 0
) -> FetchRequest:
    asked = [
        FetchPartition(index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in partitions
    ]
    return FetchRequest(
        topics=[FetchTopic("t", partitions=asked)],
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        isolation_level=isolation_level,
    )


def slots(response: Any) -> list[PartitionData]:
    return [data for topic in response.responses for data in topic.partitions]


def fill(live: LiveBroker, index: int, count: int) -> None:
    def append() -> None:
        for _ in range(count):
            data = memoryview(bytearray(batch(b"value")))
            now_ms = live.broker.clock.now_ms()
            live.broker.partitions["t", index].append_as_leader(
                data, required_acks=1, now_ms=now_ms
            )

    live.run(append)


@pytest.fixture
def distant(live: LiveBroker) -> DistantRecords:
    """Partition 0 has six records of which four lie elsewhere, partition 1 has all of its two."""
    for index, count in ((0, 6), (1, 2)):
        live.add_partition("t", index)
        fill(live, index, count)
    return live.run(lambda: DistantRecords(live.broker.partitions["t", 0].log, 4))


def test_a_fetch_waits_for_them_and_others_are_served(
    live: LiveBroker, distant: DistantRecords
) -> None:
    with FrameClient(live.port) as client, FrameClient(live.port) as other:
        client.send(fetch((0, 1)), VERSION)
        live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
        assert [bool(data.records) for data in slots(other.call(fetch((0, 4)), VERSION))] == [True]
        # The partition moves meanwhile, which lets the fetch look again and wait on.
        fill(live, 0, 3)
        live.run(lambda: None)
        assert len(live.broker.fetch_purgatory) == 1
        transfer = distant.transfer
        assert transfer is not None
        assert len(transfer.callbacks) == 1
        live.run(distant.arrive)
        (data,) = slots(client.receive(FetchRequest.API_KEY, VERSION)[1])
        assert (data.error_code, bool(data.records), data.high_watermark) == (0, True, 9)
        # The next time it is waited for anew.
        assert len(live.broker.partitions["t", 0]._arrivals) == 0


def test_what_is_here_is_not_held_back(live: LiveBroker, distant: DistantRecords) -> None:
    with FrameClient(live.port) as client:
        began = time.monotonic()
        reply = slots(client.call(fetch((0, 0), (1, 0)), VERSION))
        assert [(data.error_code, bool(data.records)) for data in reply] == [(0, False), (0, True)]
        reply = slots(client.call(fetch((0, 0), max_wait_ms=0), VERSION))
        assert [(data.error_code, bool(data.records)) for data in reply] == [(0, False)]
        assert time.monotonic() - began < 10, "neither has waited for its 20 s"


def test_a_wait_ends_with_the_time_of_the_request(
    live: LiveBroker, distant: DistantRecords
) -> None:
    with FrameClient(live.port) as client:
        (data,) = slots(client.call(fetch((0, 0), max_wait_ms=50), VERSION))
        assert (data.error_code, data.records, data.high_watermark) == (0, b"", 6)


def test_records_that_cannot_be_had_are_an_error(live: LiveBroker, distant: DistantRecords) -> None:
    with FrameClient(live.port) as client:
        client.send(fetch((0, 0)), VERSION)
        live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
        live.run(lambda: distant.arrive(is_lost=True))
        (data,) = slots(client.receive(FetchRequest.API_KEY, VERSION)[1])
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR


class Follower(FrameClient):
    """Broker 1 with its session, which follows both partitions."""

    def __init__(self, live: LiveBroker) -> None:
        for index, count in ((0, 6), (1, 2)):
            live.add_partition("t", index, isr=(0, 1))
            fill(live, index, count)
        self.live = live
        self.topic_id = live.broker.partitions["t", 0].topic_id
        self.distant = live.run(lambda: DistantRecords(live.broker.partitions["t", 0].log, 4))
        self.session_id = self.session_epoch = 0
        super().__init__(live.internal_port)
        self.prove()

    def ask(self, *positions: tuple[int, int]) -> None:
        asked = [
            FetchPartition(
                index, current_leader_epoch=3, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            for index, offset in positions
        ]
        request = FetchRequest(
            replica_state=ReplicaState(1, 1),
            max_wait_ms=20_000,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic("", self.topic_id, asked)],
        )
        self.send(request, FOLLOWER_VERSION)
        self.session_epoch += 1

    def is_parked(self) -> None:
        self.live.eventually(lambda: len(self.live.broker.fetch_purgatory) == 1)

    def answer(self) -> set[int]:
        """The partitions that have records in the next answer."""
        response = self.receive(FetchRequest.API_KEY, FOLLOWER_VERSION)[1]
        self.session_id = response.session_id
        assert {data.error_code for data in slots(response)} <= {0}
        return {data.partition_index for data in slots(response) if data.records}


def test_a_follower_waits_for_them(live: LiveBroker) -> None:
    with Follower(live) as follower:
        follower.ask((0, 0))
        # An empty answer would have it ask in circles.
        follower.is_parked()
        live.run(follower.distant.arrive)
        assert follower.answer() == {0}


def test_a_follower_gets_what_is_here_meanwhile(live: LiveBroker) -> None:
    with Follower(live) as follower:
        follower.ask((0, 0), (1, 0))
        assert follower.answer() == {1}
        follower.ask((1, 2))
        follower.is_parked()
        fill(live, 1, 1)
        assert follower.answer() == {1}
        follower.ask((1, 3))
        follower.is_parked()
        live.run(follower.distant.arrive)
        assert follower.answer() == {0}


def test_a_coordinator_loads_what_lies_elsewhere(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            assert await groups.committed("g", 7) is ErrorCode.NONE
            partition = cluster.partition(1, CONSUMER_OFFSETS)
            distant = DistantRecords(partition.log, partition.log_end_offset)
            await lead(cluster, -1)
            await lead(cluster, 1)
            await cluster.until(lambda: distant.transfer is not None)
            assert groups.coordinator(1).groups == {}
            distant.arrive()
            await groups.ready()
            assert groups.offset("g") == 7

    run(story())
