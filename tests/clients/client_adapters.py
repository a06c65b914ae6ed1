"""One small face for five very different clients: write these records, read that partition.

Each adapter uses its client as its users do. What a client cannot do at all (kcat sets no
timestamps, the console tools speak text) is said by its attributes, so that the tests ask for no
more and the table in docs/compatibility.md can be read off them.
"""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, Protocol

from fairlead_bench.peers.java_tools import JavaTools

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = 60


@dataclass(frozen=True)
class Rec:
    """A record as both sides see it; the timestamp is compared only where it was given."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class TooLargeRefusedError(Exception):
    """The broker refused a record as too large, and the client said so."""


class Client(Protocol):
    """A client of the matrix. `is_binary`: arbitrary bytes; otherwise text without line breaks."""

    name: str
    is_binary: bool
    sets_timestamps: bool
    writes_null_headers: bool

    def produce(
        self,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        request_size_max: int = 1_000_000,
    ) -> None: ...
    def consume(self, topic: str, count: int) -> list[Rec]:
        """The first `count` records of partition 0."""


class Confluent:
    """confluent-kafka: librdkafka under Python."""

    name, is_binary, sets_timestamps = "confluent-kafka", True, True
    writes_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        request_size_max: int = 1_000_000,
    ) -> None:
        from confluent_kafka import KafkaError, Producer

        errors: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": codec,
                "enable.idempotence": is_idempotent,
                "message.max.bytes": request_size_max,
                "message.timeout.ms": DEADLINE_S * 1000,
                "log_level": 2,
            }
        )
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=0,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0, "not acknowledged in time"
        if any(error.code() == KafkaError.MSG_SIZE_TOO_LARGE for error in errors):
            raise TooLargeRefusedError(str(errors[0]))
        assert not errors

    def consume(self, topic: str, count: int) -> list[Rec]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = consumer.consume(count, timeout=DEADLINE_S)
        consumer.close()
        assert [message.error() for message in found] == [None] * count
        return [Rec(m.value(), m.key(), tuple(m.headers() or ()), m.timestamp()[1]) for m in found]


class KafkaPython:
    """kafka-python: pure Python."""

    name, is_binary, sets_timestamps = "kafka-python", True, True
    writes_null_headers = False  # raises TypeError

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        request_size_max: int = 1_000_000,
    ) -> None:
        from kafka import KafkaProducer
        from kafka.errors import MessageSizeTooLargeError

        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=is_idempotent,
            max_request_size=request_size_max,
            linger_ms=20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=0,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            for future in futures:
                future.get(DEADLINE_S)
        except MessageSizeTooLargeError as error:
            raise TooLargeRefusedError(str(error)) from error
        finally:
            producer.close(timeout=DEADLINE_S)

    def consume(self, topic: str, count: int) -> list[Rec]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            enable_auto_commit=False,
            consumer_timeout_ms=DEADLINE_S * 1000,
            max_partition_fetch_bytes=8 << 20,
        )
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            found = list(islice(consumer, count))
        finally:
            consumer.close()
        return [Rec(m.value, m.key, tuple(m.headers), m.timestamp) for m in found]


class AioKafka:
    """aiokafka: asyncio."""

    name, is_binary, sets_timestamps = "aiokafka", True, True
    writes_null_headers = True

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        request_size_max: int = 1_000_000,
    ) -> None:
        asyncio.run(
            asyncio.wait_for(
                self._produce(topic, records, codec, is_idempotent, request_size_max), DEADLINE_S
            )
        )

    async def _produce(
        self, topic: str, records: Sequence[Rec], codec: str, is_idempotent: bool, size_max: int
    ) -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import MessageSizeTooLargeError

        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=is_idempotent,
            max_request_size=size_max,
            linger_ms=20,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=0,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            await asyncio.gather(*futures)
        except MessageSizeTooLargeError as error:
            raise TooLargeRefusedError(str(error)) from error
        finally:
            await producer.stop()

    def consume(self, topic: str, count: int) -> list[Rec]:
        return asyncio.run(asyncio.wait_for(self._consume(topic, count), DEADLINE_S))

    async def _consume(self, topic: str, count: int) -> list[Rec]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            enable_auto_commit=False,
            max_partition_fetch_bytes=8 << 20,
        )
        await consumer.start()
        try:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found = [await consumer.getone() for _ in range(count)]
        finally:
            await consumer.stop()
        return [Rec(m.value, m.key, tuple(m.headers), m.timestamp) for m in found]


class Kcat:
    """kcat: one process a call, and one a record where headers or nulls differ."""

    name, is_binary, sets_timestamps = "kcat", False, False
    writes_null_headers = False

    def __init__(self, bootstrap: str) -> None:
        self._command = ["kcat", "-b", bootstrap, "-X", "log_level=2"]

    def produce(
        self,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        request_size_max: int = 1_000_000,
    ) -> None:
        options = [
            *("-P", "-t", topic, "-p", "0", "-z", codec),
            *("-X", f"message.max.bytes={request_size_max}"),
            *("-X", f"message.timeout.ms={DEADLINE_S * 1000}"),
            *("-X", f"enable.idempotence={str(is_idempotent).lower()}"),
        ]
        for shape, group in groupby(records, lambda r: (r.key is None, r.value is None, r.headers)):
            without_key, is_null, headers = shape
            lines, shape_options = [], ["-Z"] if is_null else []
            for name, value in headers:
                shape_options += ["-H", f"{name}={(value or b'').decode()}"]
            if not without_key:
                shape_options += ["-K", "\\t"]
            for record in group:
                prefix = b"" if without_key else (record.key or b"") + b"\t"
                lines.append(prefix + (record.value or b""))
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"\n".join(lines))
                file.flush()
                # `-l` reads the file line by line; without it a file is one record.
                self._run([*options, *shape_options, "-l", file.name])

    def consume(self, topic: str, count: int) -> list[Rec]:
        options = ["-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-e", "-J"]
        found = []
        for line in self._run([*options, "-q"]).splitlines():
            message = json.loads(line)
            names, values = message.get("headers", [])[::2], message.get("headers", [])[1::2]
            headers = tuple(
                (name, None if value is None else value.encode())
                for name, value in zip(names, values, strict=True)
            )
            key, value = (
                None if message[field] is None else message[field].encode()
                for field in ("key", "payload")
            )
            found.append(Rec(value, key, headers, message["ts"]))
        return found

    def query_offset(self, topic: str, timestamp_ms: int) -> int:
        """`kcat -Q`: the offset for a time, as its users ask for it."""
        answer = self._run(["-Q", "-t", f"{topic}:0:{timestamp_ms}"])
        return int(answer.split("offset")[1])

    def metadata(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._run(["-L", "-J"]))
        return document

    def _run(self, options: list[str]) -> str:
        process = subprocess.run(
            [*self._command, *options],
            capture_output=True,
            check=False,
            timeout=DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
        errors = process.stderr.decode(errors="replace")
        if "Message size too large" in errors:
            raise TooLargeRefusedError(errors)
        assert process.returncode == 0, errors
        assert "failed" not in errors, errors
        return process.stdout.decode()


class JavaConsole:
    """Kafka's console producer and consumer: the Java clients, at their text interface."""

    name, is_binary, sets_timestamps = "Java console", False, False
    writes_null_headers = True

    def __init__(self, tools: JavaTools) -> None:
        self._tools = tools

    def produce(
        self,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        is_idempotent: bool = True,
        request_size_max: int = 1_000_000,
    ) -> None:
        lines = []
        for record in records:
            pairs = [f"{name}:{(value or b'').decode()}" for name, value in record.headers]
            fields = [",".join(pairs).encode() or b"NULL"]
            fields += [b"NULL" if part is None else part for part in (record.key, record.value)]
            lines.append(b"\t".join(fields))
        process = self._tools.run_unchecked(
            "kafka-console-producer",
            *("--topic", topic, "--compression-codec", codec),
            *("--command-property", f"max.request.size={request_size_max + 1000}"),
            *("--command-property", f"enable.idempotence={str(is_idempotent).lower()}"),
            *("--command-property", "linger.ms=20"),
            *("--reader-property", "parse.key=true"),
            *("--reader-property", "parse.headers=true"),
            *("--reader-property", "null.marker=NULL"),
            stdin=b"\n".join(lines) + b"\n",
        )
        errors = process.stderr.decode(errors="replace")
        if "RecordTooLargeException" in errors:
            raise TooLargeRefusedError(errors)
        assert process.returncode == 0, errors
        assert "Exception" not in errors, errors

    def consume(self, topic: str, count: int) -> list[Rec]:
        output = self._tools.run(
            "kafka-console-consumer",
            *("--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--max-messages", str(count), "--timeout-ms", str(DEADLINE_S * 1000)),
            *("--formatter-property", "print.key=true"),
            *("--formatter-property", "print.headers=true"),
            *("--formatter-property", "print.timestamp=true"),
            *("--formatter-property", "null.literal=NULL"),
        )
        return [parse_console_line(line) for line in output.split("\n")[:-1]]


def parse_console_line(line: str) -> Rec:
    """`CreateTime:1700000000000 <tab> h:v,h2:v2 <tab> key <tab> value`."""
    timestamp, headers_text, *parts = line.split("\t")
    headers: list[tuple[str, bytes | None]] = []
    if headers_text != "NO_HEADERS":
        for pair in headers_text.split(","):
            name, _, value = pair.partition(":")
            headers.append((name, None if value == "NULL" else value.encode()))
    key, content = (None if part == "NULL" else part.encode() for part in parts)
    return Rec(content, key, tuple(headers), int(timestamp.partition(":")[2]))


def without_time(records: Sequence[Rec]) -> list[Rec]:
    return [replace(record, timestamp_ms=None) for record in records]
