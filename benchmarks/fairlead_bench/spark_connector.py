"""Spark's own Kafka connector: the four jars that PySpark lacks, from Maven, checked and cached.

The versions work together with PySpark 4.2 and 4.3; the token provider has no newer one.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from fairlead_bench.kafka_distribution import PROJECT, KafkaUnavailableError

FETCH_TIMEOUT_S: Final = 300


class Jar(NamedTuple):
    """One artifact and the SHA-256 of its jar."""

    coordinates: str
    sha256: str

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


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


def ensure_connector(cache: Path = PROJECT / ".cache") -> list[Path]:
    """The cached jars, fetched first where they are missing; KafkaUnavailableError says why not.

    Safe to call from several processes at once.
    """
    home = cache / "spark-connector"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for jar in JARS:
            if not (home / jar.file_name).exists():
                _fetch(jar, home)
    return [home / jar.file_name for jar in JARS]


def _fetch(jar: Jar, home: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(
            f"no `mvn` on the path to fetch {jar.coordinates} (apt-get install maven)"
        )
    partial = home / f"{os.getpid()}.partial"
    arguments = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={jar.coordinates}"]
    arguments += [f"-DoutputDirectory={partial}", "-Dmdep.useBaseVersion=true"]
    try:
        # Elsewhere than in a project: Maven would look for its settings there.
        subprocess.run(
            arguments,
            check=True,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            cwd=home,
        )
        fetched = partial / jar.file_name
        digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise KafkaUnavailableError(
                f"{jar.coordinates} has the checksum {digest}, expected is {jar.sha256}"
            )
        fetched.rename(home / jar.file_name)
    except subprocess.CalledProcessError as error:
        raise KafkaUnavailableError(f"Maven failed: {error.stdout[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailableError(f"Maven took longer than {FETCH_TIMEOUT_S} s") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
