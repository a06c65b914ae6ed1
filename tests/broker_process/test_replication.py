"""Three real brokers and a controller: what is acknowledged stays, whoever dies or returns."""

import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from connection_flood import flood
from live_broker import FrameClient
from replicated_topic import (
    DEADLINE_S,
    TOPIC,
    Story,
    code_of,
    latest_offset,
    produce_request,
)
from standing_still import stand_still
from starvation import StarvationWatch

from fairlead_model.session.session_protocol import SESSION_TIMEOUT_MS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fairlead_wire.messages.produce import ProduceRequest


@pytest.fixture
def story(make_cluster: Callable[..., Any]) -> Iterator[Story]:
    yield Story(make_cluster(brokers=3))


def test_a_killed_leader_loses_nothing_and_returns_in_sync(story: Story) -> None:
    story.create()
    story.produce(2_000)
    leader = story.cluster.brokers[story.leader()]
    leader.kill()
    story.produce(2_000)
    story.until(lambda: story.leader() not in (-1, leader.node_id))
    story.check_nothing_is_lost()
    leader.start()
    story.until(lambda: story.isr() == {0, 1, 2})
    logs = [story.log_bytes(broker) for broker in story.cluster.brokers]
    assert logs[0] == logs[1] == logs[2]


def test_a_follower_that_returns_with_an_empty_disk_is_not_in_sync_before_it_has_all(
    story: Story,
) -> None:
    story.create()
    story.produce(500)
    story.flush()
    follower = story.cluster.brokers[(story.leader() + 1) % 3]
    follower.kill()
    shutil.rmtree(follower.data)
    follower.start()
    story.until(lambda: story.isr() == {0, 1, 2})
    leader = story.cluster.brokers[story.leader()]
    assert story.log_bytes(follower) == story.log_bytes(leader)
    story.produce(100)
    story.check_nothing_is_lost()


def test_a_stopped_leader_makes_room_and_no_client_notices(story: Story) -> None:
    story.create()
    story.produce(500)
    leader = story.cluster.brokers[story.leader()]
    assert leader.stop() == 0
    story.produce(500)
    story.until(lambda: story.leader() not in (-1, leader.node_id))
    story.check_nothing_is_lost()
    leader.start()
    story.until(lambda: story.isr() == {0, 1, 2})


@pytest.mark.parametrize("place", ["topic", "settings of the brokers"])
def test_too_few_in_sync_replicas_refuse_acks_all(
    make_cluster: Callable[..., Any], place: str
) -> None:
    minimum = {"min.insync.replicas": "2"}
    story = Story(make_cluster(brokers=3, settings={} if place == "topic" else minimum))
    story.create_with(minimum if place == "topic" else {})
    story.produce(10)
    story.flush()
    leader = story.leader()
    for broker in story.cluster.brokers:
        if broker.node_id != leader:
            broker.kill()
    story.until(lambda: story.isr() == {leader})
    with FrameClient(int(story.cluster.brokers[leader].address.split(":")[1])) as client:
        answer = client.call(produce_request(acks=-1), 9)
        assert code_of(answer) is ErrorCode.NOT_ENOUGH_REPLICAS
        end = latest_offset(client)
        assert code_of(client.call(produce_request(acks=1), 9)) is ErrorCode.NONE
        # Stored, and as in Kafka (KIP-966) not readable before enough replicas have it.
        assert latest_offset(client) == end
    for broker in story.cluster.brokers:
        if broker.node_id != leader:
            broker.begin()
    for broker in story.cluster.brokers:
        if broker.node_id != leader:
            broker.wait_ready()
    story.until(lambda: story.isr() == {0, 1, 2})
    with FrameClient(int(story.cluster.brokers[leader].address.split(":")[1])) as client:
        story.until(lambda: latest_offset(client) == end + 1)
    story.produce(10)
    story.flush()
    assert story.refused == []


def test_a_leader_that_was_stopped_and_wakes_acknowledges_nothing_alone(story: Story) -> None:
    story.create()
    story.produce(10)
    story.flush()
    frozen = story.cluster.brokers[story.leader()]
    with FrameClient(int(frozen.address.split(":")[1])) as client:
        assert code_of(client.call(produce_request(acks=1), 9)) is ErrorCode.NONE
        stand_still(frozen.pid)
        stopped_s = time.monotonic()
        try:
            # Waits in the socket until the broker wakes.
            client.send(produce_request(acks=1), 9)
            story.until(lambda: story.leader() not in (-1, frozen.node_id))
            # The controller counts from the last heartbeat, the broker from the stop.
            story.until(lambda: time.monotonic() - stopped_s > 1.1 * SESSION_TIMEOUT_MS / 1000)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        _, answer = client.receive(ProduceRequest.API_KEY, 9)
        assert code_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    story.produce(10)
    story.flush()
    story.until(lambda: story.isr() == {0, 1, 2})
    logs = [story.log_bytes(broker) for broker in story.cluster.brokers]
    assert logs[0] == logs[1] == logs[2]


def test_deleted_records_do_not_come_back_with_the_next_leader(
    make_cluster: Callable[..., Any],
) -> None:
    story = Story(make_cluster(brokers=2))
    story.create_with({}, replication_factor=2)
    story.produce(10)
    story.flush()
    leader = story.cluster.brokers[story.leader()]
    follower = story.cluster.brokers[1 - leader.node_id]
    with FrameClient(int(leader.address.split(":")[1])) as client:
        stand_still(follower.pid)
        try:
            late = deletion_of(client, 4, timeout_ms=100)
            is_fenced = follower.node_id not in story.live_brokers()
            assert late.error_code == ErrorCode.REQUEST_TIMED_OUT or is_fenced
        finally:
            os.kill(follower.pid, signal.SIGCONT)
        story.until(lambda: story.isr() == {0, 1})
        deleted = deletion_of(client, 5, timeout_ms=int(DEADLINE_S * 1000))
        assert (deleted.error_code, deleted.low_watermark) == (0, 5)
    leader.kill()
    story.until(lambda: story.leader() == follower.node_id)
    asked = TopicPartition(TOPIC, 0)
    found = story.admin.list_offsets({asked: OffsetSpec.earliest()})[asked]
    assert found.result(DEADLINE_S).offset == 5


def deletion_of(client: FrameClient, offset: int, *, timeout_ms: int) -> Any:
    topics = [DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, offset)])]
    return client.call(DeleteRecordsRequest(topics, timeout_ms), 2).topics[0].partitions[0]


def test_a_partition_that_cannot_be_written_goes_offline_alone(story: Story) -> None:
    story.create(partitions=3)
    leader_id = story.leader(0)
    broker = story.cluster.brokers[leader_id]
    others = [index for index in (1, 2) if story.leader(index) == leader_id]
    story.produce(1_000, size=1_000)
    story.flush()
    # No file of this process may grow beyond what partition 0 has now: the others are smaller.
    size = len(story.log_bytes(broker, 0))
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, size))
    story.produce(100, size=1_000)
    story.until(lambda: story.leader(0) not in (-1, leader_id))
    story.check_nothing_is_lost()
    assert leader_id not in story.isr(0)
    assert broker.is_running
    for index in others:
        assert story.leader(index) == leader_id
    assert all(leader_id in story.isr(index) for index in (1, 2))


def test_nobody_follows_without_the_clusters_secret(story: Story) -> None:
    story.create()
    internal = story.cluster.brokers[0].ready["internal"]
    host, _, port = internal.rpartition(":")
    with FrameClient(int(port)) as stranger:
        stranger.send(produce_request(acks=1), 9)
        assert stranger.is_closed_by_peer()
    with socket.create_connection((host, int(port))) as raw:
        raw.settimeout(DEADLINE_S)
        raw.sendall((100_000).to_bytes(4, "big") + b"\0" * 1000)
        assert raw.recv(1) == b""


def test_a_flood_of_clients_starves_neither_replication_nor_the_session(
    make_cluster: Callable[..., Any],
) -> None:
    # All of the flood but a few clients wait in the queue of the kernel.
    settings = {"max.connection.creation.rate": "1", "socket.listen.backlog.size": "4096"}
    story = Story(make_cluster(brokers=3, settings=settings))
    story.create()
    story.produce(100)
    story.flush()
    leader = story.cluster.brokers[story.leader()]
    follower = story.cluster.brokers[(leader.node_id + 1) % 3]
    before = len(story.cluster.fencings(leader.node_id))
    watch = StarvationWatch(lambda: story.cluster.pids)
    with watch, flood(leader.address, 3_000):
        story.produce(2_000)
        story.flush()
        assert story.acknowledged == story.sent
        follower.kill()
        story.until(lambda: follower.node_id not in story.isr())
        # It has to reach the leader over new connections, as hundreds of clients still wait.
        follower.start()
        story.until(lambda: story.isr() == {0, 1, 2})
        story.produce(100)
        story.flush()
        assert story.acknowledged == story.sent
        fencings = story.cluster.fencings(leader.node_id)[before:]
        assert watch.judged(fencings) == [], "its session has lasted"
        assert fencings or story.leader() == leader.node_id
    # Read from the disk: a new client would still wait behind those of the flood.
    story.until(lambda: story.log_bytes(leader) == story.log_bytes(follower))
