"""Three real brokers: what groups have committed stays, and is served soon, whoever dies."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from live_broker import FrameClient
from processor_wait import Stopwatch
from standing_still import stand_still

from fairlead_model.session.session_protocol import SESSION_TIMEOUT_MS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.list_groups import ListGroupsRequest
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fairlead_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

TOPIC = "t"
DEADLINE_S = 60.0
LOAD_S_MAX = 5.0
IN_FLIGHT = 16
MOVING = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


class Story:
    """A cluster with a topic and one partition for all groups, so that one broker has them all."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, 4, 3)
        self.admin.create_topics([topic])[TOPIC].result(DEADLINE_S)

    def port(self, node_id: int) -> int:
        return int(self.cluster.brokers[node_id].address.split(":")[1])

    def coordinator(self, *, but: int = -1) -> int:
        """Who coordinates, as any broker that runs says, and who is not that one (`but`)."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            assert time.monotonic() < deadline, "nobody coordinates"
            for broker in self.cluster.brokers:
                if broker.is_running and broker.node_id != but:
                    with FrameClient(self.port(broker.node_id)) as client:
                        request = FindCoordinatorRequest(coordinator_keys=["g"])
                        (found,) = client.call(request, 4).coordinators
                    if found.error_code == 0 and found.node_id != but:
                        return int(found.node_id)
            time.sleep(0.02)

    def commit(self, groups: list[str], offset: int) -> None:
        """For each group an offset in each partition; all are acknowledged when this returns."""
        left, deadline = list(groups), time.monotonic() + DEADLINE_S
        while left:
            refused: list[str] = []
            with FrameClient(self.port(self.coordinator())) as client:
                for at in range(0, len(left), IN_FLIGHT):
                    refused += self._commit_piece(client, left[at : at + IN_FLIGHT], offset)
            assert len(refused) < len(left) or time.monotonic() < deadline, "nothing is committed"
            left = refused

    def _commit_piece(self, client: FrameClient, groups: list[str], offset: int) -> list[str]:
        """Which groups the coordinator cannot serve now; clients ask again then."""
        partitions = [OffsetCommitRequestPartition(index, offset + index) for index in range(4)]
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
        for group in groups:
            client.send(OffsetCommitRequest(group_id=group, topics=topics), 8)
        refused = []
        for group in groups:
            _, reply = client.receive(OffsetCommitRequest.API_KEY, 8)
            (code,) = {ErrorCode(slot.error_code) for slot in reply.topics[0].partitions}
            assert code is ErrorCode.NONE or code in MOVING
            if code in MOVING:
                refused.append(group)
        return refused

    def committed(self, node_id: int, groups: list[str]) -> list[Any]:
        """What a broker says, as soon as it says anything: topics of each group."""
        deadline = time.monotonic() + DEADLINE_S
        asked = [OffsetFetchRequestGroup(group, topics=None) for group in groups]
        while True:
            assert time.monotonic() < deadline, "the groups are never served"
            with FrameClient(self.port(node_id)) as client:
                answers = client.call(OffsetFetchRequest(groups=asked), 8).groups
            codes = {ErrorCode(answer.error_code) for answer in answers}
            if codes == {ErrorCode.NONE}:
                return [answer.topics for answer in answers]
            assert codes <= MOVING
            time.sleep(0.02)

    def check(self, node_id: int, groups: list[str], offset: int) -> None:
        for at in range(0, len(groups), 500):
            for topics in self.committed(node_id, groups[at : at + 500]):
                (topic,) = topics
                found = {slot.partition_index: slot.committed_offset for slot in topic.partitions}
                assert found == {index: offset + index for index in range(4)}

    def listed(self) -> set[str]:
        """The groups of all brokers together; empty while some are being loaded."""
        names: set[str] = set()
        for broker in self.cluster.brokers:
            if broker.is_running:
                with FrameClient(self.port(broker.node_id)) as client:
                    reply = client.call(ListGroupsRequest(), 5)
                if reply.error_code:
                    return set()
                names.update(group.group_id for group in reply.groups)
        return names


@pytest.fixture
def story(make_cluster: Callable[..., Any]) -> Iterator[Story]:
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.segment.bytes": "1048576",
        "group.initial.rebalance.delay.ms": "0",
        "min.insync.replicas": "2",
    }
    yield Story(make_cluster(brokers=3, settings=settings))


@pytest.mark.slow
def test_ten_thousand_groups_are_served_soon_after_their_coordinator_is_killed(
    story: Story,
) -> None:
    groups = [f"group-{number}" for number in range(10_000)]
    story.commit(groups, 100)
    story.commit(groups[:1000], 200)
    killed = story.coordinator()
    survivors = [each.pid for each in story.cluster.brokers if each.node_id != killed]
    story.cluster.brokers[killed].kill()
    stopwatch = Stopwatch(story.cluster.controller.pid, beside=survivors)
    heir = story.coordinator(but=killed)
    story.committed(heir, ["group-0"])
    assert stopwatch.elapsed_s() < LOAD_S_MAX
    story.check(heir, groups[:1000], 200)
    story.check(heir, groups[1000:], 100)
    assert story.listed() == set(groups)
    # The one that was killed follows again, and loads what was committed without it.
    story.commit(groups[:10], 300)
    story.cluster.brokers[killed].start()
    assert story.cluster.brokers[heir].stop() == 0
    third = story.coordinator(but=heir)
    story.check(third, groups[:10], 300)
    story.check(third, groups[1000:2000], 100)


def test_a_client_that_does_not_wait_for_its_commit_reads_it(story: Story) -> None:
    story.commit(["g"], 0)
    coordinator = story.coordinator()
    partitions = [OffsetCommitRequestPartition(index, 7 + index) for index in range(4)]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    asked = [OffsetFetchRequestGroup("g", topics=None)]
    with FrameClient(story.port(coordinator)) as client:
        client.send(OffsetCommitRequest(group_id="g", topics=topics), 8)
        client.send(OffsetFetchRequest(groups=asked), 8)
        _, committed = client.receive(OffsetCommitRequest.API_KEY, 8)
        assert {slot.error_code for slot in committed.topics[0].partitions} == {0}
        _, answer = client.receive(OffsetFetchRequest.API_KEY, 8)
    (topic,) = answer.groups[0].topics
    found = {slot.partition_index: slot.committed_offset for slot in topic.partitions}
    assert found == {index: 7 + index for index in range(4)}


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_members_go_on_where_they_were_when_their_coordinator_ends(story: Story, end: str) -> None:
    producer = Producer({"bootstrap.servers": story.cluster.bootstrap})
    members = [Member(story.cluster.bootstrap) for _ in range(2)]
    seen: list[tuple[int, int]] = []

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (len(seen), [each.errors for each in members])
            for member in members:
                seen.extend(member.poll())

    for number in range(1000):
        producer.produce(TOPIC, b"%d" % number, partition=number % 4)
    until(lambda: len(set(seen)) == 1000 and all(each.count == 2 for each in members))
    coordinator = story.cluster.brokers[story.coordinator()]
    if end == "kill":
        coordinator.kill()
    else:
        assert coordinator.stop() == 0
    for number in range(1000):
        producer.produce(TOPIC, b"%d" % number, partition=number % 4)
    until(lambda: len(set(seen)) == 2000 and not any(each.owes_commit for each in members))
    assert producer.flush(DEADLINE_S) == 0
    assert [each.lost for each in members] == [0, 0]
    # One after the other: librdkafka's close can wait for itself for ever where the member is given
    # partitions meanwhile, because another one has just left.
    members.pop().consumer.close()
    until(lambda: members[0].count == 4)
    members[0].consumer.close()
    # Nothing was skipped, and what was committed is what was read.
    assert sorted(set(seen)) == [(index, at) for index in range(4) for at in range(500)]
    heir = story.coordinator(but=coordinator.node_id)
    ((topic,),) = story.committed(heir, ["members"])
    assert {slot.committed_offset for slot in topic.partitions} == {500}


def test_a_coordinator_that_was_stopped_and_wakes_tells_nothing_of_what_it_knew(
    story: Story,
) -> None:
    """It remembers an offset that has been committed anew at the coordinator after it."""
    story.commit(["g"], 100)
    frozen = story.cluster.brokers[story.coordinator()]
    partitions = [OffsetCommitRequestPartition(0, 200)]
    commit = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    )
    with FrameClient(story.port(frozen.node_id)) as client:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        assert client.call(asked, 8).groups[0].error_code == 0
        stand_still(frozen.pid)
        stopped_s = time.monotonic()
        try:
            # Waits in the socket until the broker wakes.
            client.send(asked, 8)
            heir = story.coordinator(but=frozen.node_id)
            story.committed(heir, ["g"])
            with FrameClient(story.port(heir)) as other:
                (slot,) = other.call(commit, 8).topics[0].partitions
                assert slot.error_code == 0
            # The controller counts from the last heartbeat, the broker from the stop.
            left_s = stopped_s + 1.1 * SESSION_TIMEOUT_MS / 1000 - time.monotonic()
            time.sleep(max(left_s, 0))
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        _, answer = client.receive(OffsetFetchRequest.API_KEY, 8)
        assert ErrorCode(answer.groups[0].error_code) is ErrorCode.NOT_COORDINATOR


class Member:
    """A consumer that commits after each poll."""

    def __init__(self, bootstrap: str) -> None:
        self.lost = 0
        self.owes_commit = False
        self.errors: list[str] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "members",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([TOPIC], on_lost=self._on_lost)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self.lost += len(partitions)

    @property
    def count(self) -> int:
        return len(self.consumer.assignment())

    def poll(self) -> list[tuple[int, int]]:
        messages = [each for each in self.consumer.consume(200, 0.05) if each.error() is None]
        self.owes_commit |= bool(messages)
        if self.owes_commit:
            try:
                self.consumer.commit(asynchronous=False)
                self.owes_commit = False
            except KafkaException as error:
                # A rebalance is under way, or the coordinator moves: again after the next poll.
                self.errors.append(str(error))
        return [(each.partition(), each.offset()) for each in messages]
