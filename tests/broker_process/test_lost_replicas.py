"""Real brokers lose replicas one by one: what acks=all promises, and what it does not."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from live_broker import FrameClient
from replicated_topic import Story, code_of, latest_offset, produce_request
from standing_still import stand_still
from waiting import wait_until

from fairlead_wire.errors import ErrorCode

BY_HAND = b"by hand"
"""The value that `produce_request` writes."""


@pytest.fixture
def story(make_cluster: Callable[..., Any]) -> Iterator[Story]:
    yield Story(make_cluster(brokers=3))


def connect(broker: Any) -> FrameClient:
    return FrameClient(int(broker.address.rpartition(":")[2]))


@contextmanager
def frozen(broker: Any) -> Iterator[None]:
    stand_still(broker.pid)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def roles(story: Story) -> tuple[Any, Any, Any]:
    """The leader and its two followers."""
    leader = story.leader()
    brokers = story.cluster.brokers
    return brokers[leader], brokers[(leader + 1) % 3], brokers[(leader + 2) % 3]


def test_all_leaders_but_one_are_killed_in_turn_and_nothing_acknowledged_is_lost(
    make_cluster: Callable[..., Any],
) -> None:
    story = Story(make_cluster(brokers=4))
    story.create_with({"min.insync.replicas": "1"}, replication_factor=4)
    brokers = story.cluster.brokers
    killed: list[int] = []
    for _ in range(len(brokers) - 1):
        # The broker that is asked now may not have heard yet of what another one has told.
        (leader,) = wait_until(lambda: {story.leader()} - {-1, *killed})
        killed.append(leader)
        story.produce(2_000, size=5_000)
        # In the middle: some are acknowledged, others are on their way when the leader dies.
        before = len(story.acknowledged)
        while len(story.acknowledged) == before:
            story.producer.poll(0.001)
        brokers[killed[-1]].kill()
    story.until(lambda: story.leader() not in (-1, *killed))
    story.produce(500)
    assert len(set(killed)) == 3
    # What is read here is all in the log of the last one.
    story.check_nothing_is_lost()
    for broker_id in killed:
        brokers[broker_id].begin()
    for broker_id in killed:
        brokers[broker_id].wait_ready()
    story.until(lambda: story.isr() == {0, 1, 2, 3})
    assert len({story.log_bytes(broker) for broker in brokers}) == 1


def test_replicas_that_leave_after_the_append_are_told_to_the_producer(story: Story) -> None:
    story.create()
    story.produce(10)
    story.flush()
    leader, gone, follower = roles(story)
    gone.kill()
    story.until(lambda: story.isr() == {leader.node_id, follower.node_id})
    with connect(leader) as client:
        code = ErrorCode.NOT_ENOUGH_REPLICAS
        while code is ErrorCode.NOT_ENOUGH_REPLICAS:
            # On a machine that stands still here for a session time-out the set has shrunk before
            # the append, which is refused.
            story.until(lambda: story.isr() == {leader.node_id, follower.node_id})
            with frozen(follower):
                # It is in sync when this is appended, and fenced before it could acknowledge it.
                code = code_of(client.call(produce_request(acks=-1), 9))
                end = latest_offset(client)
        assert code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert end == len(story.sent), "nobody may read it yet"
        assert BY_HAND in story.log_bytes(leader)
        # The producer has an error, and the record is there all the same.
        story.until(lambda: latest_offset(client) == end + 1)
    assert story.consume_values(end + 1)[-1] == BY_HAND


def test_a_record_that_nobody_acknowledged_may_survive_its_leader(story: Story) -> None:
    # All three have to have it: the frozen one keeps it from being acknowledged for sure.
    story.create_with({"min.insync.replicas": "3"})
    story.produce(10)
    story.flush()
    leader, successor, sleeper = roles(story)
    with connect(leader) as client, frozen(sleeper):
        client.send(produce_request(acks=-1), 9)
        story.until(lambda: BY_HAND in story.log_bytes(successor))
        leader.kill()
        assert client.is_closed_by_peer(), "there is no answer"
        story.until(lambda: story.leader() == successor.node_id)
    leader.start()
    story.until(lambda: story.isr() == {0, 1, 2})
    assert story.consume_values(len(story.sent) + 1)[-1] == BY_HAND
    assert len({story.log_bytes(broker) for broker in story.cluster.brokers}) == 1


def _is_out(story: Story, broker_id: int) -> bool:
    return broker_id not in story.isr()


def lag_behind(story: Story) -> tuple[Any, Any, Any]:
    """Fifty records that the leader alone has acknowledged, and then nobody runs any more."""
    story.produce(100)
    story.flush()
    leader, *followers = roles(story)
    for follower in followers:
        follower.kill()
        story.until(partial(_is_out, story, follower.node_id))
    story.produce(50)
    story.flush()
    assert story.acknowledged == story.sent
    leader.kill()
    return leader, *followers


def test_an_unclean_election_loses_what_only_the_others_had(story: Story) -> None:
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    story.create_with(config)
    leader, laggard, other = lag_behind(story)
    laggard.start()
    story.until(lambda: story.leader() == laggard.node_id)
    # What all had been sent is there, what it missed is lost, and its offsets are given out again.
    assert story.consume(100) == story.sent[:100]
    with connect(laggard) as client:
        assert latest_offset(client) == 100
        answer = client.call(produce_request(acks=-1), 9)
        assert code_of(answer) is ErrorCode.NONE
        assert answer.responses[0].partition_responses[0].base_offset == 100
    # Who had them drops them: all logs are alike.
    lost = b"%d x" % story.sent[100]
    assert lost in story.log_bytes(leader)
    leader.start()
    other.start()
    story.until(lambda: story.isr() == {0, 1, 2})
    assert len({story.log_bytes(broker) for broker in story.cluster.brokers}) == 1
    assert story.consume_values(101)[100] == BY_HAND
    assert lost not in story.log_bytes(leader)


def test_the_settings_of_brokers_allow_unclean_elections(make_cluster: Callable[..., Any]) -> None:
    allowed = {"unclean.leader.election.enable": "true"}
    story = Story(make_cluster(brokers=3, settings=allowed))
    story.create_with({"min.insync.replicas": "1"})
    _, laggard, _ = lag_behind(story)
    laggard.start()
    story.until(lambda: story.leader() == laggard.node_id)
    assert story.consume(100) == story.sent[:100]


def test_by_default_a_partition_waits_rather_than_lose_what_was_acknowledged(story: Story) -> None:
    story.create_with({"min.insync.replicas": "1"})
    leader, laggard, _ = lag_behind(story)
    laggard.start()
    story.until(lambda: laggard.node_id in story.live_brokers())
    # It takes a moment until the controller believes in the death of the last one.
    story.until(lambda: story.leader() != leader.node_id)
    assert story.leader() == -1
    with connect(laggard) as client:
        refused = code_of(client.call(produce_request(acks=1), 9))
        assert refused is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader.start()
    story.until(lambda: story.leader() == leader.node_id)
    assert story.consume(150) == story.sent
