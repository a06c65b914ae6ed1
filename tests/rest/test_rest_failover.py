"""A broker dies under HTTP clients: others take over, within the time of a request."""

from typing import Any

from rest_client import RestClient, make_topic, read_topic, write_after_a_kill

SETTINGS = {"fairlead.rest.listener": "127.0.0.1:0", "default.replication.factor": "3"}


def test_what_a_dead_broker_led_is_written_to_its_successor(make_cluster: Any) -> None:
    cluster = make_cluster(brokers=3, settings=SETTINGS)
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
