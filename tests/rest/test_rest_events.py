"""A partition followed by server-sent events: live, resumed, ended, and read slowly."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rest_client import DEADLINE_S, RestClient, make_topic, write_after_a_kill

ORIGIN = "https://example.com"
SETTINGS = {
    "fairlead.rest.listener": "127.0.0.1:0",
    "default.replication.factor": "3",
    "fairlead.rest.allowed.origins": ORIGIN,
}
STALLED = 10
STALLED_BYTES_MAX = 25 * 2**20
RECORD = b"x" * 10_000
RECORDS = 5_000


class EventStream:
    """Reads events as a browser's EventSource does."""

    def __init__(self, client: RestClient, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection(*client.address, timeout=DEADLINE_S)
        sent = {"Accept": "text/event-stream"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers=sent)
        self.reply = self._connection.getresponse()
        self.last_event_id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Events with data; it ends with the stream, and raises where that is cut off."""
        event, data = "message", ""
        while line := self.reply.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "id":
                self.last_event_id = value
            elif name == "event":
                event = value
            elif name == "data":
                data += value
            elif not name:
                if data:
                    yield event, json.loads(data)
                event, data = "message", ""

    def take(self, count: int) -> list[int]:
        """Offsets of the next records."""
        events = iter(self)
        return [next(events)[1]["offset"] for _ in range(count)]


@pytest.fixture(scope="module")
def client(rest_cluster: Any) -> RestClient:
    return RestClient(rest_cluster.brokers[0].rest_url)


@pytest.fixture
def topic(rest_cluster: Any) -> str:
    return make_topic(rest_cluster)


def write(client: RestClient, topic: str, *values: Any, index: int = 0) -> None:
    records = [{"partition_id": index, "value": {"type": "JSON", "data": v}} for v in values]
    assert [each["error_code"] for each in client.records(topic, *records).reports] == [
        200 for _ in values
    ]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_stream_goes_on_behind_the_last_event_that_was_seen(
    client: RestClient, topic: str, index: int
) -> None:
    path = f"/topics/{topic}/partitions/{index}/records?format=json"
    write(client, topic, "before", index=index)
    with EventStream(client, path) as stream:
        assert stream.reply.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert stream.reply.headers["Cache-Control"] == "no-store"
        write(client, topic, {"a": "\n\r\u2028"}, index=index)
        event, record = next(iter(stream))
        assert (event, record["offset"], record["value"]) == ("message", 1, {"a": "\n\r\u2028"})
        assert stream.last_event_id == "1"
    write(client, topic, 2, 3, index=index)
    with EventStream(client, path, Last_Event_ID=stream.last_event_id) as stream:
        assert stream.take(2) == [2, 3]
    with EventStream(client, f"{path}&offset=earliest") as stream:
        assert stream.take(4) == [0, 1, 2, 3]


def test_a_client_that_has_seen_nothing_yet_misses_nothing(client: RestClient, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0/records"
    with EventStream(client, path) as stream:
        while not stream.last_event_id:
            name, _, value = stream.reply.readline().decode().strip().partition(": ")
            stream.last_event_id = value if name == "id" else ""
    write(client, topic, 0)
    with EventStream(client, path, Last_Event_ID=stream.last_event_id) as stream:
        assert stream.take(1) == [0]


def test_what_cannot_begin_is_a_problem_and_no_stream(client: RestClient, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0/records"
    for last in ("x", "-2", "1,2", "9" * 19, "9" * 30, "5"):
        with EventStream(client, path, Last_Event_ID=last) as stream:
            assert stream.reply.status == 400, last
            document = json.loads(stream.reply.read())
    assert document["log_end_offset"] == 0
    with EventStream(client, "/topics/no-such-topic/partitions/0/records") as stream:
        assert stream.reply.status == 404


def test_a_topic_that_is_deleted_ends_the_stream_with_a_problem(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    with EventStream(client, f"/topics/{topic}/partitions/0/records") as stream:
        admin = AdminClient({"bootstrap.servers": rest_cluster.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        events = list(stream)
    assert [(event, document["error_code"]) for event, document in events] == [("problem", 40401)]


def test_a_stream_outlives_its_leader_and_ends_with_its_broker(make_cluster: Any) -> None:
    cluster = make_cluster(brokers=3, settings=SETTINGS, is_patient=True)
    make_topic(cluster, 6, name="t")
    client = RestClient(cluster.brokers[0].rest_url)
    partitions = client.get("/topics/t").json["partitions"]
    index = next(each["partition"] for each in partitions if each["leader"] == 2)
    path = f"/topics/t/partitions/{index}/records"
    with EventStream(client, path, Origin=ORIGIN) as stream:
        assert stream.reply.headers["Access-Control-Allow-Origin"] == ORIGIN
        write(client, "t", 0, index=index)
        assert stream.take(1) == [0]
        cluster.brokers[2].kill()
        one = {"partition_id": index, "value": {"type": "JSON", "data": 1}}
        write_after_a_kill(client, "t", one)
        assert stream.take(1) == [1]
        cluster.brokers[0].stop()
        assert list(stream) == []
    other = RestClient(cluster.brokers[1].rest_url)
    two = {"partition_id": index, "value": {"type": "JSON", "data": 2}}
    write_after_a_kill(other, "t", two)
    with EventStream(other, path, Last_Event_ID=stream.last_event_id) as stream:
        assert stream.take(1) == [2]


def test_who_reads_slowly_takes_no_memory(make_cluster: Any) -> None:
    cluster = make_cluster(settings=SETTINGS | {"default.replication.factor": "1"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(RECORDS):
        producer.produce("t", RECORD, partition=0)
    assert producer.flush(30) == 0
    broker = cluster.brokers[0]
    client = RestClient(broker.rest_url)
    statm = Path(f"/proc/{broker.process.pid}/statm")
    before = int(statm.read_text().split()[1]) * 4096
    stalled = []
    path = "/topics/t/partitions/0/records?offset=0&format=string"
    for _ in range(STALLED):
        sock = client.socket()
        sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        assert sock.recv(12) == b"HTTP/1.1 200"
        stalled.append(sock)
    with EventStream(client, path) as stream:
        assert stream.take(RECORDS) == list(range(RECORDS))
    grown = int(statm.read_text().split()[1]) * 4096 - before
    print(f"{STALLED} readers that stall, of {RECORDS * len(RECORD)} bytes: {grown} bytes")
    assert grown < STALLED_BYTES_MAX
    for sock in stalled:
        sock.close()
