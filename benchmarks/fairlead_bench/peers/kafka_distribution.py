"""Apache Kafka from Maven Central, cached in the project's `.cache` folder.

The benchmark runs it as a peer, and the client tests run its command-line tools. No part of it is
committed: `java/pom.xml` lists what Maven's own client downloads, once. Tests that run Kafka's
applications (Streams, Connect) have their own pom.xml.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from fairlead_bench.project import PROJECT

POM: Final = PROJECT / "benchmarks" / "java" / "pom.xml"
MAVEN_LOCK: Final = PROJECT / ".cache" / "maven.lock"
FETCH_TIMEOUT_S: Final = 600


class KafkaUnavailableError(Exception):
    """Apache Kafka cannot run here; the text says what is missing."""


@dataclass(frozen=True)
class KafkaDistribution:
    """A folder of jars, and the Java that runs them."""

    version: str
    libs: Path
    java: str

    @cached_property
    def classpath(self) -> str:
        return f"{self.libs}/*"

    def java_command(self, main_class: str, *, heap_mb: int, options: tuple[str, ...]) -> list[str]:
        return [
            self.java,
            f"-Xmx{heap_mb}m",
            *options,
            "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            self.classpath,
            main_class,
        ]


def ensure_kafka(
    cache: Path = PROJECT / ".cache", *, pom: Path = POM, folder: str = "libs"
) -> KafkaDistribution:
    """Return the cached distribution, after a download if it is missing.

    Safe to call from several processes at once: one downloads into its own folder and renames it.
    """
    java = shutil.which("java")
    if java is None:
        raise KafkaUnavailableError("no `java` on the path (Java 17 or newer runs Kafka's tools)")
    version = read_version(pom)
    home = cache / f"kafka-{version}"
    libs = home / folder
    if not libs.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with (home / "fetch.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not libs.is_dir():
                fetch(libs, pom)
    return KafkaDistribution(version=version, libs=libs, java=java)


def read_version(pom: Path) -> str:
    match = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", pom.read_text())
    if match is None:
        raise KafkaUnavailableError(f"{pom} names no kafka.version")
    return match.group(1)


@contextmanager
def one_maven_at_a_time() -> Iterator[None]:
    """Lock out others: several processes must not use a user's Maven repository at once."""
    MAVEN_LOCK.parent.mkdir(parents=True, exist_ok=True)
    with MAVEN_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch(libs: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailableError(
            f"no `mvn` on the path to fetch Apache Kafka into {libs} (apt-get install maven)"
        )
    partial = libs.with_name(f"{libs.name}.{os.getpid()}.partial")
    arguments = [
        *(maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={partial}"),
    ]
    try:
        with one_maven_at_a_time():
            subprocess.run(
                arguments, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
            )
    except subprocess.CalledProcessError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise KafkaUnavailableError(f"Maven failed: {error.stdout[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise KafkaUnavailableError(f"Maven took longer than {FETCH_TIMEOUT_S} s") from error
    partial.rename(libs)
