"""What clients send by mistake or malice: each is told what is wrong, and the broker goes on."""

import gzip
import json
import socket
from typing import Any

import pytest
from rest_client import V2_JSON, RestClient, make_topic
from waiting import wait_until

MIB = 1024 * 1024
V2 = "application/vnd.kafka.v2+json"


@pytest.fixture(scope="module")
def client(rest_cluster: Any) -> RestClient:
    return RestClient(rest_cluster.brokers[0].rest_url)


@pytest.fixture(scope="module")
def topic(rest_cluster: Any) -> str:
    return make_topic(rest_cluster)


def exchange(client: RestClient, data: bytes) -> bytes:
    """Send bytes and read until the broker closes."""
    with client.socket() as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b'{"value":',
        b'{"value":}',
        b'{"value":{"type":"JSON","data":NaN}}',
        b'{"value":{"type":"JSON","data":-Infinity}}',
        b'{"value":{"type":"STRING","data":"\xff"}}',
        b'{"value":{"type":"JSON","data":' + b"9" * 5000 + b"}}",
        b'{"value":null,"value":null}',
        b'{"value":{"type":"JSON","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"value":{"type":"JSON","data":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}}",
        b"\xef\xbb\xbf{}",
        b"\0",
        b"}{",
        b"[" * 1_000_000,
        b'"' + b"a" * (3 * MIB),
    ],
    ids=lambda body: repr(body[:40]),
)
def test_json_of_no_use_is_refused(client: RestClient, topic: str, body: bytes) -> None:
    v3 = client.records(topic, body)
    assert v3.status in (200, 400, 413)
    if v3.status == 200:
        assert [each["error_code"] for each in v3.reports] == [400]
    else:
        assert v3.headers["Content-Type"] == "application/problem+json"
        assert v3.json["error_code"] == v3.status
    wrapped = b'{"records":[' + body + b"]}"
    v2 = client.post(f"/topics/{topic}", wrapped, content_type=V2_JSON)
    assert v2.status in (400, 413, 422), v2.body
    assert client.get("/brokers").status == 200


@pytest.mark.parametrize(
    ("method", "path", "document"),
    [
        ("POST", "topics", {"topic_name": "\ud800"}),
        ("POST", "topics", {"topic_name": "t", "configs": [{"name": "a", "value": "b\udfff"}]}),
        ("POST", "topics", {"topic_name": "t", "\ud800": 1}),
        ("POST", "topics/{}/configs:alter", {"data": [{"name": "\ud800", "value": "1"}]}),
        ("PUT", "topics/{}/configs/retention.ms", {"value": "\ud800"}),
        (
            "POST",
            "topics/{}/configs:alter",
            {"data": [{"name": "retention.ms", "value": "1\ud800"}]},
        ),
    ],
)
def test_half_of_a_surrogate_pair_is_refused(
    client: RestClient, topic: str, method: str, path: str, document: Any
) -> None:
    reply = client.ask(method, f"{client.v3}/{path.format(topic)}", document)
    assert (reply.status, reply.json["error_code"]) == (422, 422)
    assert reply.json["message"] == "a text has half of a surrogate pair"


def test_what_an_entry_of_a_batch_has_is_judged_by_itself(client: RestClient, topic: str) -> None:
    entries = [
        {"id": "text", "value": {"type": "STRING", "data": "\ud800"}},
        {"id": "number", "value": {"type": "JSON", "data": 1.0}, "partition_id": 0},
    ]
    path = f"{client.v3}/topics/{topic}/records:batch"
    reply = client.post(path, {"entries": entries})
    assert [each["id"] for each in reply.json["failures"]] == ["text"]
    (written,) = reply.json["successes"]
    records = client.get(
        f"/topics/{topic}/partitions/0/records?format=json&offset={written['offset']}"
    )
    assert b'"value":1.0,' in records.body


@pytest.mark.parametrize("count", [3, 3.0])
def test_a_whole_number_is_one_however_it_is_written(client: RestClient, count: float) -> None:
    document = {"topic_name": "whole", "partitions_count": count, "validate_only": True}
    reply = client.post(f"{client.v3}/topics", document)
    assert (reply.status, reply.json["partitions_count"]) == (200, 3)


@pytest.mark.parametrize("path", ["topics", "topics/{}/configs:alter"])
def test_more_numbers_than_anybody_means_are_refused(
    client: RestClient, topic: str, path: str
) -> None:
    """Each would be held against a schema, which takes seconds for all that a body has room for."""
    numbers = {"topic_name": "many", "replicas_assignments": {"0": [1] * 300_000}}
    reply = client.post(f"{client.v3}/{path.format(topic)}", numbers)
    assert (reply.status, reply.json["error_code"]) == (400, 400), reply
    assert "commas" in reply.json["message"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"[]", "one object, and no array"),
        (b"null", "'null' stands outside of the object"),
        (b'"a"', "one object, and no text"),
        (b"{}{}", "one object"),
        (b'{"format": "a\tb"}', "Invalid control character at character 13"),
    ],
)
def test_a_body_that_is_no_object_is_not_told_about_records(
    client: RestClient, body: bytes, why: str
) -> None:
    problem = client.post("/consumers/g", body, content_type=V2)
    assert problem.status == 400
    assert problem.json["detail"].endswith(why)


def test_several_lines_of_accept_are_one_list(client: RestClient) -> None:
    with client.socket() as connection:
        connection.sendall(
            b"GET /v3/clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Accept: text/html\r\nAccept: application/json\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"records": []},
        {"records": {}},
        {"records": [1]},
        {"records": [[]]},
        {"records": None},
        {"records": [{}], "more": 1},
        {"records": [{"valu": 1}]},
        {"records": [{}], "value_schema": "x"},
        {"records": [{"headers": {}}]},
        {"records": [{"headers": [{"key": "a", "value": "?"}]}]},
        {"records": [{"partition": "1"}]},
        {"records": [{"partition": 1.5}]},
        {"records": [{"partition": True}]},
        {"records": [{"timestamp": -1}]},
        {"records": [{"timestamp": "yesterday"}]},
        {"records": [{"timestamp": 2**63}]},
    ],
    ids=str,
)
def test_v2_bodies_of_no_use_are_refused_whole(
    client: RestClient, topic: str, document: Any
) -> None:
    reply = client.post(f"/topics/{topic}", document, content_type=V2_JSON)
    assert reply.status in (400, 422), reply.body
    assert reply.json["message"]


@pytest.mark.parametrize(
    ("version", "begins"), [("1.0", b"HTTP/1.0 200 "), ("1.1", b"HTTP/1.1 100 ")]
)
def test_an_interim_answer_is_for_who_knows_it(
    client: RestClient, topic: str, version: str, begins: bytes
) -> None:
    body = b'{"records":[{"value":1}]}'
    head = (
        f"POST /topics/{topic} HTTP/{version}\r\nHost: localhost\r\nContent-Type: {V2_JSON}\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    answer = exchange(client, head.encode() + body)
    assert answer.startswith(begins), answer
    assert b'"offset":' in answer


def test_a_large_body_is_refused_before_it_is_read(client: RestClient, topic: str) -> None:
    head = (
        f"POST /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {V2_JSON}\r\n"
        f"Content-Length: {100 * MIB}\r\nExpect: 100-continue\r\n\r\n"
    )
    answer = exchange(client, head.encode())
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


def test_a_large_body_in_chunks_is_cut_off(client: RestClient, topic: str) -> None:
    def chunks() -> Any:
        yield b'{"records":['
        for _ in range(1600):
            yield b'{"value":"' + b"x" * 65_536 + b'"},'

    try:
        reply = client.post(f"/topics/{topic}", content_type=V2_JSON, chunks=chunks())
    except (BrokenPipeError, ConnectionResetError):
        return
    assert reply.status == 413


def test_a_small_body_that_unpacks_to_a_large_one_is_cut_off(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    packed = gzip.compress(b'{"records":[{"value":"' + b"x" * (100 * MIB))
    assert len(packed) < MIB
    for path, kind in (
        (f"/topics/{topic}", V2_JSON),
        (f"{client.v3}/topics/{topic}/records", "application/json"),
        (f"{client.v3}/topics", "application/json"),
    ):
        reply = client.post(path, packed, content_type=kind, headers={"Content-Encoding": "gzip"})
        assert reply.status in (400, 413), reply.body


@pytest.mark.parametrize("kind", [None, "text/plain", "application/json; charset=latin-1", ";;"])
def test_content_types_that_do_not_fit(client: RestClient, topic: str, kind: str | None) -> None:
    for path in (f"{client.v3}/topics/{topic}/records", f"/topics/{topic}", f"{client.v3}/topics"):
        reply = client.post(path, b"{}", content_type=kind)
        assert (reply.status, reply.json["error_code"]) == (415, 415)
    assert client.get("/brokers", headers={"Accept": "text/html"}).json["error_code"] == 40601
    assert client.get(client.v3, headers={"Accept": "text/html"}).status == 406


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/a%2Fb", 404),
        ("/topics/..%2F..%2Fetc", 404),
        ("/topics/%2e%2e", 404),
        ("/topics/..", 404),
        ("/topics/../brokers", 404),
        ("/topics/%00", 404),
        ("/topics/%ff", 400),
        ("/topics//partitions", 404),
        ("/topics/", 404),
        ("//brokers", 404),
        ("/topics/nope/partitions/99999999999999999999", 404),
        ("/topics/nope/partitions/1_0", 404),
        ("/%62rokers", 200),
        ("/brokers?a=%ff", 400),
        ("/topics/" + "a" * 5000, 404),
    ],
)
def test_odd_paths(client: RestClient, path: str, status: int) -> None:
    reply = client.get(path)
    assert reply.status == status, reply.body
    assert reply.json


def test_a_request_that_is_none_gets_a_problem(client: RestClient) -> None:
    answer = exchange(client, b"nonsense\r\n\r\n")
    assert answer.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"] == 400
    # As others do, it tells nobody which versions of what are behind it.
    assert b"\r\nServer: fairlead\r\n" in answer
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in answer
    answer = exchange(client, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 414 " in answer.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /%b HTTP/1.1\r\n\r\n" % (b"a" * 20_000),
        b"GET / HTTP/1.1\r\nA: %b\r\n\r\n" % (b"a" * 20_000),
    ],
    ids=("no request", "long line", "long header"),
)
def test_what_the_parser_refuses_is_said_without_the_bytes(client: RestClient, data: bytes) -> None:
    answer = exchange(client, data)
    detail = json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
    assert detail
    assert not detail.endswith(":")
    assert "aaaa" not in detail


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity, chunked", "x, chunked"])
def test_a_transfer_coding_that_nobody_decodes_is_refused(
    client: RestClient, topic: str, coding: str
) -> None:
    """As JSON the body could be read: what is not decoded must not pass for what was sent."""
    body = b'{"records":[{"value":1}]}'
    head = f"POST /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {V2_JSON}\r\n"
    data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    answer = exchange(client, f"{head}Transfer-Encoding: {coding}\r\n\r\n".encode() + data)
    assert answer.startswith(b"HTTP/1.1 501 ")
    assert b"\r\nConnection: close\r\n" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"] == 501


def test_methods_that_a_path_does_not_have(client: RestClient) -> None:
    reply = client.ask("DELETE", "/brokers")
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert client.ask("OPTIONS", "/brokers").headers["Allow"] == "GET, HEAD, OPTIONS"
    head = client.ask("HEAD", "/brokers")
    assert (head.status, head.body) == (200, b"")
    assert client.ask("OPTIONS", "/nowhere").status == 404
    answer = exchange(client, b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert b"\r\nAllow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n" in answer


def test_names_and_pages_that_are_not_known(client: RestClient) -> None:
    assert client.get("/brokers", headers={"Host": "evil.example"}).status == 421
    assert client.get("/brokers", headers={"Host": "LOCALHOST:1"}).status == 200
    assert client.get("/brokers", headers={"Host": "[::1]:8082"}).status == 200
    assert client.get("/brokers", headers={"Origin": "http://evil.example"}).status == 403
    assert client.get("/brokers", headers={"Origin": client.url}).status == 200
    assert client.get("/brokers", headers={"Sec-Fetch-Site": "cross-site"}).status == 403
    reply = client.get("/brokers")
    assert not [name for name in reply.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://evil.example/brokers", "localhost", 421),
        ("HTTP://user@evil.example:80?a", "localhost", 421),
        ("http://localhost:8082/brokers", "evil.example", 200),
        ("http://[::1]:8082/brokers", "evil.example", 200),
        ("/brokers?a=http://evil.example", "localhost", 200),
    ],
)
def test_the_host_of_a_whole_url_counts_more_than_the_header(
    client: RestClient, target: str, host: str, status: int
) -> None:
    head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert exchange(client, head.encode()).startswith(b"HTTP/1.1 %d " % status)


def test_a_request_without_a_host_is_told_so(client: RestClient) -> None:
    answer = exchange(client, b"GET /brokers HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 421 ")
    detail = json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
    assert detail == "the request says no Host"


def test_pages_of_an_allowed_origin_may_read(make_cluster: Any) -> None:
    page = "https://example.com"
    settings = {
        "fairlead.rest.listener": "127.0.0.1:0",
        "fairlead.rest.allowed.origins": page,
        "fairlead.rest.allowed.hosts": "rest.example",
    }
    client = RestClient(make_cluster(settings=settings).brokers[0].rest_url)
    reply = client.get("/brokers", headers={"Origin": page, "Host": "rest.example"})
    assert reply.headers["Access-Control-Allow-Origin"] == page
    assert reply.headers["Vary"] == "Origin"
    asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
    preflight = client.ask("OPTIONS", "/topics/a", headers=asked)
    assert preflight.status == 204
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert client.get("/brokers", headers={"Origin": "https://other.com"}).status == 403


def in_flight(rest_cluster: Any) -> float:
    _, page = rest_cluster.brokers[0].get("/metrics")
    lines = [line for line in page.splitlines() if line.startswith("fairlead_rest_requests_in_fl")]
    return float(lines[0].split()[1])


def test_clients_that_leave_in_the_midst_hold_nothing(
    rest_cluster: Any, client: RestClient, topic: str
) -> None:
    head = (
        f"POST {client.v3}/topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    connections = [client.socket() for _ in range(20)]
    for connection in connections:
        connection.sendall(head + b'2\r\n{"\r\n')
    wait_until(lambda: in_flight(rest_cluster) >= 20)
    for number, connection in enumerate(connections):
        if number % 2:
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.close()
    wait_until(lambda: in_flight(rest_cluster) == 0)
    for connection in connections:
        connection.close()


def test_a_stream_that_waits_gets_its_reports_meanwhile(client: RestClient, topic: str) -> None:
    head = (
        f"POST {client.v3}/topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    with client.socket() as connection:
        connection.sendall(head)
        answer = b""
        for number in range(3):
            record = b'{"value":{"type":"JSON","data":%d}}' % number
            connection.sendall(b"%x\r\n%s\r\n" % (len(record), record))
            while answer.count(b'"error_code":200') <= number:
                answer += connection.recv(65536)
        connection.sendall(b"0\r\n\r\n")
        while not answer.endswith(b"0\r\n\r\n"):
            answer += connection.recv(65536)


def test_an_answer_is_compressed_for_who_asks(client: RestClient) -> None:
    plain = client.get("/openapi.json")
    packed = client.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.json == plain.json
    assert int(packed.headers["Content-Length"]) < len(plain.body) / 3


def test_silent_connections_lock_nobody_out(make_cluster: Any) -> None:
    broker = make_cluster(settings={"fairlead.rest.listener": "127.0.0.1:0"}).brokers[0]
    client = RestClient(broker.rest_url)
    connections = [client.socket() for _ in range(1000)]
    try:
        assert client.get("/brokers").status == 200
    finally:
        for connection in connections:
            connection.close()
