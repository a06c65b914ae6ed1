"""Single jars from Maven Central, checked and cached in the project's `.cache` folder."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, one_maven_at_a_time
from fairlead_bench.project import PROJECT

FETCH_TIMEOUT_S: Final = 300
CACHE: Final = PROJECT / ".cache"


class Jar(NamedTuple):
    """One artifact and the SHA-256 of its jar."""

    coordinates: str
    sha256: str

    @property
    def file_name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"


def ensure_jars(jars: Sequence[Jar], home: Path) -> list[Path]:
    """Return the cached jars, after a download if needed; KafkaUnavailableError says why not.

    Safe to call from several processes at once.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for jar in jars:
            if not (home / jar.file_name).exists():
                _fetch(jar, home)
    return [home / jar.file_name for jar in jars]


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
        # Not in a project folder: Maven would look for settings there.
        with one_maven_at_a_time():
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
