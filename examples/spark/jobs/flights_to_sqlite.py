"""The topic flights in a table of SQLite: a load in tasks, any of which may fail and be repeated.

Each task reads a range of one partition and writes it in one transaction. Topic, partition and
offset are the table's key, so a task that is repeated, or two that run at once, leave each record
once. With PostgreSQL it is the same: `INSERT … ON CONFLICT DO NOTHING`.

    fairlead spark run examples/spark/jobs/flights_to_sqlite.py -- /tmp/flights.db
"""

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

from fairlead_spark.job import current_job

TABLE = """
CREATE TABLE IF NOT EXISTS flights (
    topic TEXT, partition INTEGER, "offset" INTEGER,
    carrier TEXT, flight INTEGER, origin TEXT, dest TEXT, dep_delay REAL,
    PRIMARY KEY (topic, partition, "offset")
) WITHOUT ROWID
"""
INSERT = "INSERT OR IGNORE INTO flights VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
BUSY_S = 120.0
"""SQLite has one writer at a time: the others wait at most this long."""

if len(sys.argv) != 2:
    sys.exit("usage: flights_to_sqlite.py DATABASE")
database = sys.argv[1]


def write_rows(records: Iterator[Any]) -> None:
    """Write all records of a task, or none."""
    rows = []
    for record in records:
        flight = json.loads(record.value)
        place = (record.topic, record.partition, record.offset)
        names = ("carrier", "flight", "origin", "dest", "dep_delay")
        rows.append((*place, *(flight[name] for name in names)))
    with closing(sqlite3.connect(database, timeout=BUSY_S)) as connection, connection:
        connection.executemany(INSERT, rows)


with closing(sqlite3.connect(database)) as connection, connection:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(TABLE)

job = current_job()
spark = SparkSession.builder.getOrCreate()
flights = (
    spark.read.format("fairlead")
    .option("kafka.bootstrap.servers", job.bootstrap)
    .option("subscribe", "flights")
    # Most records of a task: a task that fails repeats no more than these.
    .option("maxRecordsPerPartition", 50_000)
    .load()
)
flights.select("topic", "partition", "offset", "value").foreachPartition(write_rows)
with closing(sqlite3.connect(database)) as connection:
    (rows,) = connection.execute("SELECT count(*) FROM flights").fetchone()
print(f"{rows} flights in {database}")
