"""Records read by HTTP without a group: what is there, by the deadline."""

import base64
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from marked_transactions import wait_until_marked
from rest_client import V2_BINARY, V2_JSON, Reply, RestClient, make_topic

V2_TEXT = "application/vnd.kafka.text.v2+json"
LATE_S = 20.0
"""How much later than its deadline an answer may come on a machine with other work."""


@pytest.fixture(scope="module")
def client(rest_cluster: Any) -> RestClient:
    return RestClient(rest_cluster.brokers[0].rest_url)


@pytest.fixture
def topic(rest_cluster: Any) -> str:
    return make_topic(rest_cluster)


def produce(cluster: Any, topic: str, *values: Any, **settings: Any) -> None:
    """Write to partition 0, as one batch where that is possible."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, **settings})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def read(
    client: RestClient, topic: str, query: str, accept: str = V2_JSON, index: int = 0
) -> Reply:
    path = f"/topics/{topic}/partitions/{index}/records?{query}"
    return client.get(path, headers={"Accept": accept})


def offsets(reply: Reply) -> list[int]:
    assert reply.status == 200, reply.body
    return [each["offset"] for each in reply.json]


def test_a_record_has_all_its_parts_in_each_form(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": rest_cluster.bootstrap})
    headers = [("h", b"\0"), ("n", None)]
    producer.produce(topic, '{"a": [1, "ä"]}', b"7", 0, headers=headers, timestamp=1_000)
    producer.produce(topic, None, "key", 0, timestamp=2_000)
    assert producer.flush(60) == 0
    common = {"topic": topic, "partition": 0, "offset": 0, "timestamp": 1_000}
    common["headers"] = [{"key": "h", "value": "AA=="}, {"key": "n", "value": None}]
    reply = read(client, topic, "offset=0")
    assert reply.headers["Content-Type"] == V2_JSON
    assert reply.json[0] == {**common, "key": 7, "value": {"a": [1, "ä"]}}
    assert reply.json[1]["value"] is None
    reply = read(client, topic, "offset=0", V2_TEXT)
    assert reply.json[0] == {**common, "key": "7", "value": '{"a": [1, "ä"]}'}
    value = base64.b64encode('{"a": [1, "ä"]}'.encode()).decode()
    for accept in (V2_BINARY, "*/*", "application/vnd.kafka.v2+json", "application/json"):
        assert read(client, topic, "", accept).json[0] == {**common, "key": "Nw==", "value": value}
    assert read(client, topic, "format=string", "*/*").headers["Content-Type"] == V2_TEXT
    assert read(client, topic, "format=string", V2_JSON).status == 406


def test_a_record_that_is_no_json_spoils_no_other(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    bad = [b"\xff", b"{", b"[" * 100_000, b"NaN", b'{"a":1,"a":2}', b'"\\ud800"', b"1e999"]
    produce(rest_cluster, topic, b"1", *bad, b"9" * 5_000, b"2")
    records = read(client, topic, "offset=0").json
    assert [each["value"] for each in records] == [1, *[None] * 8, 2]
    assert [each.get("error", {}).get("error_code") for each in records] == [
        None, *[40801] * 8, None
    ]  # fmt: skip
    assert "byte 0 is not UTF-8" in records[1]["error"]["message"]
    texts = read(client, topic, "offset=0&max_bytes=1000000", V2_TEXT).json
    assert [texts[1]["value"], texts[2]["value"]] == [None, "{"]
    assert texts[1]["error"]["error_code"] == 40801


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_read_begins_and_goes_on_within_a_batch(
    rest_cluster: Any, client: RestClient, topic: str, codec: str
) -> None:
    produce(rest_cluster, topic, *(b"%d" % each for each in range(100)),
            **{"compression.type": codec})  # fmt: skip
    reply = read(client, topic, "offset=37")
    assert [each["value"] for each in reply.json] == list(range(37, 100))
    assert reply.headers["Fairlead-Next-Offset"] == "100"
    found: list[int] = []
    path = f"/topics/{topic}/partitions/0/records?max_bytes=1000&timeout=0&format=json"
    while len(found) < 100:
        reply = client.get(path)
        assert len(reply.body) <= 1_100
        found += offsets(reply)
        link, _, relation = reply.headers["Link"].partition("; ")
        assert relation == 'rel="next"'
        path = link.strip("<>")
        assert "format=json" in path and "max_bytes=1000" in path
    assert found == list(range(100))
    assert offsets(read(client, topic, "offset=5&max_bytes=1")) == [5]


def test_a_read_begins_where_it_says(rest_cluster: Any, client: RestClient, topic: str) -> None:
    producer = Producer({"bootstrap.servers": rest_cluster.bootstrap})
    for timestamp in (1_000, 2_000, 3_000):
        producer.produce(topic, b"1", partition=0, timestamp=timestamp)
    assert producer.flush(60) == 0
    assert offsets(read(client, topic, "")) == [0, 1, 2]
    assert offsets(read(client, topic, "offset=earliest")) == [0, 1, 2]
    assert offsets(read(client, topic, "timestamp=1001")) == [1, 2]
    assert offsets(read(client, topic, "timestamp=1970-01-01T00:00:03Z")) == [2]
    for query in ("offset=latest&timeout=0", "timestamp=3001&timeout=0", "offset=3&timeout=0"):
        reply = read(client, topic, query)
        assert (offsets(reply), reply.headers["Fairlead-Next-Offset"]) == ([], "3")
    reply = read(client, topic, "offset=4")
    assert (reply.status, reply.json["error_code"]) == (400, 40002)
    assert (reply.json["log_start_offset"], reply.json["log_end_offset"]) == (0, 3)
    for query in ("offset=-1", "offset=x", "offset=9223372036854775808", "offset=1&timestamp=1",
                  "timestamp=x", "timeout=-1", "max_bytes=0", "isolation_level=x"):  # fmt: skip
        assert read(client, topic, query).status == 400, query
    assert read(client, topic, "", index=3).json["error_code"] == 40402
    assert read(client, "no-such-topic", "").json["error_code"] == 40401


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_read_ends_with_its_deadline_or_with_a_record(
    client: RestClient, topic: str, index: int
) -> None:
    for timeout_ms in (0, 300, 1_000):
        began = time.monotonic()
        reply = read(client, topic, f"offset=0&timeout={timeout_ms}", index=index)
        took = time.monotonic() - began
        assert offsets(reply) == []
        assert timeout_ms / 1000 <= took < timeout_ms / 1000 + LATE_S
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, client, topic, "offset=0&timeout=60000", index=index)
        assert not waiting.done()
        client.records(topic, {"partition_id": index, "value": {"type": "JSON", "data": 1}})
        began = time.monotonic()
        assert offsets(waiting.result()) == [0]
        assert time.monotonic() - began < LATE_S


def test_a_read_waits_for_min_bytes(rest_cluster: Any, client: RestClient, topic: str) -> None:
    produce(rest_cluster, topic, b"1")
    began = time.monotonic()
    assert offsets(read(client, topic, "offset=0&min_bytes=10000&timeout=500")) == [0]
    assert time.monotonic() - began >= 0.5
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, client, topic, "offset=0&min_bytes=10000&timeout=60000")
        produce(rest_cluster, topic, b'"%b"' % (b"x" * 10_000))
        assert offsets(waiting.result()) == [0, 1]


def test_read_committed_has_nothing_that_was_aborted(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": rest_cluster.bootstrap, "transactional.id": f"x-{uuid.uuid4().hex}"}
    )
    producer.init_transactions(20)
    for value, ends in (("1", "abort"), ("2", "commit"), ("3", "abort"), ("4", "open")):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        if ends == "abort":
            producer.abort_transaction(20)
        elif ends == "commit":
            producer.commit_transaction(20)
    wait_until_marked(rest_cluster.bootstrap)
    every = read(client, topic, "offset=0&timeout=0")
    assert offsets(every) == [0, 2, 4, 6]
    committed = "isolation_level=read_committed"
    reply = read(client, topic, f"offset=0&timeout=0&{committed}")
    assert offsets(reply) == [2]
    # Behind the aborted third, and not behind the open fourth.
    assert reply.headers["Fairlead-Next-Offset"] == "6"
    reply = read(client, topic, f"offset=4&timeout=0&{committed}")
    assert (offsets(reply), reply.headers["Fairlead-Next-Offset"]) == ([], "6")
    with ThreadPoolExecutor(1) as pool:
        # It waits on behind the aborted one and the marker.
        waiting = pool.submit(read, client, topic, f"offset=4&timeout=60000&{committed}")
        producer.commit_transaction(20)
        assert offsets(waiting.result()) == [6]
    assert read(client, topic, f"offset=latest&timeout=0&{committed}").headers[
        "Fairlead-Next-Offset"
    ] == "8"  # fmt: skip
