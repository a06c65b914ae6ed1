"""Spark's own Kafka connector: the four jars that PySpark lacks, from Maven, verified and cached.

The versions work together with PySpark 4.2 and 4.3; the token provider has no newer one.
"""

from pathlib import Path
from typing import Final

from fairlead_bench.peers.maven_jars import CACHE, Jar, ensure_jars

JARS: Final = (
    Jar(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka:kafka-clients:3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons:commons-pool2:2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)


def ensure_connector(cache: Path = CACHE) -> list[Path]:
    """Return the cached jars, after a download if needed; KafkaUnavailableError says why not."""
    return ensure_jars(JARS, cache / "spark-connector")
