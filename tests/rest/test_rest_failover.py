"""A broker dies under HTTP clients: others take over, within the time of a request."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from rest_client import RestClient, make_topic, read_topic, write_after_a_kill

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
    cluster = make_cluster(brokers=3, settings=SETTINGS)
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
