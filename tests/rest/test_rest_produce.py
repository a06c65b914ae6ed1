"""Records produced by HTTP and read back by a Kafka client."""

import base64
import gzip
import json
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from rest_client import V2_BINARY, V2_JSON, RestClient, make_topic, read_topic

from fairlead_wire.compression import Codec
from fairlead_wire.murmur2 import partition_for_key
from fairlead_wire.records import iter_batches


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture(scope="module")
def client(rest_cluster: Any) -> RestClient:
    return RestClient(rest_cluster.brokers[0].rest_url)


@pytest.fixture
def topic(rest_cluster: Any) -> str:
    return make_topic(rest_cluster)


def test_records_are_packed_as_their_topic_is_stored(rest_cluster: Any, client: RestClient) -> None:
    topic = make_topic(rest_cluster, 1, config={"compression.type": "zstd"})
    values = [f"{each} ".encode() * 200 for each in range(5)]
    for each in values:
        reply = client.records(topic, {"value": {"type": "BINARY", "data": b64(each)}})
        assert [report["error_code"] for report in reply.reports] == [200]
    found = read_topic(rest_cluster.bootstrap, topic, 1, len(values))
    assert [each.value() for each in found] == values
    (file,) = rest_cluster.brokers[0].data.glob(f"**/{topic}-0/*.log")
    assert {header.codec for _, header in iter_batches(file.read_bytes())} == {Codec.ZSTD}


def test_each_part_of_a_record_is_what_a_kafka_client_reads(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    reply = client.records(
        topic,
        {
            "key": {"type": "STRING", "data": "schlüssel"},
            "value": {"type": "JSON", "data": {"b": [1, 2.5, None], "a": "ä"}},
            "headers": [{"name": "h", "value": b64(b"\0\1")}, {"name": "n", "value": None}],
            "timestamp": "2026-01-02T03:04:05.678Z",
        },
        {"key": {"type": "BINARY", "data": b64(b"\xff")}, "value": None},
        {"value": {"type": "JSON", "data": None}},
        {"value": {"type": "STRING", "data": ""}},
    )
    assert reply.status == 200
    assert [each["error_code"] for each in reply.reports] == [200] * 4
    messages = read_topic(rest_cluster.bootstrap, topic, 3, 4)
    by_place = {(each.partition(), each.offset()): each for each in messages}
    full, tombstone, null, empty = (
        by_place[each["partition_id"], each["offset"]] for each in reply.reports
    )
    assert full.key() == "schlüssel".encode()
    assert full.value() == '{"b":[1,2.5,null],"a":"ä"}'.encode()
    assert full.headers() == [("h", b"\0\1"), ("n", None)]
    assert full.timestamp() == (TIMESTAMP_CREATE_TIME, 1_767_323_045_678)
    assert full.partition() == partition_for_key("schlüssel".encode(), 3)
    assert (tombstone.key(), tombstone.value()) == (b"\xff", None)
    assert null.value() is None
    assert empty.value() == b""
    assert reply.reports[0]["timestamp"] == "2026-01-02T03:04:05.678Z"
    assert reply.reports[0]["value"] == {"type": "JSON", "size": len(full.value())}


def test_a_partition_that_another_broker_leads_is_written_too(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    reports = client.records(topic, *({"partition_id": index} for index in range(3))).reports
    assert [each["partition_id"] for each in reports] == [0, 1, 2]
    assert [each["error_code"] for each in reports] == [200] * 3
    assert len(read_topic(rest_cluster.bootstrap, topic, 3, 3)) == 3


def test_a_stream_in_chunks_keeps_its_order(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    whole = b"".join(
        json.dumps({"partition_id": 1, "value": {"type": "JSON", "data": number}}).encode()
        for number in range(2000)
    )
    pieces = [whole[at : at + 777] for at in range(0, len(whole), 777)]
    reply = client.post(f"{client.v3}/topics/{topic}/records", chunks=pieces)
    assert [each["offset"] for each in reply.reports] == list(range(2000))
    values = [each.value() for each in read_topic(rest_cluster.bootstrap, topic, 3, 2000)]
    assert values == [b"%d" % number for number in range(2000)]


def test_each_record_has_an_error_of_its_own(client: RestClient, topic: str) -> None:
    reply = client.records(
        topic,
        {"value": {"type": "BINARY", "data": "*"}},
        {"value": {"type": "STRING", "data": "good"}},
        {"partition_id": 3},
        {"partition_id": -1},
        b'{"value":{"type":"JSON","data":1e999}}',
        b'{"value":{"type":"STRING","data":"\\ud800"}}',
        b'{"key":null,"key":null}',
        {"value": {"type": "AVRO", "data": "x"}},
        {"vlaue": None},
        {"value": {"type": "STRING", "data": "x" * 1_100_000}},
        {"value": {"type": "STRING", "data": "the last"}},
    )
    assert reply.status == 200
    codes = [each["error_code"] for each in reply.reports]
    assert codes == [422, 200, 40402, 40402, 422, 422, 400, 422, 422, 413, 200]


def test_what_is_no_json_ends_the_stream_with_a_report(client: RestClient, topic: str) -> None:
    reply = client.records(topic, {"value": None}, b" nope ", {"value": None})
    assert [each["error_code"] for each in reply.reports] == [200, 400]
    assert client.records(topic, b"nope").status == 400
    assert client.records(topic, b"").status == 422


def test_v2_writes_json_and_binary(rest_cluster: Any, client: RestClient, topic: str) -> None:
    body = {"records": [{"key": "k", "value": {"a": 1}}, {"value": None, "partition": 2}]}
    reply = client.post(f"/topics/{topic}", body, content_type=V2_JSON)
    assert reply.headers["Content-Type"] == "application/vnd.kafka.v2+json"
    first, second = reply.json["offsets"]
    assert first == {"partition": partition_for_key(b'"k"', 3), "offset": 0, "error_code": None,
                     "error": None}  # fmt: skip
    assert second["partition"] == 2
    body = {
        "records": [
            {
                "key": b64(b"\0"),
                "value": b64(b"\xfe"),
                "timestamp": 1_000,
                "headers": [{"key": "h", "value": b64(b"x")}],
            }
        ]
    }
    reply = client.post(f"/topics/{topic}/partitions/0", body, content_type=V2_BINARY)
    place = reply.json["offsets"][0]
    assert place["partition"] == 0
    message = next(
        each
        for each in read_topic(rest_cluster.bootstrap, topic, 3, 3)
        if (each.partition(), each.offset()) == (0, place["offset"])
    )
    assert (message.key(), message.value()) == (b"\0", b"\xfe")
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_000)
    assert message.headers() == [("h", b"x")]


def test_a_compressed_body_is_unpacked(rest_cluster: Any, client: RestClient, topic: str) -> None:
    record = json.dumps({"value": {"type": "STRING", "data": "x" * 100_000}}).encode()
    body = gzip.compress(record * 5)
    reply = client.records(topic, body, headers={"Content-Encoding": "gzip"})
    assert [each["error_code"] for each in reply.reports] == [200] * 5
    assert client.records(topic, body[:-4], headers={"Content-Encoding": "gzip"}).reports[-1] == {
        "error_code": 400,
        "message": "the compressed body is cut off",
    }
    assert client.records(topic, body, headers={"Content-Encoding": "br"}).status == 415


def test_records_of_a_batch_are_told_of_by_their_ids(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    path = f"{client.v3}/topics/{topic}/records:batch"
    entries = [
        {"id": "a", "partition_id": 1, "value": {"type": "JSON", "data": {"b": 1}}},
        {"id": "b", "value": {"type": "BINARY", "data": "no base64"}},
        {"id": "c", "partition_id": 1, "key": {"type": "STRING", "data": "k"}},
        {"id": "d", "partition_id": 3, "value": {"type": "STRING", "data": "x"}},
        {"id": "e", "colour": "red"},
    ]
    reply = client.post(path, {"entries": entries})
    assert reply.status == 207
    first, second = reply.json["successes"]
    assert (first["id"], first["partition_id"], first["offset"]) == ("a", 1, 0)
    assert (second["id"], second["offset"], second["value"]) == ("c", 1, None)
    assert second["key"] == {"type": "STRING", "size": 1}
    failures = {each["id"]: each["error_code"] for each in reply.json["failures"]}
    assert failures == {"b": 422, "d": 40402, "e": 422}
    messages = read_topic(rest_cluster.bootstrap, topic, 3, 2)
    assert [(each.key(), each.value()) for each in messages] == [(None, b'{"b":1}'), (b"k", None)]
    unusable: tuple[dict[str, Any], ...] = (
        {},
        {"entries": None},
        {"entries": []},
        {"entries": [{"id": "a"}] * 2},
        {"entries": [{"id": str(each)} for each in range(501)]},
        {"entries": [{"id": ""}]},
        {"entries": [{"id": "x" * 81}]},
        {"entries": [{"value": None}]},
    )
    for bad in unusable:
        problem = client.post(path, bad)
        assert (problem.status, problem.json["error_code"]) == (422, 42208), bad
    none = client.post(path.replace(topic, "nowhere"), {"entries": [{"id": "a"}]})
    assert (none.status, none.json["error_code"]) == (404, 40401)
    assert len(read_topic(rest_cluster.bootstrap, topic, 3, 2)) == 2
