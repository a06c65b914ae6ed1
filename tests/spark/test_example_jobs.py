"""The jobs of `examples/spark`, over the first flights of 2013, checked against the data itself.

Programs run in the session of the tests, as `fairlead spark run` would start them; the job in SQL
runs by the command itself, in a process and a JVM of its own.
"""

import json
import os
import runpy
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from spark_source import Source, Topics, finish

from fairlead_cli.spark.local_job import build_local_document, read_local_job
from fairlead_spark.job.document import DOCUMENT_VARIABLE, read_job
from fairlead_spark.job.sql_job import start_query

DOTS_AND_DASHES = """
apiVersion: fairlead.io/v1alpha1
kind: StreamJob
metadata: {name: orders}
spec:
  application: {sql: "SELECT offset FROM `shop.new-orders`"}
  sources: [{topics: [shop.new-orders], options: {startingOffsets: earliest}}]
  sink: {format: memory}
  checkpoint: {ephemeral: true}
"""
PROJECT = Path(__file__).resolve().parents[2]
EXAMPLES = PROJECT / "examples" / "spark"
FLIGHTS, WEATHER = 6_000, 3_000
# A job of seconds ends before the second compiler has paid for itself.
SHORT_LIVED = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
sys.path.insert(0, str(PROJECT / "examples" / "flights"))

import dataset  # noqa: E402


@pytest.fixture(scope="module")
def flights(topics: Topics) -> list[dict[str, Any]]:
    """The topics that the examples read; the flights as they were produced."""
    producer = Producer({"bootstrap.servers": topics.bootstrap, "linger.ms": 20})
    for name, count in (("flights", FLIGHTS), ("weather", WEATHER)):
        topics.create(name)
        for row in islice(dataset.read_rows(dataset.TABLES[name]), count):
            producer.produce(name, row.value, row.key, timestamp=row.timestamp_ms)
            producer.poll(0)
    assert producer.flush(60) == 0
    for name in ("airport-delays", "late-flights"):
        topics.create(name)
    rows = islice(dataset.read_rows(dataset.TABLES["flights"]), FLIGHTS)
    return [json.loads(row.value) for row in rows]


@pytest.fixture
def run_job(source: Source, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a program as a job of the session of the tests, to its end."""
    monkeypatch.setattr(type(source.spark), "stop", lambda _: None)

    def run(name: str, *arguments: str) -> None:
        file = EXAMPLES / "jobs" / name
        job = read_local_job(file, arguments=arguments, available_now=True)
        document = build_local_document(
            job,
            bootstrap=topics.bootstrap,
            checkpoint=str(tmp_path / "checkpoint"),
            master="local[2]",
            conf={},
        )
        path = tmp_path / "job.json"
        path.write_text(json.dumps(document))
        monkeypatch.setenv(DOCUMENT_VARIABLE, str(path))
        monkeypatch.setattr(sys, "argv", [str(file), *arguments])
        runpy.run_path(str(file), run_name="__main__")

    return run


def values(source: Source, topic: str) -> list[dict[str, Any]]:
    return [json.loads(row.value) for row in source.read(subscribe=topic).select("value").collect()]


def test_flights_become_parquet_once_and_a_second_run_adds_nothing(
    run_job: Any, flights: list[dict[str, Any]], source: Source, tmp_path: Path
) -> None:
    target = str(tmp_path / "flights")
    for _ in range(2):
        run_job("flights_to_parquet.py", target)
        rows = source.spark.read.parquet(target)
        assert rows.count() == FLIGHTS
    assert rows.select("partition", "offset").distinct().count() == FLIGHTS
    late = rows.where("carrier = 'UA' AND dep_delay > 60").count()
    assert late == sum(f["carrier"] == "UA" and (f["dep_delay"] or 0) > 60 for f in flights)


def test_flights_become_rows_of_a_table_once_however_often_they_are_loaded(
    run_job: Any, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    database = str(tmp_path / "flights.db")
    for _ in range(2):
        run_job("flights_to_sqlite.py", database)
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT carrier, flight, origin, dest, dep_delay FROM flights")
        names = ("carrier", "flight", "origin", "dest", "dep_delay")
        wanted = sorted((tuple(f[name] for name in names) for f in flights), key=repr)
        assert sorted(found, key=repr) == wanted


def test_delays_of_an_airport_and_hour_stand_beside_its_weather(
    run_job: Any, flights: list[dict[str, Any]], source: Source
) -> None:
    run_job("airport_delays.py")
    hours = values(source, "airport-delays")
    assert len({(hour["origin"], hour["hour"]) for hour in hours}) == len(hours) > 50
    # The weather comes airport by airport: its first records are of Newark.
    assert {hour["origin"] for hour in hours if "temp" in hour} == {"EWR"}
    first = min(hours, key=lambda hour: (hour["hour"], hour["origin"]))
    # Local times of the data are UTC in the records: an hour is what the first flights say it is.
    same = [
        f["dep_delay"]
        for f in flights
        if f["origin"] == first["origin"] and f["time_hour"] == flights[0]["time_hour"]
    ]
    delays = [delay for delay in same if delay is not None]
    assert first["flights"] == len(delays)
    assert first["delay"] == pytest.approx(sum(delays) / len(delays), abs=0.06)


def test_the_job_in_sql_runs_by_one_command_and_shows_its_lag(
    flights: list[dict[str, Any]], source: Source, topics: Topics, tmp_path: Path
) -> None:
    where = ("--bootstrap", topics.bootstrap, "--data", str(tmp_path))
    fairlead = [sys.executable, "-m", "fairlead_cli.main"]
    command = [*fairlead, "spark", "run", str(EXAMPLES / "late_flights.yaml"), "--available-now"]
    done = subprocess.run(
        [*command, "--master", "local[2]", "--conf", SHORT_LIVED, *where],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    late = [f for f in flights if (f["dep_delay"] or 0) > 60]
    found = values(source, "late-flights")
    assert sorted(f["flight"] for f in found) == sorted(f["flight"] for f in late)
    described = subprocess.run(
        [*fairlead, "group", "describe", "late-flights", "-o", "json", *where[:2]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(described.stdout)[0]["lag"] == 0


def test_sql_finds_a_view_by_the_name_of_its_topic_whatever_that_is(
    source: Source, topics: Topics, tmp_path: Path
) -> None:
    topics.fill(topics.create("shop.new-orders"), 0, 10)
    manifest, document = tmp_path / "job.yaml", tmp_path / "job.json"
    manifest.write_text(DOTS_AND_DASHES)
    described = build_local_document(
        read_local_job(manifest, available_now=True),
        bootstrap=topics.bootstrap,
        checkpoint=str(tmp_path / "checkpoint"),
        master="local[2]",
        conf={},
    )
    document.write_text(json.dumps(described))
    finish(start_query(source.spark, read_job(document)))
    assert source.spark.table("orders").count() == 10
