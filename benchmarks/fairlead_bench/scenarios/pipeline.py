"""Millions of records through Spark, with a broker and an executor killed on the way, and counted.

    python benchmarks/pipeline.py --records 10000000

Topic → filter and transform → topic, then topic → Parquet, each by `fairlead_spark.job` as a
StreamJob's driver runs it, on two executors in processes of their own (`local-cluster`). While
each job runs, the leader of a partition and an executor get SIGKILL. Afterwards readers that know
nothing of Spark count: librdkafka the topic, pyarrow the files.

`--exactly-once`: `exactly_once_pipeline.py` instead.
"""

import argparse
import json
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead_bench.peers.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.project import PROJECT
from fairlead_bench.scenarios.exactly_once_pipeline import run_exactly_once
from fairlead_bench.scenarios.pipeline_faults import Fault, Target
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
from fairlead_bench.scenarios.pipeline_run import PipelineFailedError, PipelineRun

BATCHES: Final = 10
FAULTS: Final = (
    Fault(Target.EXECUTOR, share=0.1, delay_s=1.0, away_s=0.0, choice=0.0),
    Fault(Target.SOURCE_LEADER, share=0.4, delay_s=1.0, away_s=5.0, choice=0.0),
)
QUIET_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a set of numbers; they differ if a number is lost or changed."""

    count: int
    distinct: int
    total: int

    @classmethod
    def of(cls, numbers: range) -> "Sums":
        """Return the sums of all of these numbers, once each."""
        return cls(len(numbers), len(numbers), sum(numbers))


def run_job(
    cluster: FairleadCluster, folder: Path, name: str, sink: dict[str, Any], records: int
) -> float:
    """Run a job over all records to its end among faults; return the seconds that it took.

    PipelineFailedError if it ended before its faults were due, or if one of them ended its driver.
    """
    batch = max(records // BATCHES, PARTITIONS)
    options = {"maxOffsetsPerTrigger": str(batch)}
    document = job_document(folder, name, cluster.bootstrap, sink, options)
    started = time.monotonic()
    run = PipelineRun(cluster, name, document, records)
    try:
        run.run(FAULTS)
    finally:
        run.close()
    took_s = time.monotonic() - started
    if run.faults.restarts:
        raise PipelineFailedError(
            f"the driver of {name} was started {run.faults.restarts + 1} times"
        )
    return took_s


def count_topic(bootstrap: str, topic: str) -> Sums:
    """Read a topic to its end with a client unrelated to Spark."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "independent",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    seen: set[int] = set()
    count = 0
    last = time.monotonic()
    while time.monotonic() - last < QUIET_S:
        messages = consumer.consume(10_000, 1.0)
        if messages:
            last = time.monotonic()
        for message in messages:
            if message.error() is None:
                count += 1
                seen.add(int(message.key()))
    consumer.close()
    return Sums(count, len(seen), sum(seen))


def count_parquet(folder: Path) -> Sums:
    """Count only files in the sink's own log, as every reader of Spark's output does."""
    import pyarrow.parquet as parquet

    names: dict[str, str] = {}
    for entry in sorted(
        (folder / "_spark_metadata").iterdir(), key=lambda path: path.name.split(".")[0].zfill(9)
    ):
        if entry.name.startswith("."):
            continue
        for line in entry.read_text().splitlines()[1:]:
            said = json.loads(line)
            names[said["path"].removeprefix("file:")] = said["action"]
    numbers: set[int] = set()
    count = 0
    for name, action in names.items():
        if action == "add":
            column = parquet.read_table(name, columns=["n"])["n"].to_pylist()
            count += len(column)
            numbers.update(column)
    return Sums(count, len(numbers), sum(numbers))


def check(what: str, found: Sums, wanted: Sums, *, exactly_once: bool) -> bool:
    """Compare and print the result."""
    is_whole = (found.distinct, found.total) == (wanted.distinct, wanted.total)
    is_right = is_whole and (not exactly_once or found.count == wanted.count)
    repeated = found.count - found.distinct
    say(
        f"{what}: {found.distinct:,} of {wanted.distinct:,} records, sum {found.total:,}, "
        f"{repeated:,} repeated: {'right' if is_right else 'WRONG'}"
    )
    return is_right


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks/pipeline.py", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--padding", type=int, default=160, help="bytes added to each record")
    parser.add_argument(
        "--exactly-once",
        action="store_true",
        help="topic to topic with exactlyOnce, compared record by record, among more faults",
    )
    parser.add_argument("--faults", type=int, default=10, help="of --exactly-once")
    parser.add_argument(
        "--seed", type=int, help="of the faults of --exactly-once; one is drawn and told otherwise"
    )
    options = parser.parse_args(arguments)
    base = PROJECT / ".cache"
    base.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pipeline-", dir=base) as place:
        if options.exactly_once:
            seed = random.randrange(2**32) if options.seed is None else options.seed
            return run_exactly_once(
                Path(place), options.records, options.padding, seed, options.faults
            )
        return run(Path(place), options.records, options.padding)


def run(folder: Path, records: int, padding: int) -> int:
    with FairleadCluster(folder / "cluster", {"offsets.topic.replication.factor": "3"}) as cluster:
        cluster.start()
        wait_until_serving(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        for topic in (SOURCE, RESULT):
            wanted = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
            admin.create_topics([wanted])[topic].result(30)
        wait_until_in_sync(cluster, partitions=2 * PARTITIONS, topics=[SOURCE, RESULT])
        took_s = fill(cluster.bootstrap, records, padding)
        size = len(f'{{"n":{records},"delay":10,"pad":""}}') + padding
        say(f"{records:,} records of {size} bytes written in {took_s:.0f} s")

        took_s = run_job(cluster, folder, "transform", {"topic": RESULT, "format": None}, records)
        say(f"topic → topic: {took_s:.0f} s, {records / took_s:,.0f} records/s")
        late = [number for number in range(DELAYS) if number >= LATE]
        numbers = [n for n in range(records) if n % DELAYS in late]
        wanted_late = Sums(len(numbers), len(numbers), sum(numbers))
        is_right = check(
            "topic → topic",
            count_topic(cluster.bootstrap, RESULT),
            wanted_late,
            exactly_once=False,
        )
        wait_until_in_sync(cluster, partitions=2 * PARTITIONS, topics=[SOURCE, RESULT])
        target = folder / "parquet"
        sink = {"topic": None, "format": "parquet", "options": {"path": str(target)}}
        took_s = run_job(cluster, folder, "parquet", sink, records)
        say(f"topic → Parquet: {took_s:.0f} s, {records / took_s:,.0f} records/s")
        found = count_parquet(target)
        is_right &= check("topic → Parquet", found, Sums.of(range(records)), exactly_once=True)
    return 0 if is_right else 1
