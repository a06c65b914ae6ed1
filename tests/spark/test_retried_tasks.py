"""Tasks that are killed, or fail, and are tried again: a table and Parquet hold each row once."""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from needed_tools import need
from proofs import SPARK_DEATHS
from spark_source import DEADLINE_S, Topics

from fairlead_cli.spark.local_job import build_local_document, read_local_job
from fairlead_spark.job.document import DOCUMENT_VARIABLE

JOBS = Path(__file__).resolve().parents[2] / "examples" / "spark" / "jobs"
RECORDS = 6_000
PARTITIONS = 2
RUN_DEADLINE_S = 800
"""Two jobs in a JVM of their own: 20 s on two idle cores, and far longer on busy ones."""
pytestmark = [*SPARK_DEATHS.marks, pytest.mark.timeout(RUN_DEADLINE_S + 100)]
NAMES = ("carrier", "flight", "origin", "dest", "dep_delay")
WANTED = Counter({(p, offset): 1 for p in range(PARTITIONS) for offset in range(RECORDS // 2)})
Places = Counter[tuple[int, int]]


@pytest.fixture(scope="module")
def results(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run both jobs; return where they have left `parquet`, a folder, and `table`, a database."""
    need("java")
    folder = tmp_path_factory.mktemp("retried")
    (folder / "marks").mkdir()
    produce_flights(topics)
    stream = JOBS / "flights_to_parquet.py"
    document = build_local_document(
        read_local_job(stream, arguments=(str(folder),), available_now=True),
        bootstrap=topics.bootstrap,
        checkpoint=str(folder / "checkpoint"),
        master="",
        conf={},
    )
    (folder / "job.json").write_text(json.dumps(document))
    jobs = [stream, folder / "parquet", JOBS / "flights_to_sqlite.py", folder / "table"]
    program = Path(__file__).with_name("failing_tasks.py")
    done = subprocess.run(
        [sys.executable, program, folder / "marks", *jobs],
        cwd=folder,
        env=os.environ
        | {"PYSPARK_PYTHON": sys.executable, DOCUMENT_VARIABLE: str(folder / "job.json")},
        capture_output=True,
        text=True,
        timeout=RUN_DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert marks(folder, "killed") == 2 * PARTITIONS, "in each of both jobs"
    assert marks(folder, "failed") == PARTITIONS
    return folder


def marks(folder: Path, fault: str) -> int:
    return len(list((folder / "marks").glob(f"{fault}-*")))


def produce_flights(topics: Topics) -> None:
    """Send records of a few hundred bytes, half of them to each partition."""
    topics.create("flights", PARTITIONS)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 20})
    for number in range(RECORDS):
        flight = dict.fromkeys(NAMES) | {
            "carrier": "UA",
            "flight": number,
            "tailnum": "N" * 200,
        }
        producer.produce("flights", json.dumps(flight).encode(), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def test_a_task_that_was_killed_writes_each_row_once_into_parquet(results: Path) -> None:
    found: Places = Counter()
    for file in (results / "parquet").rglob("*.parquet"):
        # All files, whether Spark's log of the sink lists them or not: other readers do so.
        table = pq.read_table(file, columns=["partition", "offset"], partitioning=None)
        found.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert found == WANTED


def test_a_task_that_was_killed_or_failed_when_all_was_written_leaves_each_row_once_in_a_table(
    results: Path,
) -> None:
    with closing(sqlite3.connect(results / "table")) as connection:
        found = connection.execute('SELECT partition, "offset", flight FROM flights').fetchall()
    assert Counter((partition, offset) for partition, offset, _ in found) == WANTED
    assert sorted(flight for *_, flight in found) == list(range(RECORDS))
