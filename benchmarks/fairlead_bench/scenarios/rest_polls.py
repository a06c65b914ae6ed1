"""The effect of a hundred waiting HTTP reads on Kafka's protocol: with and without them, in turn.

Fairlead only: Apache Kafka's brokers have no HTTP API. The broker listens for HTTP in both turns.
"""

import json
import socket
import statistics
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.own_ports import take_ports
from fairlead_bench.peers.peer import wait_until_ready
from fairlead_bench.report.results import Results
from fairlead_bench.scenarios.single_broker import PARTITIONS, Bench, Sizes, settle

SUBJECT: Final = "fairlead"
POLLS: Final = 100
WAIT_MS: Final = 60_000
ROUNDS: Final = 5
ROUNDS_QUICK: Final = 3
ANSWER_BYTES: Final = 1 << 16


def measure_polls(folder: Path, results: Results, sizes: Sizes, *, is_quick: bool) -> None:
    """Compare the broker's CPU for small requests with waiting polls to that without them."""
    data = folder / "rest-polls"
    data.mkdir(parents=True)
    (port,) = take_ports(1)
    with FairleadPeer(data, {"fairlead.rest.listener": f"127.0.0.1:{port}"}) as peer:
        peer.start()
        wait_until_ready(peer)
        bench = Bench(peer, sizes)
        idle_topic = bench.create_topic("polled")
        bench.fill()
        for kind, load in (("requests", bench.requests), ("fetch", bench.fetch)):
            load()  # Does not count: files and connections are new.
            alone: list[float] = []
            beside: list[float] = []
            for _ in range(ROUNDS_QUICK if is_quick else ROUNDS):
                settle()
                alone.append(load().broker_cpu_s)
                settle()
                with waiting_polls(port, idle_topic):
                    beside.append(load().broker_cpu_s)
            ratio = statistics.median(beside) / statistics.median(alone)
            results.values[SUBJECT, f"rest_polls_{kind}"].append(ratio)
        bench.delete_topics()


@contextmanager
def waiting_polls(port: int, topic: str) -> Iterator[None]:
    """Keep reads of the end of a topic waiting, without writes to it, until the block ends.

    RuntimeError if they do not all wait, before or after: then the measurement is invalid.
    """
    with ExitStack() as stack:
        polls = []
        for number in range(POLLS):
            poll = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            path = f"/topics/{topic}/partitions/{number % PARTITIONS}/records"
            query = f"format=json&offset=latest&timeout={WAIT_MS}"
            poll.sendall(f"GET {path}?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            poll.setblocking(False)
            polls.append(poll)
        check_waiting(port, polls)
        yield
        check_waiting(port, polls)


def check_waiting(port: int, polls: list[socket.socket]) -> None:
    """Raise RuntimeError with the first answer, if there is one."""
    # An answer of the same server: by then it has handled what came before.
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v3/clusters", timeout=30) as page:
        json.load(page)
    for poll in polls:
        try:
            answer = poll.recv(ANSWER_BYTES)
        except BlockingIOError:
            continue
        raise RuntimeError(f"a poll does not wait: {answer[:200]!r}")
