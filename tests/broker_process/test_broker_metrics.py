"""A real broker's /metrics under a little load: values move as an operator of Kafka expects."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

DEADLINE_S = 60.0
Samples = dict[tuple[str, ...], float]

TRAFFIC = "kafka_server_brokertopicmetrics"
TIMES = "kafka_network_requestmetrics"


def scrape(broker: Any) -> Samples:
    status, text = broker.get("/metrics")
    assert status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def create_topic(cluster: Any, name: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 1, replicas)])[name].result(DEADLINE_S)


def produce(cluster: Any, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def consume(cluster: Any, topic: str, count: int) -> None:
    settings = {"group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    deadline = time.monotonic() + DEADLINE_S
    while read < count and time.monotonic() < deadline:
        read += len(consumer.consume(count, timeout=0.5))
    consumer.close()
    assert read == count


def test_what_clients_do_shows_in_the_metrics(live_cluster: Any) -> None:
    broker = live_cluster.brokers[0]
    create_topic(live_cluster, "watched", 1)
    before = scrape(broker)
    produce(live_cluster, "watched", 500)
    consume(live_cluster, "watched", 500)
    after = scrape(broker)
    assert after[(f"{TRAFFIC}_messagesin_total", "watched")] == 500
    total = (f"{TRAFFIC}_messagesin_total",)
    assert after[total] - before[total] == 500
    assert after[(f"{TRAFFIC}_bytesout_total", "watched")] >= 500
    assert after[(f"{TRAFFIC}_totalproducerequests_total", "watched")] >= 1
    assert after[("kafka_log_log_logendoffset", "watched", "0")] == 500
    for request in ("Produce", "FetchConsumer", "Metadata"):
        count = (f"{TIMES}_totaltimems_count", request)
        assert after[count] > before.get(count, 0)
        assert after[(f"{TIMES}_localtimems_sum", request)] > 0
        assert 0 < after[(f"{TIMES}_totaltimems", request, "0.99")] < 60_000
    assert after[("kafka_server_kafkaserver_brokerstate",)] == 3
    assert after[("fairlead_controller_session_up",)] == 1
    wait_until(lambda: scrape(broker)[("fairlead_controller_silence_seconds",)] < 2)


def test_replication_shows_on_both_sides(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(brokers=2, is_patient=True)
    create_topic(cluster, "copied", 2)
    produce(cluster, "copied", 100)
    led = ("kafka_server_replicamanager_leadercount",)
    leader, follower = sorted(cluster.brokers, key=lambda broker: -scrape(broker)[led])
    # A fetch that waits counts when it is answered, at the latest after replica.fetch.wait.max.ms.
    wait_until(lambda: scrape(leader)[(f"{TIMES}_remotetimems_sum", "FetchFollower")] > 0)
    told = scrape(leader)
    assert told[(f"{TRAFFIC}_replicationbytesout_total",)] > 100
    assert told[(f"{TIMES}_totaltimems_count", "FetchFollower")] > 0
    assert told[("fairlead_follower_lag_records", str(follower.node_id))] == 0
    told = scrape(follower)
    assert told[(f"{TRAFFIC}_replicationbytesin_total",)] > 100
    assert told[("kafka_server_replicafetchermanager_maxlag", "Replica")] == 0


def test_a_follower_that_dies_shows_as_a_shrink(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(brokers=2, is_patient=True)
    create_topic(cluster, "copied", 2)
    produce(cluster, "copied", 10)
    led = ("kafka_server_replicamanager_leadercount",)
    leader, follower = sorted(cluster.brokers, key=lambda broker: -scrape(broker)[led])
    under = ("kafka_server_replicamanager_underreplicatedpartitions",)
    assert scrape(leader)[under] == 0
    follower.kill()
    wait_until(lambda: scrape(leader)[under] == 1)
    follower.start()
    wait_until(lambda: scrape(leader)[under] == 0)
    expanded = ("kafka_server_replicamanager_isrexpands_total",)
    wait_until(lambda: scrape(leader)[expanded] == 1)
