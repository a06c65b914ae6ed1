"""Many reads by HTTP that wait: what they cost, and how they end."""

import re
import selectors
import socket
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rest_client import RestClient, make_topic, write_after_a_kill
from waiting import wait_until

SETTINGS = {
    "fairlead.rest.listener": "127.0.0.1:0",
    "default.replication.factor": "3",
}
POLLS = 500
COST_BYTES_MAX = 30 * 2**20
WAIT_MS = 60_000


def path_of(index: int, offset: str = "0") -> str:
    return f"/topics/t/partitions/{index}/records?format=json&timeout={WAIT_MS}&offset={offset}"


def open_poll(client: RestClient, index: int) -> socket.socket:
    sock = client.socket()
    sock.sendall(f"GET {path_of(index)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return sock


def metric(broker: Any, name: str) -> int:
    found = re.search(rf"^{name} (\d+)", broker.get("/metrics")[1], re.MULTILINE)
    assert found is not None
    return int(found[1])


def in_flight(broker: Any) -> int:
    return metric(broker, "fairlead_rest_requests_in_flight")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_five_hundred_polls_cost_little_wherever_the_leader_is(make_cluster: Any) -> None:
    settings = SETTINGS | {"default.replication.factor": "2"}
    cluster = make_cluster(brokers=2, settings=settings, is_patient=True)
    make_topic(cluster, 2, name="t")
    client = RestClient(cluster.brokers[0].rest_url)
    for index in (0, 1):
        client.get(f"/topics/t/partitions/{index}/records?timeout=0")
        before = [resident_bytes(broker.process.pid) for broker in cluster.brokers]
        polls = [open_poll(client, index) for _ in range(POLLS)]
        wait_until(lambda: in_flight(cluster.brokers[0]) == POLLS)
        after = [resident_bytes(broker.process.pid) for broker in cluster.brokers]
        costs = [late - early for early, late in zip(before, after, strict=True)]
        print(f"{POLLS} polls cost {costs} bytes")
        assert sum(costs) < COST_BYTES_MAX
        client.records("t", {"partition_id": index, "value": {"type": "JSON", "data": "x"}})
        with selectors.DefaultSelector() as selector:
            for poll in polls:
                selector.register(poll, selectors.EVENT_READ)
            deadline = time.monotonic() + 30
            answers: defaultdict[int, bytes] = defaultdict(bytes)
            while selector.get_map():
                assert time.monotonic() < deadline, f"{len(selector.get_map())} have no answer"
                for key, _ in selector.select(1):
                    assert isinstance(key.fileobj, socket.socket)
                    # Its head may come before the rest.
                    answers[key.fd] += (piece := key.fileobj.recv(4096))
                    assert piece, f"the connection ended after {answers[key.fd]!r}"
                    if b'"value":"x"' in answers[key.fd]:
                        selector.unregister(key.fileobj)
            assert all(each.startswith(b"HTTP/1.1 200") for each in answers.values())
        for poll in polls:
            poll.close()


def test_a_client_that_hangs_up_leaves_nothing(make_cluster: Any) -> None:
    cluster = make_cluster(brokers=1, settings=SETTINGS | {"default.replication.factor": "1"})
    make_topic(cluster, 1, name="t")
    broker = cluster.brokers[0]
    client = RestClient(broker.rest_url)
    polls = [open_poll(client, 0) for _ in range(20)]
    wait_until(lambda: metric(broker, "fairlead_parked_fetches") == 20)
    for poll in polls:
        poll.close()
    wait_until(lambda: metric(broker, "fairlead_parked_fetches") == 0, deadline_s=WAIT_MS / 3000)
    wait_until(lambda: in_flight(broker) == 0, deadline_s=WAIT_MS / 3000)


def test_a_read_outlives_its_leader_and_ends_with_its_broker(make_cluster: Any) -> None:
    cluster = make_cluster(brokers=3, settings=SETTINGS, is_patient=True)
    make_topic(cluster, 6, name="t")
    client = RestClient(cluster.brokers[0].rest_url)
    leaders = {
        each["partition"]: each["leader"] for each in client.get("/topics/t").json["partitions"]
    }
    index = next(index for index, leader in leaders.items() if leader == 2)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(client.get, path_of(index))
        wait_until(lambda: in_flight(cluster.brokers[0]) == 1)
        cluster.brokers[2].kill()
        write_after_a_kill(client, "t", {"partition_id": index, "value": None})
        assert [each["offset"] for each in waiting.result().json] == [0]
        polls = [pool.submit(client.get, path_of(each, "latest")) for each in (0, index)]
        wait_until(lambda: in_flight(cluster.brokers[0]) == 2)
        began = time.monotonic()
        cluster.brokers[0].stop()
        replies = [poll.result() for poll in polls]
    assert time.monotonic() - began < WAIT_MS / 3000
    assert [(reply.status, reply.json) for reply in replies] == [(200, []), (200, [])]
    assert all("Fairlead-Next-Offset" in reply.headers for reply in replies)
