"""Kafka's own log and cleaner in a Java process, for tests that compare ours with them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_bench.peers.kafka_distribution import ensure_kafka
from fairlead_wire.records import Record, decode_batch

if TYPE_CHECKING:
    from types import TracebackType

    from fairlead_broker.log.log import Log

PROGRAM: Final = Path(__file__).with_name("KafkaCleaner.java")
HEAP_MB: Final = 256
NEVER: Final = -1
"""The delete horizon of a batch that has none."""


class LeftBatch(NamedTuple):
    """A batch after a cleaning, as each of the two logs reports it."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    kind: str
    """`n` or `t` for transactional, `d` or `c` for control, and the number of the codec."""
    delete_horizon_ms: int
    records: tuple[Record, ...]

    @property
    def is_control(self) -> bool:
        return self.kind[1] == "c"


class KafkaCleaner:
    """A process with one log at a time; `KafkaCleaner.java` describes its commands."""

    def __init__(self) -> None:
        kafka = ensure_kafka()
        quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off", f"-Xmx{HEAP_MB}m")
        self._process = subprocess.Popen(
            [kafka.java, *quiet, "-cp", kafka.classpath, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> KafkaCleaner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def open(self, directory: Path, **config: object) -> None:
        """Begin an empty log; the settings have the names of topics with `_` for dots."""
        settings = [f"{name.replace('_', '.')}={value}" for name, value in config.items()]
        assert self._answer("open", str(directory), *settings) == "opened"

    def append(self, content: bytes | memoryview) -> int:
        """Append batches from another log; return the last stable offset."""
        return int(self._answer("append", bytes(content).hex()))

    def roll(self) -> None:
        self._answer("roll")

    def clean(self, now_ms: int) -> int | None:
        """Clean once; return the end of the clean part, None if nothing was dirty."""
        answer = self._answer("clean", str(now_ms))
        return None if answer == "-" else int(answer)

    def left(self) -> list[LeftBatch]:
        """Return all batches of the log."""
        return [read_batch(text) for text in self._answer("dump").split()]

    def _answer(self, *words: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"Kafka's log ended at {words[0]}"
        return answer.rstrip("\n")


def read_batch(text: str) -> LeftBatch:
    """Return a batch from the words of the Java program."""
    head, *records = text.split(";")
    base, last, producer, epoch, sequence, kind, horizon = head.split(",")
    return LeftBatch(
        *(int(base), int(last), int(producer), int(epoch), int(sequence)),
        kind,
        int(horizon),
        tuple(read_record(*each.split("=")) for each in records),
    )


def read_record(offset: str, timestamp: str, key: str, value: str) -> Record:
    """Return a record from the words of the Java program."""
    key_bytes, value_bytes = (None if each == "-" else bytes.fromhex(each) for each in (key, value))
    return Record(int(offset), int(timestamp), key_bytes, value_bytes)


def left_of(log: Log) -> list[LeftBatch]:
    """Return all batches of a log of ours."""
    found = []
    for segment in log.segments:
        content = log.disk.pread(segment.file.read_fd, segment.size, 0)
        for position, header in segment.headers():
            horizon = header.base_timestamp if header.has_delete_horizon else NEVER
            kind = ("t" if header.is_transactional else "n") + ("c" if header.is_control else "d")
            records = decode_batch(content, position) if header.records_count else []
            found.append(
                LeftBatch(
                    header.base_offset,
                    header.last_offset,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    f"{kind}{header.codec}",
                    horizon,
                    tuple(records),
                )
            )
    return found
