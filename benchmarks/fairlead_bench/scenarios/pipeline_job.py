"""The input and the job that the pipelines of ten million records share."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from fairlead_bench.project import PROJECT

SOURCE: Final = "flights"
RESULT: Final = "late-flights"
PARTITIONS: Final = 6
DELAYS: Final = 20
"""Delays go from 0 to this number minus one, in turn: half of the flights are late."""
LATE: Final = 10
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
MASTER: Final = "local-cluster[2,1,1024]"
"""Two executors, each in its own process."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def fill(bootstrap: str, records: int, padding: int) -> float:
    """Write numbered flights; return the seconds."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
            "log_level": 2,
        }
    )
    pad = "x" * padding
    started = time.monotonic()
    for number in range(records):
        value = f'{{"n":{number},"delay":{number % DELAYS},"pad":"{pad}"}}'
        while True:
            try:
                producer.produce(SOURCE, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 10_000:
            producer.poll(0)
    if producer.flush(300):
        raise RuntimeError("not everything was acknowledged")
    return time.monotonic() - started


def job_document(
    folder: Path,
    name: str,
    bootstrap: str,
    sink: dict[str, Any],
    source_options: dict[str, str],
) -> Path:
    """Write the document of a job in SQL, as the operator does."""
    sql = f"SELECT n, delay FROM {SOURCE}"
    if sink["topic"]:
        sql = (
            "SELECT CAST(n AS STRING) AS key, to_json(struct(n, delay * 2 AS twice)) AS value "
            f"FROM {SOURCE} WHERE delay >= {LATE}"
        )
    document = {
        "version": 1,
        "name": name,
        "bootstrap": bootstrap,
        "application": {"sql": sql},
        "sources": [
            {
                "topics": [SOURCE],
                "view": SOURCE,
                "schema": "n BIGINT, delay INT",
                "options": {
                    "startingOffsets": "earliest",
                    **source_options,
                },
            }
        ],
        "sink": {"options": {}, "outputMode": "append", "saveMode": "append", **sink},
        "trigger": {"availableNow": True},
        "checkpoint": str(folder / f"{name}-checkpoint"),
        "isCheckpointShared": True,
        "groupId": name,
        "conf": {
            "spark.master": MASTER,
            "spark.executor.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(folder / "scratch"),
        },
        "progressPort": 0,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document))
    return path


def start_driver(
    document: Path, log: Path, *, new_session: bool = False
) -> subprocess.Popen[bytes]:
    """Start a job's driver; its output is appended to `log`.

    `new_session`: its processes are then all processes of its session, whoever their parents are.
    """
    paths = [str(PROJECT / part) for part in ("spark", "broker")]
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "fairlead_spark.job", str(document)],
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=new_session,
        )
