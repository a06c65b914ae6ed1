"""The package that Spark imports when it looks for data sources."""

import subprocess
import sys
import tomllib
from pathlib import Path
from pkgutil import iter_modules

from pyspark.sql.datasource import DataSource

import pyspark_fairlead

PROJECT = Path(__file__).resolve().parents[3]


def test_spark_s_look_over_the_path_finds_it() -> None:
    found = [each.name for each in iter_modules() if each.name.startswith("pyspark_")]
    assert "pyspark_fairlead" in found
    assert issubclass(pyspark_fairlead.DefaultSource, DataSource)
    assert pyspark_fairlead.DefaultSource.name() == "fairlead"


def test_looking_for_it_loads_nothing_heavy_and_nothing_that_may_be_missing() -> None:
    """An import that fails here would take every other Python data source away, too."""
    code = "import pyspark_fairlead, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "fairlead_spark.source" in loaded
    assert not loaded & {"numpy", "pyarrow", "pandas", "confluent_kafka", "cramjam"}


def test_the_distribution_holds_it() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert "spark/pyspark_fairlead" in packages
