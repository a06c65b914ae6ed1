"""v3's and v2's resources: what a Kafka client did is seen by HTTP, and the other way round."""

import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from rest_client import RestClient, make_topic
from waiting import wait_until


@pytest.fixture(scope="module")
def client(rest_cluster: Any) -> RestClient:
    return RestClient(rest_cluster.brokers[1].rest_url)


@pytest.fixture(scope="module")
def admin(rest_cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": rest_cluster.bootstrap})


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def test_cluster_and_brokers(rest_cluster: Any, client: RestClient, admin: AdminClient) -> None:
    metadata = admin.list_topics(timeout=60)
    cluster = client.get(client.v3).json
    assert cluster["kind"] == "KafkaCluster"
    assert cluster["cluster_id"] == metadata.cluster_id
    brokers = client.get(f"{client.v3}/brokers").json["data"]
    told = {(each["broker_id"], each["host"], each["port"]) for each in brokers}
    assert told == {(each.id, each.host, each.port) for each in metadata.brokers.values()}
    assert client.get(f"{client.v3}/brokers/2").json == brokers[2]
    assert client.get(f"{client.v3}/brokers/7").status == 404
    assert client.get("/v3/clusters/another").status == 404
    assert client.get("/brokers").json == {"brokers": [0, 1, 2]}
    for broker in range(3):
        path = f"{client.v3}/brokers/{broker}/configs/node.id"
        assert client.get(path).json["value"] == str(broker)


def test_a_topic_lives(client: RestClient, admin: AdminClient, name: str) -> None:
    body = {
        "topic_name": name,
        "partitions_count": 2,
        "replication_factor": 3,
        "configs": [{"name": "retention.ms", "value": "60000"}],
    }
    dry = client.post(f"{client.v3}/topics", body | {"validate_only": True})
    assert dry.status == 200
    assert client.get(f"{client.v3}/topics/{name}").json["error_code"] == 40401
    made = client.post(f"{client.v3}/topics", body)
    assert made.status == 201
    assert made.json["partitions_count"] == 2
    wait_until(lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == 2)
    again = client.post(f"{client.v3}/topics", body)
    assert (again.status, again.json["error_code"]) == (400, 40002)
    assert name in [each["topic_name"] for each in client.get(f"{client.v3}/topics").json["data"]]
    assert name in client.get("/topics").json
    path = f"{client.v3}/topics/{name}"
    assert client.get(f"{path}/configs/retention.ms").json["value"] == "60000"
    assert client.ask("PUT", f"{path}/configs/retention.ms", {"value": "70000"}).status == 204
    change = {"data": [{"name": "cleanup.policy", "value": "compact"},
                       {"name": "retention.ms", "operation": "DELETE"}]}  # fmt: skip
    assert client.post(f"{path}/configs:alter", change).status == 204
    configs = {each["name"]: each for each in client.get(f"{path}/configs").json["data"]}
    assert configs["cleanup.policy"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert configs["retention.ms"]["is_default"]
    assert client.ask("DELETE", f"{path}/configs/retention.ms").status == 204
    assert client.ask("DELETE", f"{path}/configs/no.such").status == 404
    assert client.ask("DELETE", f"{path}/configs%3Aalter").status == 405
    refused = client.ask("PUT", f"{path}/configs/retention.ms", {"value": "soon"})
    assert (refused.status, refused.json["error_code"]) == (400, 40002)
    assert client.ask("PATCH", path, {"partitions_count": 4}).json["partitions_count"] == 4
    assert client.ask("DELETE", path).status == 204
    assert client.ask("DELETE", path).json["error_code"] == 40401
    wait_until(lambda: name not in admin.list_topics(timeout=60).topics)


def test_a_new_topic_with_one_config_twice_is_refused(client: RestClient, name: str) -> None:
    """Which of two values counts is not for the broker to choose; `configs:alter` refuses it."""
    configs = [{"name": "retention.ms", "value": value} for value in ("60000", "70000")]
    refused = client.post(f"{client.v3}/topics", {"topic_name": name, "configs": configs})
    assert (refused.status, refused.json["error_code"]) == (400, 40002)
    assert refused.json["message"] == "retention.ms is named twice"
    assert client.get(f"{client.v3}/topics/{name}").status == 404


def test_partitions_replicas_and_offsets(
    rest_cluster: Any, client: RestClient, admin: AdminClient, name: str
) -> None:
    make_topic(rest_cluster, 3, name=name)
    producer = Producer({"bootstrap.servers": rest_cluster.bootstrap})
    for number in range(5):
        producer.produce(name, b"%d" % number, partition=2)
    assert producer.flush(60) == 0
    path = f"{client.v3}/topics/{name}/partitions"
    told = admin.list_topics(name, timeout=60).topics[name].partitions
    for each in client.get(path).json["data"]:
        index = each["partition_id"]
        assert each["leader"]["related"].endswith(f"/replicas/{told[index].leader}")
        replicas = client.get(f"{path}/{index}/replicas").json["data"]
        assert [replica["broker_id"] for replica in replicas] == told[index].replicas
        assert [r["broker_id"] for r in replicas if r["is_leader"]] == [told[index].leader]
        offsets = client.get(f"{path}/{index}/offset").json
        expected = 5 if index == 2 else 0
        assert (offsets["earliest_offset"], offsets["latest_offset"]) == (0, expected)
    assert client.get(f"/topics/{name}/partitions/2/offsets").json == {
        "beginning_offset": 0,
        "end_offset": 5,
    }
    assert client.get(f"/topics/{name}").json["partitions"][1]["leader"] == told[1].leader
    assert client.get(f"{path}/3").json["error_code"] == 40402
    assert client.get(f"{path}/-1").status == 404
    on_broker = client.get(f"{client.v3}/brokers/0/partition-replicas").json["data"]
    assert {r["partition_id"] for r in on_broker if r["topic_name"] == name} == {0, 1, 2}


@pytest.fixture(params=["classic", "consumer"])
def group(rest_cluster: Any, name: str, request: Any) -> Iterator[str]:
    """A group with one member that has read three of five records."""
    make_topic(rest_cluster, 1, name=name)
    producer = Producer({"bootstrap.servers": rest_cluster.bootstrap})
    for number in range(5):
        producer.produce(name, b"%d" % number)
    assert producer.flush(60) == 0
    group_id = f"g/{name}"
    consumer = Consumer(
        {
            "bootstrap.servers": rest_cluster.bootstrap,
            "group.id": group_id,
            "client.id": "reader",
            "group.protocol": request.param,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    deadline = time.monotonic() + 40
    while not consumer.consume(1, timeout=0.5):
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    yield group_id
    consumer.close()


@pytest.mark.parametrize("broker", range(3))
def test_groups_are_seen_from_every_broker(
    rest_cluster: Any, group: str, name: str, broker: int
) -> None:
    client = RestClient(rest_cluster.brokers[broker].rest_url)
    path = f"{client.v3}/consumer-groups/{group.replace('/', '%2F')}"
    wait_until(lambda: client.get(path).json.get("state") == "STABLE")
    listed = client.get(f"{client.v3}/consumer-groups").json["data"]
    assert group in [each["consumer_group_id"] for each in listed]
    (consumer,) = client.get(f"{path}/consumers").json["data"]
    assert consumer["client_id"] == "reader"
    # librdkafka's ids are base64, slashes included.
    consumer_id = quote(consumer["consumer_id"], safe="")
    (assignment,) = client.get(f"{path}/consumers/{consumer_id}/assignments").json["data"]
    assert (assignment["topic_name"], assignment["partition_id"]) == (name, 0)
    (lag,) = client.get(f"{path}/lags").json["data"]
    assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (3, 5, 2)
    assert lag["consumer_id"] == consumer["consumer_id"]
    assert client.get(f"{path}/lags/{name}/partitions/0").json == lag
    summary = client.get(f"{path}/lag-summary").json
    assert (summary["max_lag"], summary["total_lag"]) == (2, 2)
    assert summary["max_lag_consumer_id"] == consumer["consumer_id"]
    assert client.get(f"{client.v3}/consumer-groups/nobody").status == 404
