"""Jobs whose programs start queries, with a Spark of their own, and how they end."""

import json
import os
import signal
from pathlib import Path

from needed_tools import need
from spark_driver import SparkDriver
from waiting import wait_until

from fairlead_spark.job.driver import TERMINATED

DRIVER = "import sys\nfrom fairlead_spark.job.__main__ import main\nsys.exit(main())\n"
TWO_QUERIES = """
import time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def fail(_batch, _number):
    raise ValueError("this query cannot go on")


def start(name, work):
    rows = spark.readStream.format("rate").load()
    return rows.writeStream.queryName(name).foreachBatch(work).start()


start("sound", lambda _batch, _number: None)
failing = start("failing", fail)
while failing.isActive:
    time.sleep(0.1)
"""

A_PROGRAM_THAT_WAITS = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").load()
query = rows.writeStream.foreachBatch(lambda _batch, _number: print("at work", flush=True)).start()
query.awaitTermination()
"""


def start_job(queries: str, folder: Path) -> SparkDriver:
    program, file, document = (folder / name for name in ("driver.py", "queries.py", "job.json"))
    program.write_text(DRIVER)
    file.write_text(queries)
    conf = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
    }
    described = {
        "version": 1,
        "name": "two",
        "bootstrap": "127.0.0.1:1",
        "groupId": "two",
        "application": {"file": str(file)},
        "conf": conf,
    }
    document.write_text(json.dumps(described))
    return SparkDriver(program, str(document), folder=folder / "run")


def test_a_query_that_fails_ends_the_job_while_another_one_runs(tmp_path: Path) -> None:
    """Nobody looked at it any more: the job ran on without it, and was taken for sound."""
    need("java")
    driver = start_job(TWO_QUERIES, tmp_path)
    try:
        assert driver.wait() == 1, driver.last_words()
    finally:
        driver.end()
    assert "ValueError: this query cannot go on" in driver.log()


def test_a_job_that_is_asked_to_end_while_it_waits_for_its_query_says_so(tmp_path: Path) -> None:
    """The operator tells by the exit code that its pod was evicted, and the program is well."""
    need("java")
    driver = start_job(A_PROGRAM_THAT_WAITS, tmp_path)
    try:
        wait_until(lambda: "at work" in driver.log())
        os.kill(driver.pid, signal.SIGTERM)
        assert driver.wait() == TERMINATED, driver.last_words()
    finally:
        driver.end()
