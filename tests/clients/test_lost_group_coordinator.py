"""A transactional producer of librdkafka finds the next coordinator of its group.

It forgets a broker that Metadata no longer names, but not that this broker coordinated the group.
`send_offsets_to_transaction` then waits, whatever its time-out, until a connection to some broker
opens or breaks (librdkafka's issues 5511 and 5456; with Apache Kafka too). The producer's
`connections.max.idle.ms` sees to that, as docs/transactions.md says.
"""

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.loads.coordinator_lookup import KeyType, find_coordinator
from fairlead_bench.peers.cluster_state import ask_metadata, wait_until_in_sync, wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import ensure_kafka

pytestmark = pytest.mark.slow

ANSWER_S = 60
IDLE_MS = 5_000
"""What docs/transactions.md recommends."""
UNNAMED_S = 60
"""A dead broker has left Metadata by then."""
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.min.isr": "2",
}


@pytest.fixture
def cluster(
    is_kafka: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FairleadCluster | KafkaCluster]:
    data = tmp_path_factory.mktemp("lost-coordinator")
    kafka = KafkaCluster(ensure_kafka(), data, SETTINGS) if is_kafka else None
    with kafka or FairleadCluster(data, SETTINGS) as started:
        started.start()
        wait_until_serving(started)
        yield started


def coordinator_of(cluster: FairleadCluster | KafkaCluster, key: str, key_type: KeyType) -> int:
    """Return the index of a coordinator, once there is one."""
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        broker_id = find_coordinator(cluster.ports[0], key, key_type)
        if broker_id is not None:
            return broker_id - cluster.broker_id(0)
        time.sleep(0.1)
    raise TimeoutError(f"{key} has no coordinator")


def wait_until_unnamed(cluster: FairleadCluster | KafkaCluster, lost: int) -> None:
    deadline = time.monotonic() + UNNAMED_S
    for index, port in enumerate(cluster.ports):
        while index != lost and ask_metadata(port).brokers_count == len(cluster.ports):
            assert time.monotonic() < deadline, "the dead broker is still named"
            time.sleep(0.2)


def test_offsets_reach_the_next_coordinator(cluster: FairleadCluster | KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("carried", 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["carried"].result(ANSWER_S)
    wait_until_in_sync(cluster, partitions=1, topics=["carried"])
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "carrier",
            "connections.max.idle.ms": IDLE_MS,
        }
    )
    producer.init_transactions(ANSWER_S)
    transactions = coordinator_of(cluster, "carrier", KeyType.TRANSACTION)
    # Where one broker coordinates both, the producer notices by itself that it is gone.
    group, lost = next(
        (name, index)
        for name in (f"group-{number}" for number in range(100))
        if (index := coordinator_of(cluster, name, KeyType.GROUP)) != transactions
    )
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})

    def carry(offset: int) -> None:
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("carried", 0, offset)], consumer.consumer_group_metadata(), ANSWER_S
        )
        producer.commit_transaction(ANSWER_S)

    carry(1)
    cluster.kill_broker(lost)
    wait_until_unnamed(cluster, lost)
    producer.list_topics(timeout=ANSWER_S)  # the producer hears of it
    # In a thread of its own: its time-out does not hold.
    carrying = threading.Thread(target=carry, args=(2,), daemon=True)
    carrying.start()
    carrying.join(ANSWER_S)
    assert not carrying.is_alive(), "send_offsets_to_transaction waits for the dead broker"
    (committed,) = consumer.committed([TopicPartition("carried", 0)], timeout=ANSWER_S)
    assert committed.offset == 2
    consumer.close()
