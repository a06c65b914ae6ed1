"""Thousands of transactions that are open at once, with one coordinator and over one partition.

`FAIRLEAD_TRANSACTIONS=10000` (a log allows no more) and `-s` print the figures of
docs/transactions.md: memory, how fast they open and end, how long a new coordinator takes, and what
others' produces wait while all expire at once.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from drill_settings import allowed_ms
from live_broker import FrameClient
from proofs import OPEN_TRANSACTIONS
from waiting import wait_until

from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from fairlead_wire.messages.end_txn import EndTxnRequest
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.list_transactions import ListTransactionsRequest
from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fairlead_wire.records import Record, encode_batch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from fairlead_bench.loads.process_usage import read_memory_mb
from fairlead_bench.peers.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

pytestmark = [pytest.mark.proof]

TRANSACTIONS = OPEN_TRANSACTIONS.chosen()
HELD, OTHERS = "held", "others"
LONG_MS, EXPIRY_MS = 900_000, 3_000
DEADLINE_S = 120.0
CONNECTIONS = 50
BYTES_PER_TRANSACTION_MAX = 20_000
"""On one broker, of everything: log, coordinator, partition."""
OTHERS_P99_MS = 250
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadCluster]:
    with FairleadCluster(tmp_path_factory.mktemp("many"), SETTINGS) as started:
        started.start()
        wait_until_serving(started)
        admin = AdminClient({"bootstrap.servers": started.bootstrap, "log_level": 2})
        for made in admin.create_topics([NewTopic(HELD, 1, 3), NewTopic(OTHERS, 1, 3)]).values():
            made.result(60)
        wait_until_in_sync(started, partitions=2, topics=[HELD, OTHERS])
        yield started


class Id:
    """A transactional id, and the producer that it has."""

    def __init__(self, number: int) -> None:
        self.name = f"id-{number}"
        self.producer_id = self.epoch = -1

    def init(self, timeout_ms: int) -> tuple[Any, int]:
        return InitProducerIdRequest(self.name, timeout_ms), 4

    def inited(self, reply: Any) -> ErrorCode:
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch
        return ErrorCode(reply.error_code)

    def produce(self) -> tuple[Any, int]:
        """As a client of version 2, whose coordinator the partition's leader tells."""
        batch = encode_batch(
            [Record(0, 1_000, b"k", b"v" * 100)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = PartitionProduceData(0, memoryview(bytearray(batch)))
        topic = TopicProduceData(HELD, partition_data=[data])
        return ProduceRequest(self.name, -1, 30_000, [topic]), 12

    def end(self) -> tuple[Any, int]:
        return EndTxnRequest(self.name, self.producer_id, self.epoch, True), 5


def ended(_: Id, reply: Any) -> ErrorCode:
    return ErrorCode(reply.error_code)


def produced(_: Id, reply: Any) -> ErrorCode:
    return ErrorCode(reply.responses[0].partition_responses[0].error_code)


def do_all(
    port: int,
    ids: Sequence[Id],
    make: Callable[[Id], tuple[Any, int]],
    read: Callable[[Id, Any], ErrorCode],
) -> float:
    """Ask for every id, and again while the answer says so; seconds it took.

    Each connection has one request under way, as that of a producer of its own.
    """
    began = time.monotonic()
    left = list(ids)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(FrameClient(port)) for _ in range(CONNECTIONS)]
        while left:
            assert time.monotonic() - began < DEADLINE_S, f"{len(left)} are left"
            now, left = left[:CONNECTIONS], left[CONNECTIONS:]
            for client, each in zip(clients, now, strict=False):
                message, version = make(each)
                client.send(message, version)
            for client, each in zip(clients, now, strict=False):
                code = read(each, client.receive(message.API_KEY, version)[1])
                if code is not ErrorCode.NONE:
                    assert code in AGAIN, code
                    left.append(each)
    return time.monotonic() - began


class Others:
    """Another application's produces, acks=all, each timed, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 2}
        self._producer = Producer(settings)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.took_ms: list[float] = []

    def __enter__(self) -> Others:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            began = time.monotonic()
            self._producer.produce(OTHERS, b"x" * 100)
            assert self._producer.flush(DEADLINE_S) == 0
            self.took_ms.append((time.monotonic() - began) * 1000)

    def p99_ms(self) -> float:
        return quantiles(self.took_ms, n=100)[98]


class Cluster:
    """What clients and administrators see of the cluster."""

    def __init__(self, cluster: FairleadCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})

    def leader_port(self) -> int:
        metadata = self.admin.list_topics(HELD, timeout=30)
        return int(metadata.brokers[metadata.topics[HELD].partitions[0].leader].port)

    def coordinator_port(self) -> int:
        def ask() -> int:
            for port in self.cluster.ports:
                # One of them may be dead.
                with contextlib.suppress(ConnectionError), FrameClient(port) as client:
                    reply = client.call(FindCoordinatorRequest("id-0", 1), 2)
                    if not reply.error_code:
                        return int(reply.port)
            return 0

        return wait_until(ask, deadline_s=DEADLINE_S)

    def stable_offset(self) -> int:
        return self._end_of(IsolationLevel.READ_COMMITTED)

    def is_all_stable(self) -> bool:
        """Tell whether readers of committed records get as far as all others."""
        return self.stable_offset() == self._end_of(IsolationLevel.READ_UNCOMMITTED)

    def _end_of(self, isolation_level: IsolationLevel) -> int:
        place = TopicPartition(HELD, 0)
        offsets = self.admin.list_offsets(
            {place: OffsetSpec.latest()}, isolation_level=isolation_level
        )
        return int(offsets[place].result(30).offset)

    def open_ids(self) -> int:
        """How many transactions their coordinator lists as open; -1 while it cannot say."""
        with contextlib.suppress(ConnectionError), FrameClient(self.coordinator_port()) as client:
            reply = client.call(ListTransactionsRequest(["Ongoing"]), 0)
            if not reply.error_code:
                return len(reply.transaction_states)
        return -1

    def open_producers(self) -> int:
        with FrameClient(self.leader_port()) as client:
            reply = client.call(DescribeProducersRequest([TopicRequest(HELD, [0])]), 0)
            (partition,) = reply.topics[0].partitions
            assert not partition.error_code
            return sum(each.current_txn_start_offset >= 0 for each in partition.active_producers)

    def listed(self) -> int:
        """What `fairlead txn list` says."""
        command = [str(Path(sys.executable).with_name("fairlead")), "txn", "list", "-o", "json"]
        command += ["--bootstrap", self.cluster.bootstrap, "--state", "ongoing"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert output.returncode == 0, output.stderr
        return len(json.loads(output.stdout))

    def memory_mb(self) -> float:
        """Of the broker that has most."""
        return max(read_memory_mb(each.pid) for each in self.cluster.brokers if each.is_started)


def test_thousands_of_open_transactions(cluster: FairleadCluster) -> None:
    view, ids = Cluster(cluster), [Id(number) for number in range(TRANSACTIONS)]
    figures: dict[str, float] = {"transactions": TRANSACTIONS}
    do_all(view.coordinator_port(), ids[:1], lambda each: each.init(LONG_MS), Id.inited)
    before_mb = view.memory_mb()
    with Others(cluster.bootstrap) as others:
        took_s = do_all(view.coordinator_port(), ids, lambda each: each.init(LONG_MS), Id.inited)
        figures["ids_per_s"] = TRANSACTIONS / took_s
        took_s = do_all(view.leader_port(), ids, Id.produce, produced)
        figures["opened_per_s"] = TRANSACTIONS / took_s
    figures["others_p99_ms_while_they_open"] = others.p99_ms()
    figures["bytes_a_transaction"] = (view.memory_mb() - before_mb) * 1e6 / TRANSACTIONS
    assert view.stable_offset() == 0
    for ask, name in ((view.open_ids, "list_s"), (view.open_producers, "describe_s")):
        began = time.monotonic()
        assert ask() == TRANSACTIONS
        figures[name] = time.monotonic() - began
    assert view.listed() == TRANSACTIONS

    # Another broker takes over.
    index = cluster.ports.index(view.coordinator_port())
    began = time.monotonic()
    cluster.kill_broker(index)
    wait_until(lambda: view.open_ids() == TRANSACTIONS, deadline_s=DEADLINE_S)
    figures["failover_s"] = time.monotonic() - began
    cluster.start_broker(index)
    wait_until_in_sync(cluster, partitions=2, topics=[HELD, OTHERS])
    assert view.stable_offset() == 0

    # They end, the second half first: up to the first that is open nobody may read.
    half = TRANSACTIONS // 2
    with Others(cluster.bootstrap) as others:
        took_s = do_all(view.coordinator_port(), ids[half:], Id.end, ended)
        assert view.stable_offset() == 0
        took_s += do_all(view.coordinator_port(), ids[:half], Id.end, ended)
        figures["ended_per_s"] = TRANSACTIONS / took_s
        wait_until(view.is_all_stable, lambda: str(view.stable_offset()), deadline_s=DEADLINE_S)
    figures["others_p99_ms_while_they_end"] = others.p99_ms()
    assert view.stable_offset() >= 2 * TRANSACTIONS, "a record and a marker each, or two"

    # And once more, to expire at about the same time.
    opening_ms = TRANSACTIONS / figures["opened_per_s"] * 1000
    inited = {
        each: EXPIRY_MS + int(opening_ms * (1 - number / TRANSACTIONS))
        for number, each in enumerate(ids)
    }
    do_all(view.coordinator_port(), ids, lambda each: each.init(inited[each]), Id.inited)
    due = time.monotonic() + EXPIRY_MS / 1000 + opening_ms / 1000
    do_all(view.leader_port(), ids, Id.produce, produced)
    with Others(cluster.bootstrap) as others:
        wait_until(view.is_all_stable, lambda: str(view.stable_offset()), deadline_s=DEADLINE_S)
    figures["all_expired_after_s"] = time.monotonic() - due
    figures["others_p99_ms_while_they_expire"] = others.p99_ms()
    figures["others_max_ms_while_they_expire"] = max(others.took_ms)
    wait_until(lambda: view.open_ids() == 0, deadline_s=DEADLINE_S)
    assert view.open_producers() == 0
    figures["memory_mb"] = view.memory_mb()
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    assert figures["bytes_a_transaction"] < BYTES_PER_TRANSACTION_MAX
    assert figures["others_p99_ms_while_they_expire"] < allowed_ms(OTHERS_P99_MS)
