"""Apache ZooKeeper's server: the jars that three servers on one machine need, from Maven.

metrics-core and snappy-java are `provided` in ZooKeeper's pom, so they are listed by name.
"""

from pathlib import Path
from typing import Final

from fairlead_bench.peers.maven_jars import CACHE, Jar, ensure_jars

FOLDER: Final = "zookeeper-3.9.5"
MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JARS: Final = (
    Jar(
        "org.apache.zookeeper:zookeeper:3.9.5",
        "936d025db1a85f085edea25048c3f5b3de5fc29329c371a10925e3b78b0b38a0",
    ),
    Jar(
        "org.apache.zookeeper:zookeeper-jute:3.9.5",
        "abcbc7f9d6c493daa118da6fa3061a201e2c521217526e8535adfb56b629e52a",
    ),
    Jar(
        "org.slf4j:slf4j-api:2.0.13",
        "e7c2a48e8515ba1f49fa637d57b4e2f590b3f5bd97407ac699c3aa5efb1204a9",
    ),
    Jar(
        "org.slf4j:slf4j-simple:2.0.13",
        "3153fe1d689cffb94f1530b58470c306685ba68844de8857116e3b6ebb81d9f7",
    ),
    Jar(
        "io.dropwizard.metrics:metrics-core:4.1.12.1",
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9",
    ),
    Jar(
        "org.xerial.snappy:snappy-java:1.1.10.5",
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b",
    ),
)


def ensure_server(cache: Path = CACHE) -> list[Path]:
    """Return the cached jars, after a download if needed; KafkaUnavailableError says why not."""
    return ensure_jars(JARS, cache / FOLDER)
