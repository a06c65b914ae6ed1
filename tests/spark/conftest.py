"""A local Spark for all tests of this folder, and topics to read from and write to.

The session holds the official connector's jars too, where Maven can fetch them: `kafka` and
`fairlead` read the same brokers in the same Spark.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from needed_tools import need
from spark_source import Source, Topics, finish, numbers

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = "tests/spark/"
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError  # noqa: E402
from fairlead_bench.peers.spark_connector import ensure_connector  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(FOLDER):
            item.add_marker(pytest.mark.spark)
            # Py4J leaves its sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session")
def connector_jars() -> list[Path] | str:
    """The jars, or why there are none."""
    try:
        return ensure_connector()
    except KafkaUnavailableError as error:
        return str(error)


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, connector_jars: list[Path] | str
) -> Iterator[SparkSession]:
    """Two cores, no user interface. Our source is not registered: Spark finds it."""
    need("java")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # Sessions of tests end before the second compiler has paid for itself.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.local.dir": str(home),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.task.maxFailures": "1",
    }
    if isinstance(connector_jars, list):
        settings["spark.jars"] = ",".join(map(str, connector_jars))
    builder = SparkSession.builder.master("local[2]").appName("fairlead-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def topics(live_cluster: Any) -> Topics:
    return Topics(live_cluster.bootstrap)


@pytest.fixture
def source(spark: SparkSession, live_cluster: Any) -> Source:
    return Source(spark, live_cluster.bootstrap, "fairlead")


@pytest.fixture
def collect(tmp_path: Path) -> Callable[..., tuple[list[int], list[dict[str, Any]]]]:
    """Runs a stream to its end with a checkpoint of its own; numbers it saw and its progress."""

    def run(rows: DataFrame) -> tuple[list[int], list[dict[str, Any]]]:
        target = tmp_path / "rows"
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(target))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        finish(query)
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        return numbers(rows.sparkSession.read.parquet(str(target))), batches

    return run
