"""Consumer instances: groups read by HTTP, beside Kafka's own clients."""

import socket
import struct
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from rest_client import V2_BINARY, V2_JSON, Reply, RestClient, make_topic
from waiting import wait_until

V2 = "application/vnd.kafka.v2+json"
PARTITIONS = 3
LATE_S = 20.0
"""How much later than its deadline an answer may come on a machine with other work."""


@pytest.fixture(scope="module")
def client(rest_cluster: Any) -> RestClient:
    return RestClient(rest_cluster.brokers[0].rest_url)


@pytest.fixture
def topic(rest_cluster: Any) -> str:
    return make_topic(rest_cluster, PARTITIONS)


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def produce(client: RestClient, topic: str, values: Any) -> None:
    """Write to the partitions in turn."""
    records = [
        {"partition_id": each % PARTITIONS, "value": {"type": "JSON", "data": each}}
        for each in values
    ]
    reports = client.records(topic, *records).reports
    assert {each["error_code"] for each in reports} == {200}


class Instance:
    """A consumer instance as a client knows it."""

    def __init__(self, client: RestClient, group: str, **config: Any) -> None:
        self.client = client
        made = client.post(
            f"/consumers/{group}",
            {"format": "json", "auto.offset.reset": "earliest", **config},
            content_type=V2,
        )
        assert made.status == 200, made.body
        self.name = made.json["instance_id"]
        self.path = f"/consumers/{group}/instances/{self.name}"
        assert made.json["base_uri"] == f"{client.url}{self.path}"

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        return self.client.ask(method, f"{self.path}{path}", body, content_type=V2, **options)

    def do(self, method: str, path: str, body: Any = None) -> Any:
        reply = self.ask(method, path, body)
        assert reply.status == (200 if reply.body else 204), reply.body
        return reply.json if reply.body else None

    def subscribe(self, *topics: str) -> None:
        self.do("POST", "/subscription", {"topics": list(topics)})

    def read(self, query: str = "", accept: str = V2_JSON) -> list[Any]:
        reply = self.ask("GET", f"/records?{query}", headers={"Accept": accept})
        assert reply.status == 200, reply.body
        found: list[Any] = reply.json
        return found

    def read_records(self, count: int) -> list[Any]:
        """Read until there are so many records."""
        found: list[Any] = []
        deadline_s = time.monotonic() + 40
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} records"
            found += self.read("timeout=10000")
        return found

    def read_values(self, count: int) -> list[Any]:
        return [each["value"] for each in self.read_records(count)]

    @property
    def partitions(self) -> set[int]:
        return {each["partition"] for each in self.do("GET", "/assignments")["partitions"]}

    def committed(self, topic: str) -> dict[int, int]:
        query = ",".join(f"{topic}-{index}" for index in range(PARTITIONS))
        offsets = self.do("GET", f"/offsets?partitions={query}")["offsets"]
        return {each["partition"]: each["offset"] for each in offsets}


def committed_offsets(cluster: Any, group: str, topic: str) -> dict[int, int]:
    """What Kafka's admin client sees of a group."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = ConsumerGroupTopicPartitions(group)
    answer = admin.list_consumer_group_offsets([asked])[group].result(60)
    return {
        each.partition: each.offset
        for each in answer.topic_partitions
        if each.topic == topic and each.offset >= 0
    }


def test_the_first_read_has_records_and_a_commit_is_the_groups(
    rest_cluster: Any, client: RestClient, topic: str, group: str
) -> None:
    produce(client, topic, range(9))
    instance = Instance(client, group, **{"auto.commit.enable": False})
    instance.subscribe(topic)
    found = instance.read()
    assert found
    # A read tells what there is when the first broker has answered; that may be one of three.
    found += instance.read_records(9 - len(found))
    assert sorted(each["value"] for each in found) == list(range(9))
    assert {each["partition"]: each["offset"] for each in found} == {0: 2, 1: 2, 2: 2}
    assert found[0].keys() == {
        "topic", "key", "value", "partition", "offset", "timestamp", "headers"
    }  # fmt: skip
    assert instance.read("timeout=0") == []
    assert instance.committed(topic) == {}
    # The offset that is named is the last one that was dealt with.
    one = {"topic": topic, "partition": 1, "offset": 0, "metadata": "m"}
    answer = instance.do("POST", "/offsets", {"offsets": [one]})
    assert answer == {"offsets": [{**one, "offset": 1}]}
    assert instance.do("GET", "/offsets") == answer
    assert committed_offsets(rest_cluster, group, topic) == {1: 1}
    instance.do("POST", "/offsets")
    assert committed_offsets(rest_cluster, group, topic) == {0: 3, 1: 3, 2: 3}
    members = client.get(f"{client.v3}/consumer-groups/{group}/consumers").json["data"]
    assert [each["consumer_id"].startswith(instance.name) for each in members] == [True]
    instance.do("DELETE", "")
    assert instance.ask("DELETE", "").json["error_code"] == 40403
    lags = client.get(f"{client.v3}/consumer-groups/{group}").json
    assert lags["state"] == "EMPTY"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafkas_own_clients_share_the_partitions(
    rest_cluster: Any, client: RestClient, topic: str, group: str, protocol: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": rest_cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[int] = []

    def polls(condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 40
        while not condition():
            assert time.monotonic() < deadline_s
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(int(message.value()))

    try:
        consumer.subscribe([topic])
        polls(lambda: len(consumer.assignment()) == PARTITIONS)
        instance = Instance(client, group)
        instance.subscribe(topic)
        polls(
            lambda: (
                len(consumer.assignment()) + len(instance.partitions) == PARTITIONS
                and 0 < len(consumer.assignment()) < PARTITIONS
            )
        )
        theirs = {each.partition for each in consumer.assignment()}
        assert theirs | instance.partitions == set(range(PARTITIONS))
        produce(client, topic, range(30))
        by_http = instance.read_values(10 * len(instance.partitions))
        polls(lambda: len(found) + len(by_http) >= 30)
        assert sorted(found + by_http) == list(range(30))
        assert {each % PARTITIONS for each in found} == theirs
        instance.do("DELETE", "")
        polls(lambda: len(consumer.assignment()) == PARTITIONS)
        # What was read before the instance ended is committed, and nobody reads it again.
        produce(client, topic, range(30, 36))
        polls(lambda: set(found + by_http) == set(range(36)))
        assert not set(found) & set(by_http)
    finally:
        consumer.close()


def test_two_instances_at_two_brokers_are_one_group(
    rest_cluster: Any, client: RestClient, topic: str, group: str
) -> None:
    other = RestClient(rest_cluster.brokers[1].rest_url)
    instances = [Instance(client, group), Instance(other, group)]
    for instance in instances:
        instance.subscribe(topic)

    def is_shared() -> bool:
        first, second = (instance.partitions for instance in instances)
        return bool(first and second) and not first & second and len(first | second) == PARTITIONS

    wait_until(is_shared)
    produce(client, topic, range(30))
    found = [instance.read_values(10 * len(instance.partitions)) for instance in instances]
    assert sorted(found[0] + found[1]) == list(range(30))
    for instance in instances:
        instance.do("DELETE", "")


def test_only_what_was_received_is_committed_without_being_asked_to(
    rest_cluster: Any, client: RestClient, topic: str, group: str
) -> None:
    instance = Instance(client, group)
    instance.subscribe(topic)
    wait_until(lambda: instance.committed(topic) == {0: 0, 1: 0, 2: 0})
    produce(client, topic, range(3))
    assert sorted(instance.read_values(3)) == [0, 1, 2]
    # The next read says that the answer before has come.
    assert instance.read("timeout=0") == []
    wait_until(lambda: instance.committed(topic) == {0: 1, 1: 1, 2: 1})
    produce(client, topic, [3])
    assert instance.read_values(1) == [3]
    # Nothing is left uncommitted where the instance ends by its client's wish.
    instance.do("DELETE", "")
    assert committed_offsets(rest_cluster, group, topic) == {0: 2, 1: 1, 2: 1}


def test_a_pattern_finds_topics_that_are_made_later(
    rest_cluster: Any, client: RestClient, group: str
) -> None:
    prefix = f"p{uuid.uuid4().hex[:6]}"
    first = make_topic(rest_cluster, PARTITIONS, name=f"{prefix}-a")
    instance = Instance(client, group)
    instance.do("POST", "/subscription", {"topic_pattern": f"{prefix}-.*"})
    produce(client, first, range(3))
    assert sorted(instance.read_values(3)) == [0, 1, 2]
    second = make_topic(rest_cluster, PARTITIONS, name=f"{prefix}-b")
    wait_until(lambda: instance.do("GET", "/subscription") == {"topics": [first, second]})
    produce(client, second, range(3, 6))
    assert sorted(instance.read_values(3)) == [3, 4, 5]
    problem = instance.ask("POST", "/subscription", {"topics": [first]})
    assert (problem.status, problem.json["error_code"]) == (409, 40903)
    bad = instance.ask("POST", "/subscription", {"topic_pattern": "("})
    assert (bad.status, bad.json["error_code"]) == (422, 42204)
    instance.do("DELETE", "")


def test_a_subscription_is_replaced_and_ended(
    rest_cluster: Any, client: RestClient, topic: str, group: str
) -> None:
    other = make_topic(rest_cluster, PARTITIONS)
    instance = Instance(client, group)
    problem = instance.ask("GET", "/records")
    assert (problem.status, problem.json["error_code"]) == (409, 40903)
    instance.subscribe(topic)
    produce(client, topic, range(3))
    instance.read_values(3)
    instance.subscribe(other)
    produce(client, topic, range(3))
    produce(client, other, range(3, 6))
    assert sorted(instance.read_values(3)) == [3, 4, 5]
    assert instance.do("GET", "/subscription") == {"topics": [other]}
    instance.do("DELETE", "/subscription")
    assert instance.do("GET", "/subscription") == {"topics": []}
    assert instance.partitions == set()
    assert committed_offsets(rest_cluster, group, topic) == {0: 1, 1: 1, 2: 1}
    assert instance.ask("GET", "/records").status == 409
    assert client.get(f"{client.v3}/consumer-groups/{group}").json["state"] == "EMPTY"
    # The group goes on where it was.
    instance.subscribe(topic)
    assert sorted(instance.read_values(3)) == [0, 1, 2]
    instance.do("DELETE", "")


def test_partitions_assigned_by_hand_are_read_from_anywhere(
    client: RestClient, topic: str, group: str
) -> None:
    produce(client, topic, range(12))
    instance = Instance(client, group, **{"auto.commit.enable": "false"})
    hand = [{"topic": topic, "partition": index} for index in (0, 2)]
    instance.do("POST", "/assignments", {"partitions": hand})
    assert instance.do("GET", "/assignments") == {"partitions": hand}
    assert sorted(instance.read_values(8)) == [0, 2, 3, 5, 6, 8, 9, 11]
    instance.do("POST", "/positions/beginning", {"partitions": hand[:1]})
    assert sorted(instance.read_values(4)) == [0, 3, 6, 9]
    instance.do("POST", "/positions", {"offsets": [{**hand[1], "offset": 2}]})
    assert sorted(instance.read_values(2)) == [8, 11]
    instance.do("POST", "/positions/beginning", {"partitions": hand})
    instance.do("POST", "/positions/end", {"partitions": hand[1:]})
    assert sorted(instance.read_values(4)) == [0, 3, 6, 9]
    assert instance.read("timeout=0") == []
    for path, body in (
        ("/subscription", {"topics": [topic]}),
        ("/positions/end", {"partitions": [{"topic": topic, "partition": 1}]}),
    ):
        problem = instance.ask("POST", path, body)
        assert (problem.status, problem.json["error_code"]) == (409, 40903), path
    # An offset that the log does not have is one that `auto.offset.reset` is for.
    instance.do("POST", "/positions", {"offsets": [{**hand[0], "offset": 99}]})
    assert sorted(instance.read_values(4)) == [0, 3, 6, 9]
    instance.do("POST", "/offsets")
    assert instance.committed(topic) == {0: 4, 2: 4}
    instance.do("DELETE", "")


def test_a_clusters_first_group_may_assign_by_hand(make_cluster: Any, group: str) -> None:
    """Nothing has had the topic of offsets made: no member has joined a group."""
    cluster = make_cluster(brokers=1, settings={"fairlead.rest.listener": "127.0.0.1:0"})
    topic = make_topic(cluster, PARTITIONS)
    client = RestClient(cluster.brokers[0].rest_url)
    produce(client, topic, range(3))
    assert client.get("/topics/__consumer_offsets").status == 404
    instance = Instance(client, group)
    instance.do("POST", "/assignments", {"partitions": [{"topic": topic, "partition": 1}]})
    assert instance.read_values(1) == [1]
    instance.do("POST", "/offsets")
    assert instance.committed(topic) == {1: 1}
    instance.do("DELETE", "")


def test_where_a_group_begins(client: RestClient, topic: str, group: str) -> None:
    produce(client, topic, range(3))
    latest = Instance(client, group, **{"auto.offset.reset": None})
    latest.subscribe(topic)
    assert latest.read("timeout=500") == []
    wait_until(lambda: len(latest.committed(topic)) == PARTITIONS)
    produce(client, topic, [3])
    assert latest.read_values(1) == [3]
    latest.do("DELETE", "")
    nowhere = Instance(client, f"{group}-2", **{"auto.offset.reset": "none"})
    nowhere.subscribe(topic)
    problem = nowhere.ask("GET", "/records?timeout=20000")
    assert (problem.status, problem.json["error_code"]) == (400, 40002)
    assert "auto.offset.reset is none" in problem.json["message"]
    nowhere.do("DELETE", "")


def test_what_records_are_given_as(client: RestClient, topic: str, group: str) -> None:
    produce(client, topic, [7])
    for form, accept, value in (
        ("json", V2_JSON, 7),
        ("binary", V2_BINARY, "Nw=="),
        ("text", "application/vnd.kafka.text.v2+json", "7"),
        ("binary", "*/*", "Nw=="),
        ("json", V2, 7),
    ):
        instance = Instance(client, f"{group}-{form}-{len(accept)}", format=form)
        instance.subscribe(topic)
        reply = instance.ask("GET", "/records", headers={"Accept": accept})
        assert [each["value"] for each in reply.json] == [value]
        other = V2_BINARY if form != "binary" else V2_JSON
        problem = instance.ask("GET", "/records", headers={"Accept": other})
        assert (problem.status, problem.json["error_code"]) == (406, 40601)
        instance.do("DELETE", "")


def test_a_large_answer_comes_in_parts(client: RestClient, topic: str, group: str) -> None:
    produce(client, topic, range(300))
    instance = Instance(client, group)
    # By hand: a first answer comes when all partitions may have their turns.
    hand = [{"topic": topic, "partition": index} for index in range(PARTITIONS)]
    instance.do("POST", "/assignments", {"partitions": hand})
    found: list[int] = []
    while len(found) < 300:
        reply = instance.ask("GET", "/records?max_bytes=2000")
        assert len(reply.body) <= 2_200
        part = [each["value"] for each in reply.json]
        assert part, "nothing is left out"
        # All partitions have their turns.
        found += part
    assert sorted(found) == list(range(300))
    partitions = [each % PARTITIONS for each in found]
    assert set(partitions[:60]) == {0, 1, 2}
    instance.do("DELETE", "")


@pytest.mark.parametrize("timeout_ms", [0, 300, 1_500])
def test_a_read_ends_with_its_deadline_or_with_a_record(
    client: RestClient, topic: str, group: str, timeout_ms: int
) -> None:
    instance = Instance(client, group)
    instance.subscribe(topic)
    produce(client, topic, [1])
    assert instance.read_values(1) == [1]
    began_s = time.monotonic()
    assert instance.read(f"timeout={timeout_ms}") == []
    assert timeout_ms / 1000 <= time.monotonic() - began_s < timeout_ms / 1000 + LATE_S
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(instance.read, "timeout=40000")
        produce(client, topic, [2])
        assert [each["value"] for each in reading.result(30)] == [2]
    instance.do("DELETE", "")


def test_an_instance_may_say_how_long_and_for_how_much_a_read_waits(
    client: RestClient, topic: str, group: str
) -> None:
    settings = {"consumer.request.timeout.ms": "700", "fetch.min.bytes": "1000"}
    instance = Instance(client, group, **settings)
    instance.subscribe(topic)
    wait_until(lambda: len(instance.partitions) == PARTITIONS)
    began_s = time.monotonic()
    produce(client, topic, [1])
    assert [each["value"] for each in instance.read("timeout=50000")] == [1]
    assert 0.7 <= time.monotonic() - began_s < 0.7 + LATE_S
    instance.do("DELETE", "")
    # Where there is enough nothing is waited for.
    instance = Instance(client, group, **settings | {"consumer.request.timeout.ms": "50000"})
    instance.subscribe(topic)
    wait_until(lambda: len(instance.partitions) == PARTITIONS)
    produce(client, topic, range(100))
    began_s = time.monotonic()
    assert instance.read()
    assert time.monotonic() - began_s < 20
    instance.do("DELETE", "")


def test_one_request_at_a_time(client: RestClient, topic: str, group: str) -> None:
    instance = Instance(client, group)
    instance.subscribe(topic)
    wait_until(lambda: len(instance.partitions) == PARTITIONS)
    again = {"partitions": [{"topic": topic, "partition": 0}]}
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(instance.read, "timeout=40000")
        # Reads wait for each other, each until its own deadline.
        began_s = time.monotonic()
        assert instance.read("timeout=300") == []
        assert time.monotonic() - began_s < 0.3 + LATE_S
        assert not first.done()

        def is_ended() -> bool:
            """What is no read ends the one that waits."""
            instance.do("POST", "/positions/beginning", again)
            return first.done()

        wait_until(is_ended)
        assert first.result() == []
        # More than some are refused, and none of those takes a record.
        reads = [pool.submit(instance.ask, "GET", "/records?timeout=40000") for _ in range(12)]

        def answered(status: int) -> list[Reply]:
            replies = [each.result() for each in reads if each.done()]
            return [each for each in replies if each.status == status]

        wait_until(lambda: len(answered(429)) == 4)
        assert {each.headers["Retry-After"] for each in answered(429)} == {"1"}
        produce(client, topic, range(3))
        wait_until(lambda: sum(len(each.json) for each in answered(200)) == 3)
        values = [record["value"] for each in answered(200) for record in each.json]
        assert sorted(values) == [0, 1, 2]
        wait_until(lambda: instance.ask("DELETE", "").status in (204, 404))
        statuses = [each.result().status for each in reads]
        assert statuses.count(200) + statuses.count(404) == 8


def test_an_answer_that_its_client_does_not_take_is_read_again(
    client: RestClient, topic: str, group: str
) -> None:
    large = {"partition_id": 0, "value": {"type": "STRING", "data": "x" * 500_000}}
    for _ in range(6):
        assert client.records(topic, large, large).status == 200
    instance = Instance(client, group, format="text")
    instance.subscribe(topic)
    wait_until(lambda: len(instance.partitions) == PARTITIONS)
    with client.socket() as connection:
        line = f"GET {instance.path}/records?max_bytes=16000000 HTTP/1.1"
        connection.sendall(f"{line}\r\nHost: localhost\r\n\r\n".encode())
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
        # Closed at once, with what was not taken still on its way.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    (first, *_) = instance.ask("GET", "/records?max_bytes=1").json
    assert first["offset"] == 0
    instance.do("DELETE", "")


def test_any_broker_passes_a_request_on(rest_cluster: Any, client: RestClient, group: str) -> None:
    others = [RestClient(each.rest_url) for each in rest_cluster.brokers[1:]]
    for name in (None, f"mine-{uuid.uuid4().hex[:6]}"):
        instance = Instance(client, f"{group}-{name}", **({"name": name} if name else {}))
        assert instance.name == name or instance.name.startswith("b0-")
        topic = make_topic(rest_cluster, PARTITIONS)
        produce(client, topic, range(6))
        instance.client = others[0]
        instance.subscribe(topic)
        assert instance.do("GET", "/subscription") == {"topics": [topic]}
        instance.client = others[1]
        assert sorted(instance.read_values(6)) == list(range(6))
        problem = instance.ask("POST", "/assignments", {"partitions": []})
        assert (problem.status, problem.json["error_code"]) == (409, 40903)
        # The broker that has it says 404 of a topic, and that is the answer.
        nowhere = {"partitions": [{"topic": "nowhere", "partition": 0}]}
        assert instance.ask("POST", "/positions/end", nowhere).json["error_code"] == 40401
        packed = {"Accept": V2_JSON, "Accept-Encoding": "gzip"}
        instance.do("POST", "/positions/beginning",
                    {"partitions": [{"topic": topic, "partition": 0}]})  # fmt: skip
        produce(client, topic, range(0, 300, 3))
        reply = instance.ask("GET", "/records", headers=packed)
        assert reply.headers["Content-Encoding"] == "gzip"
        assert len(reply.json) > 1
        if name is not None:
            taken = others[0].post(f"/consumers/{group}-{name}", {"name": name}, content_type=V2)
            assert (taken.status, taken.json["error_code"]) == (409, 40902)
        instance.do("DELETE", "")
        assert instance.ask("GET", "/records").json["error_code"] == 40403
    # No header says that a request has been passed on already: only brokers do, to each other.
    instance = Instance(client, group)
    instance.client = others[0]
    reply = instance.ask("GET", "/subscription", headers={"Fairlead-Forwarded-By": "2"})
    assert reply.json == {"topics": []}
    instance.do("DELETE", "")


def test_what_makes_no_sense_is_refused(client: RestClient, topic: str, group: str) -> None:
    for config in (
        {"format": "avro"},
        {"auto.offset.reset": "sometimes"},
        {"auto.commit.enable": "perhaps"},
        {"fetch.min.bytes": "-2"},
        {"consumer.request.timeout.ms": -1},
        {"name": "a/b"},
        {"name": "b2-0123"},
        {"name": "."},
        {"name": ".."},
        {"no.such.setting": 1},
    ):
        problem = client.post(f"/consumers/{group}", config, content_type=V2)
        assert (problem.status, problem.json["error_code"]) == (422, 42204), config
    assert client.post(f"/consumers/{group}", b"[", content_type=V2).status == 400
    assert client.post(f"/consumers/{group}", b"{}", content_type="text/plain").status == 415
    instance = Instance(client, group, name=f"n{group}")
    again = client.post(f"/consumers/{group}", {"name": instance.name}, content_type=V2)
    assert (again.status, again.json["error_code"]) == (409, 40902)
    partition = {"topic": topic, "partition": 0}
    for method, path, body, status, code in (
        ("POST", "/subscription", {"topics": [topic], "topic_pattern": "a"}, 422, 422),
        ("POST", "/subscription", {}, 422, 422),
        ("POST", "/subscription", {"topic_pattern": "\ud800"}, 422, 422),
        ("POST", "/subscription", {"topics": ["a b"]}, 422, 422),
        ("POST", "/subscription", {"topics": [f"{topic}\n"]}, 422, 422),
        ("POST", "/subscription", {"topics": None, "topic_pattern": None}, 422, 422),
        ("POST", "/assignments", {"partitions": [{**partition, "partition": 0.5}]}, 422, 422),
        ("POST", "/assignments", {"partitions": [{"topic": "none", "partition": 0}]}, 404, 40401),
        ("POST", "/assignments", {"partitions": [{**partition, "partition": 3}]}, 404, 40402),
        ("POST", "/positions", {"offsets": [{**partition, "offset": -1}]}, 422, 422),
        ("POST", "/positions", {"offsets": [{**partition, "offset": 0}]}, 409, 40903),
        ("POST", "/offsets", {"offsets": [{**partition, "offset": 2**63 - 1}]}, 422, 422),
        ("POST", "/offsets", {"offsets": [{**partition, "offset": 1, "metadata": "m" * 5000}]},
         400, 40002),
        ("GET", "/offsets?partitions=x", None, 400, 400),
        ("GET", "/offsets?partitions=none-0", None, 404, 40401),
        ("GET", "/records?timeout=-1", None, 400, 400),
        ("GET", "/records?max_bytes=0", None, 400, 400),
        ("PUT", "/records", {}, 405, 405),
    ):  # fmt: skip
        problem = instance.ask(method, path, body)
        assert (problem.status, problem.json["error_code"]) == (status, code), (path, body)
    instance.do("POST", "/assignments", {"partitions": [partition]})
    produce(client, topic, [0])
    # The head of an answer alone takes no records.
    assert instance.ask("HEAD", "/records").status == 200
    assert instance.read_values(1) == [0]
    instance.do("DELETE", "")


def test_whole_numbers_and_nulls_are_taken_as_they_are_meant(
    client: RestClient, topic: str, group: str
) -> None:
    instance = Instance(client, group, **{"auto.commit.enable": "false"})
    instance.do("POST", "/subscription", {"topics": [topic], "topic_pattern": None})
    instance.do("DELETE", "/subscription")
    instance.do("POST", "/subscription", {"topics": None, "topic_pattern": topic})
    instance.do("DELETE", "/subscription")
    produce(client, topic, [0, 1])
    partition = {"topic": topic, "partition": 0.0}
    instance.do("POST", "/assignments", {"partitions": [partition]})
    at_0 = {"topic": topic, "partition": 0}
    assert instance.ask("GET", "/assignments").json == {"partitions": [at_0]}
    instance.do("POST", "/positions", {"offsets": [{**partition, "offset": 1.0}]})
    reads = instance.read("timeout=500")
    assert [each["offset"] for each in reads] == list(range(1, 1 + len(reads)))
    instance.do("POST", "/offsets", {"offsets": [{**partition, "offset": 0.0}]})
    committed = instance.do("GET", "/offsets", {"partitions": [at_0]})["offsets"]
    assert [(each["offset"], each["metadata"]) for each in committed] == [(1, "")]
    instance.do("POST", "/offsets", {"offsets": None})
    path = f"{instance.path}/offsets"
    # A body in chunks that turns out to be none needs no type; one that is something does.
    assert client.post(path, chunks=[], content_type=None).status == 200
    assert client.post(path, chunks=[b"{}"], content_type=None).status == 415
    instance.do("DELETE", "")


def test_an_idle_instance_ends_and_its_last_answer_is_read_again(
    make_cluster: Any, group: str
) -> None:
    settings = {
        "fairlead.rest.listener": "127.0.0.1:0",
        "fairlead.rest.consumer.instance.timeout.ms": "5000",
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "3",
    }
    cluster = make_cluster(brokers=3, settings=settings, is_patient=True)
    client = RestClient(cluster.brokers[0].rest_url)
    topic = make_topic(cluster, PARTITIONS)
    produce(client, topic, range(3))
    instance = Instance(client, group)
    instance.subscribe(topic)
    # A read that waits is no idle instance.
    assert len(instance.read_values(3)) == 3
    assert instance.read("timeout=7000") == []
    produce(client, topic, range(3, 6))
    assert len(instance.read_values(3)) == 3
    path = f"{client.v3}/consumer-groups/{group}"
    wait_until(lambda: client.get(path).json["state"] == "EMPTY")
    assert instance.ask("GET", "/records").json["error_code"] == 40403
    assert committed_offsets(cluster, group, topic) == {0: 1, 1: 1, 2: 1}
    successor = Instance(client, group)
    successor.subscribe(topic)
    assert sorted(successor.read_values(3)) == [3, 4, 5]
    # A broker that stops has its instances leave: nobody waits for the end of their sessions.
    other = RestClient(cluster.brokers[1].rest_url)
    produce(other, topic, range(6, 9))
    cluster.brokers[0].stop()
    path = f"{other.v3}/consumer-groups/{group}"
    wait_until(lambda: other.get(path).json.get("state") == "EMPTY")
    successor.client = other

    def is_gone() -> bool:
        """Until this broker hears that the other one has stopped, it cannot ask it: a 503."""
        reply = successor.ask("GET", "/records")
        assert reply.status in (404, 503), reply.body
        return reply.status == 404

    wait_until(is_gone)
    assert successor.ask("GET", "/records").json["error_code"] == 40403


def test_an_instance_outlives_the_coordinator_and_a_leader(make_cluster: Any, group: str) -> None:
    settings = {
        "fairlead.rest.listener": "127.0.0.1:0",
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
    }
    cluster = make_cluster(brokers=3, settings=settings, is_patient=True)
    topic = make_topic(cluster, PARTITIONS)
    clients = [RestClient(each.rest_url) for each in cluster.brokers]
    first = Instance(clients[0], group)
    first.subscribe(topic)
    produce(clients[0], topic, range(3))
    assert sorted(first.read_values(3)) == [0, 1, 2]
    first.do("DELETE", "")
    coordinator = clients[0].get("/topics/__consumer_offsets/partitions/0").json["leader"]
    client = next(clients[each] for each in range(3) if each != coordinator)
    instance = Instance(client, group)
    instance.subscribe(topic)
    wait_until(lambda: len(instance.partitions) == PARTITIONS)
    cluster.brokers[coordinator].kill()
    wait_until(lambda: try_produce(client, topic))
    assert set(instance.read_values(3)) <= {3, 4, 5}
    # It is a member still, whose commits count.
    instance.do("POST", "/offsets")
    assert sum(instance.committed(topic).values()) >= 6
    assert len(instance.partitions) == PARTITIONS
    path = f"{client.v3}/consumer-groups/{group}/consumers"
    names = [each["consumer_id"] for each in client.get(path).json["data"]]
    assert [each.startswith(instance.name) for each in names] == [True]
    # One whose broker has died is gone, and the client makes another.
    first.client = client
    first.path = first.path.replace(first.name, f"b{coordinator}-0123456789abcdef")
    assert first.ask("GET", "/records").json["error_code"] == 40403
    instance.do("DELETE", "")


def try_produce(client: RestClient, topic: str) -> bool:
    records = [
        {"partition_id": each % PARTITIONS, "value": {"type": "JSON", "data": each}}
        for each in range(3, 6)
    ]
    return {each["error_code"] for each in client.records(topic, *records).reports} == {200}
