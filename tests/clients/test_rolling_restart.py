"""Every client goes on working while brokers are restarted one after another, and when one dies.

All clients ride at once, each on a topic of its own with three replicas, two of them at least in
sync, acks=all and idempotent. Afterwards each must have seen no error at all, and must have read
every record once, in order.
"""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clients_under_test import CLIENT_NAMES
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from needed_tools import is_on_the_path, missing
from proofs import CLIENT_RIDES
from rides import AioKafkaRide, ConfluentRide, JavaConsoleRide, KafkaPythonRide, KcatRide, Ride
from starvation import StarvationWatch

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
FLOWING_COUNT = 60
DEADLINE_S = 60
PYTHON_RIDES = (ConfluentRide, KafkaPythonRide, AioKafkaRide)


@pytest.fixture(scope="module")
def cluster(
    is_kafka: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FairleadCluster | KafkaCluster]:
    data = tmp_path_factory.mktemp("three")
    started = KafkaCluster(ensure_kafka(), data) if is_kafka else FairleadCluster(data)
    with started:
        started.start()
        wait_until_serving(started)
        yield started
    gc.collect()  # while that warning is ignored


@pytest.fixture(scope="module")
def starvation(cluster: FairleadCluster | KafkaCluster) -> Iterator[StarvationWatch]:
    """Who could not run on a busy machine, and was given up for that."""
    with StarvationWatch(lambda: cluster.pids) as watch:
        yield watch


@pytest.fixture(scope="module")
def make_rides(cluster: FairleadCluster | KafkaCluster) -> Callable[[], list[Ride]]:
    """A ride of every client that this machine has."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})

    def make_topic(ride: type[Ride]) -> str:
        name = f"ride-{ride.name.replace(' ', '-').lower()}-{time.monotonic_ns()}"
        topic = NewTopic(name, ride.partitions, REPLICAS, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[name].result(DEADLINE_S)
        wait_until_in_sync(cluster, partitions=ride.partitions, topics=[name])
        return name

    def make() -> list[Ride]:
        rides: list[Ride] = [ride(cluster.bootstrap, make_topic(ride)) for ride in PYTHON_RIDES]
        if is_on_the_path("kcat"):
            rides.append(KcatRide(cluster.bootstrap, make_topic(KcatRide)))
        try:
            tools = JavaTools(ensure_kafka(), cluster.bootstrap)
        except KafkaUnavailableError:
            return rides
        rides.append(JavaConsoleRide(cluster.bootstrap, make_topic(JavaConsoleRide), tools))
        return rides

    return make


def restart_one_after_another(
    cluster: FairleadCluster | KafkaCluster, rides: list[Ride], starvation: StarvationWatch
) -> None:
    before = len(cluster.fencings())
    for index in range(len(cluster.ports)):
        cluster.stop_broker(index)
        cluster.start_broker(index)
        wait_until_whole(cluster, rides)
        lead_where_preferred(cluster, [ride for ride in rides if isinstance(ride, KcatRide)])
        wait_until_flowing(rides)
    given_up = starvation.judged(cluster.fencings()[before:])
    assert not given_up, "a broker that said goodbye was taken for dead"


def kill_one(
    cluster: FairleadCluster | KafkaCluster, rides: list[Ride], starvation: StarvationWatch
) -> None:
    before = len(cluster.fencings())
    cluster.kill_broker(1)
    wait_until_flowing(rides)
    # What the benchmark counts as "given up" is what is said here. Kafka waits nine seconds.
    given_up = starvation.judged(cluster.fencings()[before:])
    assert isinstance(cluster, KafkaCluster) or len(given_up) == 1, given_up
    cluster.start_broker(1)
    wait_until_whole(cluster, rides)


FAULTS = {"rolling restart": restart_one_after_another, "kill -9": kill_one}


def lead_where_preferred(cluster: FairleadCluster | KafkaCluster, rides: list[Ride]) -> None:
    """Give each broker its share of what is read again.

    kcat ends once all connections of its librdkafka have been lost, and that connects to leaders
    alone: without this, the next broker to stop may be the only one that it is connected to.
    """
    if not rides:
        return
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    places = [TopicPartition(ride.topic, index) for ride in rides for index in ride.found]
    answers = admin.elect_leaders(ElectionType.PREFERRED, places).result(DEADLINE_S)
    assert {error.name() for error in answers.values() if error} <= {"ELECTION_NOT_NEEDED"}


def wait_until_whole(cluster: FairleadCluster | KafkaCluster, rides: list[Ride]) -> None:
    topics = [ride.topic for ride in rides]
    partitions = sum(ride.partitions for ride in rides)
    wait_until_in_sync(cluster, partitions=partitions, topics=topics)


def wait_until_flowing(rides: list[Ride]) -> None:
    """Until each has read a number of records more on every partition, or has failed."""
    goals = [
        (ride, index, len(found) + FLOWING_COUNT // ride.partitions)
        for ride in rides
        for index, found in ride.found.items()
    ]
    deadline = time.monotonic() + DEADLINE_S
    while goals:
        goals = [
            (ride, index, count)
            for ride, index, count in goals
            if len(ride.found[index]) < count and not ride.errors
        ]
        stuck = {(ride.name, index) for ride, index, _ in goals}
        assert time.monotonic() < deadline, f"nothing is read any more: {stuck}"
        time.sleep(0.02)


@pytest.fixture(scope="module", params=FAULTS)
def journeys(
    request: pytest.FixtureRequest,
    cluster: FairleadCluster | KafkaCluster,
    make_rides: Callable[[], list[Ride]],
    starvation: StarvationWatch,
) -> dict[str, Ride]:
    """What became of each client's ride through one kind of fault."""
    rides = make_rides()
    for ride in rides:
        ride.start()
    try:
        wait_until_flowing(rides)
        FAULTS[request.param](cluster, rides, starvation)
        wait_until_flowing(rides)
    finally:
        for ride in rides:
            ride.finish()
    return {ride.name: ride for ride in rides}


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_no_error_reaches_the_application(journeys: dict[str, Ride], name: str) -> None:
    ride: Any = journeys.get(name) or missing(f"no {name} here")
    assert not ride.errors, ride.errors[:3]


@pytest.mark.parametrize("name", CLIENT_NAMES)
def test_nothing_is_lost_doubled_or_out_of_order(journeys: dict[str, Ride], name: str) -> None:
    ride: Any = journeys.get(name) or missing(f"no {name} here")
    assert len(ride.acknowledged) == ride.sent_count > 0
    for partition, numbers in ride.found.items():
        assert numbers == ride.expected(partition)
