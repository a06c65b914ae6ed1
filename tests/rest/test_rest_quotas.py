"""Quotas of those who come by HTTP: what is too much is refused, and told when it is not."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from rest_client import V2_JSON, RestClient, make_topic, read_topic
from waiting import wait_until

from fairlead_cli.client.quotas import alter_quotas
from fairlead_cli.client.wire_call import call_broker
from fairlead_model.security.client_quota import CLIENT_ID, QuotaEntity
from fairlead_wire.messages.describe_client_quotas import DescribeClientQuotasRequest

REST: QuotaEntity = ((CLIENT_ID, "rest"),)
WINDOWS_S = 10
V2 = "application/vnd.kafka.v2+json"
SetQuotas = Callable[..., None]


@pytest.fixture(scope="module")
def client(rest_cluster: Any) -> RestClient:
    return RestClient(rest_cluster.brokers[0].rest_url)


@pytest.fixture(scope="module")
def admin(rest_cluster: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": rest_cluster.bootstrap})


@pytest.fixture
def topic(rest_cluster: Any) -> str:
    return make_topic(rest_cluster, 1)


@pytest.fixture
def quotas(rest_cluster: Any, admin: AdminClient) -> Iterator[SetQuotas]:
    """Sets quotas of the client id that everybody has who comes by HTTP, and takes them away."""
    given: dict[str, float | None] = {}

    def set_quotas(**values: float | None) -> None:
        given.update(values)
        alter_quotas(admin, REST, values)
        wanted = {key: value for key, value in given.items() if value is not None}
        for broker in rest_cluster.brokers:
            wait_until(lambda broker=broker: quotas_of(broker) == wanted)  # type: ignore[misc]

    try:
        yield set_quotas
    finally:
        alter_quotas(admin, REST, dict.fromkeys(given))


def quotas_of(broker: Any) -> dict[str, float]:
    """What a broker goes by: those that were not asked hear of a change a little later."""
    host, _, port = broker.address.rpartition(":")
    entries = call_broker(host, int(port), DescribeClientQuotasRequest(), 1).entries
    return {value.key: value.value for entry in entries for value in entry.values}


def record(size: int) -> dict[str, Any]:
    return {"value": {"type": "JSON", "data": "x" * size}}


def assert_refused(reply: Any, *, least_s: int, most_s: int) -> None:
    assert reply.status == 429
    assert reply.json["error_code"] == 429
    assert "a quota is used up; try again in" in reply.json["message"]
    assert least_s <= int(reply.headers["Retry-After"]) <= most_s


def test_who_has_written_too_much_is_told_when_to_come_back(
    rest_cluster: Any, client: RestClient, topic: str, quotas: SetQuotas
) -> None:
    quotas(producer_byte_rate=1000)
    # What takes the rate above the quota is written, as of a Kafka client.
    assert client.records(topic, record(50_000)).reports[0]["error_code"] == 200
    many = {"records": [{"value": "a"}]}
    batch = {"entries": [{"id": "a", **record(1)}]}
    for reply in (
        client.records(topic, record(1)),
        client.post(f"/topics/{topic}", many, content_type=V2_JSON),
        client.post(f"{client.v3}/topics/{topic}/records:batch", batch),
    ):
        assert_refused(reply, least_s=20, most_s=41)
    # Each broker counts for itself, and what does not write is not held back.
    other = RestClient(rest_cluster.brokers[2].rest_url)
    assert other.records(topic, record(1)).status == 200
    assert client.get(f"{client.v3}/topics/{topic}").status == 200
    quotas(producer_byte_rate=None)
    assert client.records(topic, record(1)).reports[0]["error_code"] == 200
    assert len(read_topic(rest_cluster.bootstrap, topic, 1, 3)) == 3


def test_records_of_a_stream_are_refused_one_by_one(
    rest_cluster: Any, topic: str, quotas: SetQuotas
) -> None:
    # Another broker: what was written at the first one still counts there.
    client = RestClient(rest_cluster.brokers[1].rest_url)
    quotas(producer_byte_rate=1000)
    # The first fills a batch by itself, and the others come after some blanks, when it is counted.
    reply = client.records(topic, record(600_000), b" " * 200_000, record(1), record(2))
    assert reply.status == 200
    first, *others = reply.reports
    assert first["error_code"] == 200
    assert [each["error_code"] for each in others] == [429, 429]
    assert "try again in" in others[0]["message"]
    assert len(read_topic(rest_cluster.bootstrap, topic, 1, 1)) == 1


def test_who_has_read_too_much_is_told_when_to_come_back(
    rest_cluster: Any, client: RestClient, topic: str, quotas: SetQuotas
) -> None:
    # Two of them are worth more seconds than ever pass between two requests.
    client.records(topic, *(record(8_000) for _ in range(5)))
    quotas(consumer_byte_rate=1000)
    path = f"/topics/{topic}/partitions/0/records?format=json&offset="
    reply = client.get(f"{path}0")
    # No read answers more than fits into all windows.
    assert [each["offset"] for each in reply.json] == [0]
    reply = client.get(f"{path}1")
    assert [each["offset"] for each in reply.json] == [1]
    assert_refused(client.get(f"{path}2"), least_s=1, most_s=8)
    # Kafka clients with another id go on.
    assert len(read_topic(rest_cluster.bootstrap, topic, 1, 5)) == 5
    wait_until(lambda: client.get(f"{path}2").status == 200)


def test_a_group_goes_on_where_it_was_refused(
    rest_cluster: Any, topic: str, quotas: SetQuotas
) -> None:
    client = RestClient(rest_cluster.brokers[1].rest_url)
    client.records(topic, *(record(8_000) for _ in range(3)))
    group = f"/consumers/g-{uuid.uuid4().hex[:8]}"
    made = {"name": "one", "format": "json", "auto.offset.reset": "earliest"}
    assert client.post(group, made, content_type=V2).status == 200
    instance = f"{group}/instances/one"
    client.post(f"{instance}/subscription", {"topics": [topic]}, content_type=V2)
    quotas(consumer_byte_rate=1000)
    found: list[int] = []
    refused: list[int] = []

    def read() -> bool:
        reply = client.get(f"{instance}/records", headers={"Accept": V2_JSON})
        if reply.status == 429:
            refused.append(int(reply.headers["Retry-After"]))
        else:
            found.extend(each["offset"] for each in reply.json)
        return bool(refused) and len(found) == 3

    wait_until(read)
    assert found == [0, 1, 2]
    assert client.ask("DELETE", instance, content_type=V2).status == 204


def test_a_stream_of_events_stays_open_and_waits(
    rest_cluster: Any, topic: str, quotas: SetQuotas
) -> None:
    client = RestClient(rest_cluster.brokers[2].rest_url)
    rate, size, count = 200_000, 110_000, 20
    for _ in range(count):
        client.records(topic, record(size))
    quotas(consumer_byte_rate=rate)
    began = time.monotonic()
    with client.socket() as connection, connection.makefile("rb") as answer:
        path = f"/topics/{topic}/partitions/0/records?format=json&offset=earliest"
        head = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
        connection.sendall(head.encode())
        offsets: list[int] = []
        while len(offsets) < count:
            line = answer.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                offsets.append(json.loads(line[6:])["offset"])
    assert offsets == list(range(count))
    # What it gave above what fits into all windows took its time.
    assert time.monotonic() - began >= (count * size - WINDOWS_S * rate - 2 * size) / rate
    page = RestClient(f"http://127.0.0.1:{rest_cluster.brokers[2].http_port}").get("/metrics")
    assert 'fairlead_throttles_total{quota="fetch"}' in page.body.decode()


def test_topics_made_too_fast_are_refused(
    client: RestClient, admin: AdminClient, quotas: SetQuotas
) -> None:
    quotas(controller_mutation_rate=1)
    names = [f"m-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    statuses = [
        client.post(f"{client.v3}/topics", {"topic_name": name, "partitions_count": 40}).status
        for name in names
    ]
    with suppress(Exception):
        admin.delete_topics(names[:1])[names[0]].result(60)
    assert statuses == [201, 429]
