"""Fetches Spark's own Kafka connector into `.cache` (`make spark-connector`)."""

import sys
from pathlib import Path

# Python keeps a script's folder off the path where PYTHONSAFEPATH is set.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from fairlead_bench.peers.spark_connector import ensure_connector

if __name__ == "__main__":
    for jar in ensure_connector():
        print(jar.name)
