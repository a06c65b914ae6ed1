"""A Java program's classes in the JVM's memory format, stored by one run for later runs.

A JVM that maps this archive (JEP 310, JEP 350) need not read, check and link the same classes
again: a command-line tool of Kafka takes half the processor time.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fairlead_bench.peers.kafka_distribution import KafkaDistribution

# The JVM prints its messages about archives to standard output, between those of the program.
QUIET: Final = "-Xlog:cds*=off"


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one program, for exactly the JVM and the jars of its first run."""

    distribution: KafkaDistribution
    program: str

    @property
    def path(self) -> Path:
        """The file, named after all that a JVM compares: its build, the jars' paths and times."""
        libs, java = self.distribution.libs, Path(self.distribution.java).resolve()
        made_of = [str(libs), libs.stat().st_mtime_ns, str(java), java.stat().st_mtime_ns]
        name = hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]
        return libs.parent / "classes" / f"{self.program}-{name}.jsa"

    @property
    def options(self) -> tuple[str, ...]:
        """Options of a JVM that uses the archive, if there is one."""
        path = self.path
        return (f"-XX:SharedArchiveFile={path}", QUIET) if path.is_file() else ()

    @contextmanager
    def recorded(self) -> Iterator[tuple[str, ...]]:
        """Yield options of a JVM that uses the archive, or creates it when it ends."""
        if options := self.options:
            yield options
            return
        path = self.path
        path.parent.mkdir(exist_ok=True)
        # Other processes may create it at the same time: the last rename wins.
        with TemporaryDirectory(dir=path.parent) as folder:
            partial = Path(folder) / path.name
            yield (f"-XX:ArchiveClassesAtExit={partial}", QUIET)
            # A JVM that was killed leaves no archive.
            if partial.is_file():
                partial.rename(path)
