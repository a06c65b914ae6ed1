"""A Spark job with `exactlyOnce`, whose driver, tasks and brokers die; its output is then compared.

Topic → filter and transform → topic. A seed decides the faults (`pipeline_faults.py`). A driver
that ended is restarted, as Kubernetes would do; so is a broker. At the end librdkafka reads the
output as `read_committed`, and each record is compared with the transform of the input: none may be
missing, none twice, none with other bytes.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.peers.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.scenarios.pipeline_faults import plan_faults
from fairlead_bench.scenarios.pipeline_job import (
    DELAYS,
    LATE,
    PARTITIONS,
    RESULT,
    SOURCE,
    fill,
    job_document,
    say,
)
from fairlead_bench.scenarios.pipeline_run import LOOK_S, PipelineFailedError, PipelineRun

NAME: Final = "exactly-once"
SETTINGS: Final = {
    # Of the decisions, too.
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
BATCHES: Final = 40
SILENCE_S: Final = 60.0
"""Most silence of the brokers while the output is read."""
SHOWN: Final = 5


@dataclass
class Comparison:
    """Records of the output against what the input's transform gives: each number's key and value.

    `records` is how many numbers the input has, from 0 on.
    """

    records: int
    seen: bytearray = field(init=False)
    rows: int = 0
    twice: int = 0
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = bytearray(self.records)

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record of the output."""
        self.rows += 1
        number = int(key) if key is not None and key.isdigit() else -1
        if not 0 <= number < self.records or (key, value) != transform(number):
            self.wrong.append(f"{key!r}: {value!r}")
        elif self.seen[number]:
            self.twice += 1
        else:
            self.seen[number] = 1

    @property
    def lost(self) -> int:
        """Return how many records of the transform are missing."""
        return count_late(self.records) - sum(self.seen)

    @property
    def is_equal(self) -> bool:
        return not (self.lost or self.twice or self.wrong)


def transform(number: int) -> tuple[bytes, bytes] | None:
    """Return key and value for a number of the input; None if it is filtered out."""
    delay = number % DELAYS
    if delay < LATE:
        return None
    return b"%d" % number, b'{"n":%d,"twice":%d}' % (number, delay * 2)


def count_late(records: int) -> int:
    """Return how many of these numbers the transform keeps."""
    whole, rest = divmod(records, DELAYS)
    return whole * (DELAYS - LATE) + max(rest - LATE, 0)


def write_job(folder: Path, cluster: FairleadCluster, records: int) -> Path:
    """Write the job to a file."""
    return job_document(
        folder,
        NAME,
        cluster.bootstrap,
        {"topic": RESULT, "format": None, "options": {"exactlyOnce": "true"}},
        {
            "kafka.isolation.level": "read_committed",
            "maxOffsetsPerTrigger": str(max(records // BATCHES, PARTITIONS)),
        },
    )


def wait_until_ended(bootstrap: str) -> None:
    """Return once no transaction is open in the output: markers follow a moment after the job.

    PipelineFailedError if one stays open, such as a task's that nobody aborts.
    """
    deadline = time.monotonic() + SILENCE_S
    while (stable := find_ends(bootstrap, "read_committed")) != (
        ends := find_ends(bootstrap, "read_uncommitted")
    ):
        if time.monotonic() > deadline:
            raise PipelineFailedError(f"a transaction is left open: stable {stable} of {ends}")
        time.sleep(LOOK_S)


def find_ends(bootstrap: str, isolation: str) -> list[int]:
    """Return the ends of the output's partitions for a reader of this kind."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "independent",
            "isolation.level": isolation,
            "log_level": 2,
        }
    )
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(RESULT, index), timeout=SILENCE_S)[1]
            for index in range(PARTITIONS)
        ]
    finally:
        consumer.close()


def read_result(bootstrap: str) -> Iterator[Message]:
    """Yield all records that a `read_committed` reader finds, with a client unrelated to Spark.

    It ends at the last stable offset of each partition: records after an open transaction do not
    count.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "independent",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(RESULT, index, 0) for index in range(PARTITIONS)])
    ended: set[int] = set()
    heard_at = time.monotonic()
    try:
        while len(ended) < PARTITIONS:
            messages = consumer.consume(10_000, LOOK_S)
            if messages:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > SILENCE_S:
                raise PipelineFailedError(f"nothing comes; ended are partitions {sorted(ended)}")
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def run_exactly_once(folder: Path, records: int, padding: int, seed: int, count: int) -> int:
    """Run the whole scenario; return 0 if the output is correct."""
    with FairleadCluster(folder / "cluster", SETTINGS) as cluster:
        cluster.start()
        wait_until_serving(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        for topic in (SOURCE, RESULT):
            wanted = NewTopic(topic, PARTITIONS, 3)
            admin.create_topics([wanted])[topic].result(30)
        wait_until_in_sync(cluster, partitions=2 * PARTITIONS, topics=[SOURCE, RESULT])
        took_s = fill(cluster.bootstrap, records, padding)
        say(f"{records:,} records written in {took_s:.0f} s; the faults are those of seed {seed}")
        started = time.monotonic()
        run = PipelineRun(cluster, NAME, write_job(folder, cluster, records), records)
        try:
            run.run(plan_faults(seed, count))
            took_s = time.monotonic() - started
            say(
                f"the job ended after {took_s:.0f} s, {records / took_s:,.0f} records/s, with "
                f"{len(run.faults.lines)} faults and {run.faults.restarts} starts of the driver "
                "besides the first"
            )
            wait_until_serving(cluster)
            lag = run.lag()
        finally:
            run.close()
        wait_until_ended(cluster.bootstrap)
        comparison = Comparison(records)
        for message in read_result(cluster.bootstrap):
            comparison.add(message.key(), message.value())
        is_right = comparison.is_equal and lag == 0
        say(
            f"read_committed: {comparison.rows:,} rows of {count_late(records):,}: "
            f"{comparison.lost:,} lost, {comparison.twice:,} twice, {len(comparison.wrong):,} that "
            f"no input gives; lag of the group {lag:,}: {'right' if is_right else 'WRONG'}"
        )
        for line in comparison.wrong[:SHOWN]:
            say(line)
    return 0 if is_right else 1
