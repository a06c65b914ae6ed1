"""Groups of every client read on while brokers die and restart: no record is ever skipped.

One after another every broker is killed, and then every broker is restarted cleanly: each
coordinator among them. Afterwards each group must have read every record, its members must have
seen no error, and its committed offsets must have been shown in the order of the log.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients_under_test import CLIENT_NAMES, GROUP_SETTINGS
from committed_offsets_log import CommitLog, read_commit_log
from confluent_kafka.admin import AdminClient, NewTopic
from group_member import GroupMember, Membership
from group_rides import (
    PARTITIONS,
    CommitWatch,
    GroupLoad,
    GroupRide,
    is_in_order,
    wait_until_all_read,
)
from library_members import MEMBERS
from member_processes import JavaMember, KcatMember, MemberProcess
from needed_tools import is_on_the_path, missing
from proofs import CLIENT_RIDES
from started_members import library_member

from fairlead_bench.peers.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka

pytestmark = [
    *CLIENT_RIDES.marks,
    pytest.mark.slow,
    # kafka-python and aiokafka leave sockets to the garbage collector when a broker is away.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

REPLICAS = 3
OFFSETS_PARTITIONS = 10
SETTINGS = GROUP_SETTINGS | {
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    # The log of commits is read whole at the end.
    "log.cleaner.min.compaction.lag.ms": "86400000",
}
MEMBERS_EACH = 2
FLOWING_COUNT = 150
DEADLINE_S = 60
MIXED = "three libraries"
NAMES = (*CLIENT_NAMES, MIXED)


@pytest.fixture(scope="module")
def cluster(
    is_kafka: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FairleadCluster | KafkaCluster]:
    data = tmp_path_factory.mktemp("groups")
    started = (
        KafkaCluster(ensure_kafka(), data, SETTINGS)
        if is_kafka
        else FairleadCluster(data, SETTINGS)
    )
    with started:
        started.start()
        wait_until_serving(started)
        yield started
    gc.collect()  # while that warning is ignored


@pytest.fixture(scope="module")
def make_rides(cluster: FairleadCluster | KafkaCluster) -> Callable[[str], list[GroupRide]]:
    """A group of every client that this machine has, and one of three clients."""

    def build(name: str, wish: Membership) -> list[GroupMember | MemberProcess]:
        if name in MEMBERS:
            return [library_member(name, cluster.bootstrap, wish) for _ in range(MEMBERS_EACH)]
        if name == MIXED:
            return [library_member(each, cluster.bootstrap, wish) for each in MEMBERS]
        if name == "kcat":
            is_there = is_on_the_path("kcat")
            return [KcatMember(cluster.bootstrap, wish)] * is_there
        try:
            return [JavaMember(JavaTools(ensure_kafka(), cluster.bootstrap), wish)]
        except KafkaUnavailableError:
            return []

    def make(topic: str) -> list[GroupRide]:
        rides = []
        for name in NAMES:
            group = f"{topic}-{name.replace(' ', '-').lower()}"
            wish = Membership(group, (topic,), auto_commit_ms=300, session_ms=10_000)
            if members := build(name, wish):
                rides.append(GroupRide(name, group, members))
        return rides

    return make


class Journey:
    """What became of the groups."""

    def __init__(
        self, load: GroupLoad, rides: list[GroupRide], watch: CommitWatch, log: CommitLog
    ) -> None:
        self.load, self.watch, self.log = load, watch, log
        self.rides = {ride.name: ride for ride in rides}

    def ride(self, name: str) -> GroupRide:
        ride: Any = self.rides.get(name) or missing(f"no {name} here")
        return ride  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def journey(
    cluster: FairleadCluster | KafkaCluster,
    make_rides: Callable[[str], list[GroupRide]],
) -> Journey:
    topic = f"groups-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    wanted = NewTopic(topic, PARTITIONS, REPLICAS, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(DEADLINE_S)
    wait_until_in_sync(cluster, partitions=PARTITIONS, topics=[topic])
    load, rides = GroupLoad(cluster.bootstrap, topic), make_rides(topic)
    watch = CommitWatch(cluster.bootstrap, [ride.group for ride in rides])

    def wait_until_whole() -> None:
        """The next broker may go: the others have all that it has, the groups' offsets too."""
        topics, partitions = [topic, "__consumer_offsets"], PARTITIONS + OFFSETS_PARTITIONS
        wait_until_in_sync(cluster, partitions=partitions, topics=topics)

    def wait_until_flowing() -> None:
        """What is written from now on is read by every group."""
        count = load.sent_count + FLOWING_COUNT
        wait_until_all_read(load, rides, count=count, timeout_s=DEADLINE_S)

    for ride in rides:
        for member in ride.members:
            member.start()
    load.start()
    try:
        wait_until_flowing()
        watch.start()
        wait_until_whole()
        for index in range(len(cluster.ports)):
            cluster.kill_broker(index)
            wait_until_flowing()
            cluster.start_broker(index)
            wait_until_whole()
        for index in range(len(cluster.ports)):
            cluster.stop_broker(index)
            cluster.start_broker(index)
            wait_until_whole()
            wait_until_flowing()
        load.finish()
        wait_until_all_read(load, rides, count=load.sent_count, timeout_s=DEADLINE_S)
    finally:
        load.finish()
        for ride in rides:
            for member in ride.members:
                member.begin_close()
        for ride in rides:
            for member in ride.members:
                member.close()
        watch.finish()
    return Journey(load, rides, watch, read_commit_log(cluster.bootstrap))


def test_every_record_is_written_once(journey: Journey) -> None:
    assert not journey.load.errors
    assert len(journey.load.acknowledged) == journey.load.sent_count > 0


@pytest.mark.parametrize("name", NAMES)
def test_no_record_is_skipped_and_no_error_seen(journey: Journey, name: str) -> None:
    ride = journey.ride(name)
    assert not ride.missing(journey.load.sent_count)
    assert not ride.misplaced
    assert not ride.errors
    assert not ride.disorder()


@pytest.mark.parametrize("name", NAMES)
def test_committed_offsets_are_shown_in_the_order_of_the_log(journey: Journey, name: str) -> None:
    ride, watch = journey.ride(name), journey.watch
    assert not watch.contradictions(ride.group, journey.log)
    assert watch.has_last_answer
    assert sum(offset or 0 for offset in watch.last(ride.group)) == journey.load.sent_count


@pytest.mark.parametrize("name", ["kafka-python", "aiokafka", "Java console"])
def test_offsets_of_who_commits_in_order_never_go_back(journey: Journey, name: str) -> None:
    assert not journey.watch.went_back(journey.ride(name).group)


@pytest.mark.parametrize("shown", [[9, 3], [3, None], [4], [3, 5, 3, 9, 3], [None]], ids=str)
def test_an_order_that_is_not_that_of_the_log_is_noticed(shown: list[int | None]) -> None:
    assert not is_in_order(shown, [3, 5, 3, 9])


@pytest.mark.parametrize("shown", [[], [3], [9], [5, 3], [3, 5, 3, 9]], ids=str)
def test_an_answer_may_be_missed_between_two(shown: list[int | None]) -> None:
    assert is_in_order(shown, [3, 5, 3, 9])
