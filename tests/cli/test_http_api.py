"""`fairlead up` serves the HTTP API, and `fairlead status` tells where."""

from local_cluster import Cli
from rest_client import RestClient


def test_status_tells_where_the_http_api_is(cluster: Cli) -> None:
    brokers = cluster.status()["brokers"]
    assert [each["rest"] for each in brokers] == [
        f"http://127.0.0.1:{cluster.http_port + 100 + each['id']}" for each in brokers
    ]
    for broker in brokers:
        assert RestClient(broker["rest"]).get("/brokers").status == 200


def test_a_topic_that_a_resource_declares_is_refused(cluster: Cli) -> None:
    client = RestClient(cluster.status()["brokers"][0]["rest"])
    path = f"{client.v3}/topics/orders"
    for reply in (
        client.ask("DELETE", path),
        client.ask("PATCH", path, {"partitions_count": 50}),
        client.ask("PUT", f"{path}/configs/retention.ms", {"value": "1"}),
    ):
        assert (reply.status, reply.json["error_code"]) == (400, 40002)
        assert "orders" in reply.json["message"]
    assert client.get(path).status == 200
