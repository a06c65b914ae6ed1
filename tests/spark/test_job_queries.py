"""A job of several queries, with a Spark of its own."""

import json
from pathlib import Path

from needed_tools import need
from spark_driver import SparkDriver

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


def test_a_query_that_fails_ends_the_job_while_another_one_runs(tmp_path: Path) -> None:
    """Nobody looked at it any more: the job ran on without it, and was taken for sound."""
    need("java")
    program, queries, document = (
        tmp_path / name for name in ("driver.py", "queries.py", "job.json")
    )
    program.write_text(DRIVER)
    queries.write_text(TWO_QUERIES)
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
        "application": {"file": str(queries)},
        "conf": conf,
    }
    document.write_text(json.dumps(described))
    driver = SparkDriver(program, str(document), folder=tmp_path / "run")
    try:
        assert driver.wait() == 1, driver.last_words()
    finally:
        driver.end()
    assert "ValueError: this query cannot go on" in driver.log()
