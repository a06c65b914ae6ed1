"""A broker dies under HTTP clients: others take over, within the time of a request."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from rest_client import RestClient, make_topic, read_topic, write_after_a_kill
from waiting import wait_until

OFFSETS = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "8"}
SETTINGS = {"fairlead.rest.listener": "127.0.0.1:0", "default.replication.factor": "3"}
SILENT_S = 1.2
"""Longer than a read takes as a rule; a broker that is silent for that time is not dead yet."""


def test_what_a_dead_broker_led_is_written_to_its_successor(make_cluster: Any) -> None:
    cluster = make_cluster(brokers=3, settings=SETTINGS, is_patient=True)
    make_topic(cluster, 6, name="t")
    client = RestClient(cluster.brokers[0].rest_url)
    # Once before, so that connections to the broker that is killed are open.
    everywhere = [{"partition_id": index} for index in range(6)]
    codes = [each["error_code"] for each in client.records("t", *everywhere).reports]
    assert codes == [200] * 6
    cluster.brokers[2].kill()
    for index in range(6):
        write_after_a_kill(client, "t", {"partition_id": index})
    assert len(read_topic(cluster.bootstrap, "t", 6, 12)) == 12
    assert client.get("/topics/t").json["partitions"][0]["leader"] != 2


@pytest.mark.parametrize("query", ["timeout=0", "timeout=500", "offset=latest&timeout=0"])
def test_a_read_waits_for_a_leader_that_has_no_processor(make_cluster: Any, query: str) -> None:
    cluster = make_cluster(brokers=3, settings=SETTINGS, is_patient=True)
    make_topic(cluster, 6, name="t")
    client = RestClient(cluster.brokers[0].rest_url)
    partitions = client.get("/topics/t").json["partitions"]
    index = next(each["partition"] for each in partitions if each["leader"] == 2)
    leader = cluster.brokers[2].pid
    path = f"/topics/t/partitions/{index}/records?{query}"
    with ThreadPoolExecutor(1) as pool:
        os.kill(leader, signal.SIGSTOP)
        try:
            reading = pool.submit(client.get, path)
            time.sleep(SILENT_S)
        finally:
            os.kill(leader, signal.SIGCONT)
        reply = reading.result()
    assert (reply.status, reply.json) == (200, []), reply.body


def test_groups_are_listed_while_a_broker_stands_still(make_cluster: Any) -> None:
    """The broker that was asked is silent until it is fenced; its groups are then elsewhere."""
    cluster = make_cluster(brokers=3, settings=SETTINGS | OFFSETS)
    make_topic(cluster, 1, name="t")
    groups = [f"g{number}" for number in range(8)]
    for group in groups:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
        wait_until(lambda: commits(consumer))  # noqa: B023  # now
        consumer.close()
    client = RestClient(cluster.brokers[0].rest_url)
    path = f"{client.v3}/consumer-groups"
    wait_until(lambda: list_groups(client, path) == (200, groups))
    still = cluster.brokers[2].pid
    os.kill(still, signal.SIGSTOP)
    try:
        status, _ = list_groups(client, path)
        assert status == 200
        # The successors have read the groups of this broker once they are listed again.
        wait_until(lambda: list_groups(client, path) == (200, groups))
    finally:
        os.kill(still, signal.SIGCONT)


def commits(consumer: Consumer) -> bool:
    """Commit; tell whether the coordinator took it: that may be a moment behind."""
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    except KafkaException:
        return False
    return True


def list_groups(client: RestClient, path: str) -> tuple[int, list[str]]:
    """Return the status of the answer, and the ids of the groups in it."""
    reply = client.get(path)
    return reply.status, [each["consumer_group_id"] for each in reply.json.get("data", ())]
