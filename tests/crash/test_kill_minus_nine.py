"""`kill -9` of a broker under full load: what it acknowledged is there, and in order.

The page cache outlives a killed process, so every acknowledged record must. Each round produces as
fast as the client can, kills the broker at a random moment, starts it again on the same data, and
reads back what is new. `make test` does a few rounds and `make proofs` twenty; `FAIRLEAD_RUNS` sets
them, `FAIRLEAD_SEED` the moments.
"""

import json
import os
import random
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from held_recovery import HeldRecovery
from processor_wait import waited_s
from proofs import KILLS
from waiting import wait_until

from fairlead_broker.tools.verify import verify_partition

PROJECT = Path(__file__).resolve().parents[2]
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.peers.fairlead_peer import FairleadPeer  # noqa: E402
from fairlead_bench.peers.peer import wait_until_ready  # noqa: E402

pytestmark = [pytest.mark.crash, pytest.mark.slow]

RUNS = KILLS.chosen()
SEED = int(os.environ.get("FAIRLEAD_SEED", "9"))
PARTITIONS = 3
DEADLINE_S = 60
PADDING = b"." * 200
TOPIC = "killed"
# Small segments and dense indexes: rolls, snapshots and index entries in every round.
TOPIC_SETTINGS = {"segment.bytes": str(8 << 20), "index.interval.bytes": "1024"}


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[FairleadPeer]:
    with FairleadPeer(tmp_path) as started:
        started.start()
        wait_until_ready(started)
        yield started


def create_topic(peer: FairleadPeer, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 2})
    config = TOPIC_SETTINGS | settings
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)])[TOPIC].result(DEADLINE_S)
    wait_until_ready(peer, partitions=PARTITIONS, probe_topic=TOPIC, probe_partitions=PARTITIONS)


def restart(peer: FairleadPeer) -> float:
    """Seconds until the killed broker serves every partition again."""
    started_s = time.monotonic()
    peer.start_broker()
    wait_until_ready(peer, partitions=PARTITIONS)
    return time.monotonic() - started_s


@dataclass
class Journal:
    """What was sent and what the broker acknowledged: (partition, offset) and sequence number."""

    sent_count: int = 0
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    unexpected: list[str] = field(default_factory=list)


class FullSpeedProducer:
    """A thread that sends numbered records, round robin, until it is told to stop."""

    def __init__(self, peer: FairleadPeer, journal: Journal, **settings: Any) -> None:
        self.journal = journal
        self._producer = Producer(
            {
                "bootstrap.servers": peer.bootstrap,
                "log_level": 0,
                "linger.ms": 2,
                "queue.buffering.max.messages": 20_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                **settings,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "FullSpeedProducer":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            sequence = self.journal.sent_count
            try:
                self._producer.produce(
                    TOPIC,
                    b"%012d" % sequence + PADDING,
                    partition=sequence % PARTITIONS,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.01)
            else:
                self.journal.sent_count = sequence + 1
                self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = (int(message.partition() or 0), int(message.offset() or 0))
            self.journal.acknowledged[place] = int((message.value() or b"")[:12])
        elif error.code() not in OUTCOME_UNKNOWN:
            self.journal.unexpected.append(str(error))

    def abandon(self) -> None:
        """Forgets what is unanswered: nobody knows whether the broker had it. More than once,
        because what is on its way from the connection back to the queue escapes a purge."""
        deadline = time.monotonic() + DEADLINE_S
        self._producer.purge()
        while self._producer.flush(1.0) and time.monotonic() < deadline:
            self._producer.purge()
        assert len(self._producer) == 0

    def finish(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0, "records were not acknowledged in time"


OUTCOME_UNKNOWN = {
    KafkaError._TRANSPORT,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._PURGE_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
}


class Reader:
    """Reads each partition on from where it stopped; offsets must follow one another."""

    def __init__(self, peer: FairleadPeer) -> None:
        self._peer = peer
        self.next_offsets = dict.fromkeys(range(PARTITIONS), 0)

    def read_on(self) -> dict[tuple[int, int], int | None]:
        """Sequence numbers by (partition, offset); None for the probes of wait_until_ready."""
        consumer = Consumer(
            {"bootstrap.servers": self._peer.bootstrap, "group.id": "unused", "log_level": 2}
        )
        try:
            return self._read(consumer)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> dict[tuple[int, int], int | None]:
        found: dict[tuple[int, int], int | None] = {}
        ends = {}
        for partition, offset in self.next_offsets.items():
            low, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), DEADLINE_S)
            assert low == 0
            assert end >= offset, f"{TOPIC}-{partition} lost records that had been read"
            ends[partition] = end
        consumer.assign([TopicPartition(TOPIC, p, o) for p, o in self.next_offsets.items()])
        deadline = time.monotonic() + DEADLINE_S
        while self.next_offsets != ends:
            assert time.monotonic() < deadline, f"stuck at {self.next_offsets}, ends {ends}"
            for message in consumer.consume(10_000, timeout=0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                partition, offset = message.partition() or 0, message.offset() or 0
                assert offset == self.next_offsets[partition], "offsets are not contiguous"
                self.next_offsets[partition] = offset + 1
                number = (message.value() or b"")[:12]
                found[partition, offset] = int(number) if number.isdigit() else None
        return found


def check_files(peer: FairleadPeer) -> None:
    """Batches, checksums, offsets and every index entry, straight from the files."""
    for partition in range(PARTITIONS):
        findings = list(verify_partition(peer.log_directory / f"{TOPIC}-{partition}"))
        assert not findings, findings[:3]


def has_grown(journal: Journal, count: int) -> bool:
    return len(journal.acknowledged) > count


def check_round(journal: Journal, stored: dict[tuple[int, int], int | None]) -> None:
    lost = {
        place: sequence
        for place, sequence in journal.acknowledged.items()
        if stored.get(place) != sequence
    }
    assert not lost, f"{len(lost)} acknowledged records are not where they were said to be"
    assert not journal.unexpected, journal.unexpected[:3]


def run_rounds(peer: FairleadPeer, rounds: int, generator: random.Random) -> int:
    """How many acknowledged records outlived the kills, each of them checked."""
    reader = Reader(peer)
    kept_count = next_sequence = 0
    for _ in range(rounds):
        journal = Journal(sent_count=next_sequence)
        settings = {
            "acks": generator.choice(["1", "all"]),
            "compression.type": generator.choice(["none", "none", "lz4", "zstd"]),
            "batch.size": generator.choice([1_000, 50_000, 1_000_000]),
            "retries": 0,
        }
        producer = FullSpeedProducer(peer, journal, **settings)
        with producer:
            wait_until(partial(has_grown, journal, 0), "no acknowledgement")
            time.sleep(generator.uniform(0.0, 0.5))
            peer.kill_broker()
        producer.abandon()
        restart(peer)
        check_round(journal, reader.read_on())
        check_files(peer)
        kept_count += len(journal.acknowledged)
        next_sequence = journal.sent_count
    return kept_count


@pytest.mark.proof
def test_what_was_acknowledged_outlives_kill_minus_nine(peer: FairleadPeer) -> None:
    create_topic(peer)
    kept_count = run_rounds(peer, RUNS, random.Random(SEED))
    assert kept_count > RUNS * 100


@pytest.mark.proof
def test_with_a_flush_of_every_batch_too(peer: FairleadPeer) -> None:
    create_topic(peer, **{"flush.messages": "1"})
    rounds = max(RUNS // 5, 2)
    kept_count = run_rounds(peer, rounds, random.Random(SEED + 1))
    assert kept_count > rounds


@pytest.mark.proof
def test_an_idempotent_producer_works_through_kills_without_loss_or_duplicates(
    peer: FairleadPeer,
) -> None:
    create_topic(peer)
    generator, journal = random.Random(SEED + 2), Journal()
    producer = FullSpeedProducer(peer, journal, acks="all", **{"enable.idempotence": True})
    with producer:
        for _ in range(max(RUNS // 5, 2)):
            before = len(journal.acknowledged)
            wait_until(partial(has_grown, journal, before), "nothing goes on")
            time.sleep(generator.uniform(0.0, 0.4))
            peer.kill_broker()
            restart(peer)
    producer.finish()
    stored = Reader(peer).read_on()
    check_round(journal, stored)
    check_files(peer)
    for partition in range(PARTITIONS):
        places = sorted(place for place in stored if place[0] == partition)
        sequences = [stored[place] for place in places if stored[place] is not None]
        assert sequences == list(range(partition, journal.sent_count, PARTITIONS))


def fill(peer: FairleadPeer, megabytes: int) -> None:
    producer = Producer(
        {"bootstrap.servers": peer.bootstrap, "log_level": 2, "linger.ms": 5, "acks": 1}
    )
    messages = [{"value": b"x" * 10_000} for _ in range(100)]
    for _ in range(megabytes):
        while producer.produce_batch(TOPIC, [dict(each) for each in messages]) < len(messages):
            producer.poll(0.01)
    assert producer.flush(DEADLINE_S) == 0


def test_a_clean_log_is_served_within_a_second_and_a_dirty_one_shows_its_recovery(
    peer: FairleadPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(peer, **{"segment.bytes": str(1 << 30)})
    fill(peer, 300)

    peer.kill_broker()
    recovery = HeldRecovery(tmp_path / "held", monkeypatch)
    peer.start_broker()
    wait_until(lambda: (ask_readiness(peer) or {}).get("bytes", 0) >= 200_000_000)
    recovery.let_go()
    seen = watch_recovery(peer)
    wait_until_ready(peer, partitions=PARTITIONS)
    shares = [each["bytes_done"] for each in seen if "bytes_done" in each]
    assert shares == sorted(shares)
    check_files(peer)

    durations_s = []
    for _ in range(4):
        peer.stop()
        started_s = time.monotonic()
        peer.start()
        wait_until_ready(peer, partitions=PARTITIONS)
        durations_s.append(time.monotonic() - started_s - waited_s(*peer.pids))
    # The quickest: this is about work left behind, not about who else uses the machine.
    assert min(durations_s) < 1.0, durations_s


def ask_readiness(peer: FairleadPeer) -> dict[str, Any] | None:
    """What /readyz says while the broker is not ready; None when it is."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{peer.http_port}/readyz", timeout=5):
            return None
    except urllib.error.HTTPError as error:
        with error:
            answer: dict[str, Any] = json.loads(error.read())
            return answer
    except OSError:  # not listening yet
        return {}


def watch_recovery(peer: FairleadPeer) -> list[dict[str, Any]]:
    """Every answer of /readyz until the broker is ready."""
    answers: list[dict[str, Any]] = []
    deadline = time.monotonic() + DEADLINE_S
    while (answer := ask_readiness(peer)) is not None:
        assert time.monotonic() < deadline, f"not ready: {answers[-1:]}"
        answers.append(answer)
    return answers
