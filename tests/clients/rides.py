"""Applications that go on while brokers come and go: each writes numbered records and reads them.

A ride is one client's producer and consumer on a topic of its own, with the client's default
settings besides acks=all, idempotence and the addresses. What its application sees is noted: the
errors, what was acknowledged, and the numbers that it read, in order.
"""

import asyncio
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fairlead_bench.peers.java_tools import JavaTools

PARTITIONS = 3
RATE = 100
"""Records a second: some are on their way whenever a broker stops."""
TICK_S = 0.01
PADDING = b"." * 200
DEADLINE_S = 60
# kcat and the console tools end on SIGTERM; nothing of theirs is left to be written then.
END_TIMEOUT_S = 60


def encode(number: int) -> bytes:
    return b"%d " % number + PADDING


def decode(value: bytes) -> int:
    return int(value.partition(b" ")[0])


class Ride(ABC):
    """`start`, then faults, then `finish`: what is not acknowledged and read by then is missing."""

    name: str
    partitions = PARTITIONS

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.sent_count = 0
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []
        self.found: dict[int, list[int]] = {index: [] for index in range(self.partitions)}
        self._is_sending, self._is_reading = threading.Event(), threading.Event()
        self._is_sending.set()
        self._is_reading.set()
        self._producer = threading.Thread(target=self._guard, args=(self._produce,))
        self._consumer = threading.Thread(target=self._guard, args=(self._consume,))

    @property
    def read_count(self) -> int:
        return sum(len(numbers) for numbers in self.found.values())

    def expected(self, partition: int) -> list[int]:
        """The numbers that a partition holds when each record was written once, in order."""
        return list(range(partition, self.sent_count, self.partitions))

    def start(self) -> None:
        self._consumer.start()
        self._producer.start()

    def finish(self) -> None:
        """Ends sending, waits for every answer and until everything sent has been read."""
        self._is_sending.clear()
        self._producer.join(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while self.read_count < self.sent_count and time.monotonic() < deadline:
            time.sleep(0.02)
        self._is_reading.clear()
        self._consumer.join(DEADLINE_S)

    def _guard(self, work: Callable[[], None]) -> None:
        """An exception is what an application would have seen."""
        try:
            work()
        except Exception as error:
            self.errors.append(f"{work.__name__}: {error!r}")

    def _numbers_due(self, started_s: float) -> range:
        """Those to be sent by now, at a steady rate."""
        due_count = int((time.monotonic() - started_s) * RATE)
        return range(self.sent_count, max(due_count, self.sent_count))

    @abstractmethod
    def _produce(self) -> None:
        """Sends while `_is_sending`, then waits for all answers."""

    @abstractmethod
    def _consume(self) -> None:
        """Reads every partition from its beginning while `_is_reading`."""


class ConfluentRide(Ride):
    name = "confluent-kafka"

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        started_s = time.monotonic()
        while self._is_sending.is_set():
            for number in self._numbers_due(started_s):
                producer.produce(
                    self.topic,
                    encode(number),
                    partition=number % self.partitions,
                    on_delivery=self._delivered,
                )
                self.sent_count = number + 1
            producer.poll(TICK_S)
        if producer.flush(DEADLINE_S):
            self.errors.append("not everything was answered in time")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(f"delivery: {error}")
        else:
            self.acknowledged.add(decode(message.value()))

    def _consume(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, index, 0) for index in self.found])
        while self._is_reading.is_set():
            for message in consumer.consume(500, timeout=0.05):
                if message.error() is not None:
                    self.errors.append(f"consumer: {message.error()}")
                else:
                    self.found[message.partition()].append(decode(message.value()))
        consumer.close()


class KafkaPythonRide(Ride):
    name = "kafka-python"

    def _produce(self) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","), acks="all", enable_idempotence=True
        )
        try:
            started_s = time.monotonic()
            while self._is_sending.is_set():
                for number in self._numbers_due(started_s):
                    future = producer.send(
                        self.topic, encode(number), partition=number % self.partitions
                    )
                    future.add_callback(lambda _, number=number: self.acknowledged.add(number))
                    future.add_errback(lambda error: self.errors.append(f"delivery: {error!r}"))
                    self.sent_count = number + 1
                time.sleep(TICK_S)
            producer.flush(DEADLINE_S)
        finally:
            producer.close(timeout=DEADLINE_S)

    def _consume(self) -> None:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","), group_id=None, enable_auto_commit=False
        )
        try:
            partitions = [TopicPartition(self.topic, index) for index in self.found]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while self._is_reading.is_set():
                for partition, messages in consumer.poll(timeout_ms=50).items():
                    self.found[partition.partition] += [decode(each.value) for each in messages]
        finally:
            consumer.close()


class AioKafkaRide(Ride):
    name = "aiokafka"

    def _produce(self) -> None:
        asyncio.run(self._produce_on_loop())

    async def _produce_on_loop(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            started_s = time.monotonic()
            while self._is_sending.is_set():
                for number in self._numbers_due(started_s):
                    future = await producer.send(
                        self.topic, encode(number), partition=number % self.partitions
                    )
                    self.sent_count = number + 1
                    future.add_done_callback(
                        lambda done, number=number: self._delivered(number, done)
                    )
                await asyncio.sleep(TICK_S)
            await asyncio.wait_for(producer.flush(), DEADLINE_S)
        finally:
            await producer.stop()

    def _delivered(self, number: int, done: "asyncio.Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            self.errors.append(f"delivery: {error!r}")
        else:
            self.acknowledged.add(number)

    def _consume(self) -> None:
        asyncio.run(self._consume_on_loop())

    async def _consume_on_loop(self) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, enable_auto_commit=False
        )
        await consumer.start()
        try:
            partitions = [TopicPartition(self.topic, index) for index in self.found]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            while self._is_reading.is_set():
                for partition, messages in (await consumer.getmany(timeout_ms=50)).items():
                    self.found[partition.partition] += [decode(each.value) for each in messages]
        finally:
            await consumer.stop()


class ConsumerProcess:
    """A command-line consumer; each line of its output is handed on as it comes."""

    def __init__(self, command: list[str], on_line: Callable[[bytes], None]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._on_line = on_line
        self._said = b""
        self._readers = [
            threading.Thread(target=self._read_output),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._on_line(line)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._said = self._process.stderr.read()

    def run_while(self, is_wanted: threading.Event) -> None:
        """Ends it when it is not wanted any more; RuntimeError when it has ended by itself."""
        ended_code = None
        while is_wanted.is_set() and ended_code is None:
            ended_code = self._process.poll()
            time.sleep(0.02)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        self._process.kill()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        if ended_code is not None:
            raise RuntimeError(f"ended with {ended_code}: {self._said.decode(errors='replace')}")


class KcatRide(ConfluentRide):
    """kcat reads; it takes its input by files or lines at once, so librdkafka writes for it."""

    name = "kcat"

    def _consume(self) -> None:
        command = [
            *("kcat", "-b", self.bootstrap, "-C", "-t", self.topic, "-o", "beginning"),
            *("-q", "-u", "-f", "%p %s\n"),
        ]
        ConsumerProcess(command, self._take_line).run_while(self._is_reading)

    def _take_line(self, line: bytes) -> None:
        partition, _, value = line.partition(b" ")
        self.found[int(partition)].append(decode(value))


class JavaConsoleRide(Ride):
    """Kafka's console producer, fed line by line, and its console consumer on one partition."""

    name = "Java console"
    partitions = 1

    def __init__(self, bootstrap: str, topic: str, tools: JavaTools) -> None:
        super().__init__(bootstrap, topic)
        self._tools = tools

    def _produce(self) -> None:
        # By itself the tool gives up after three retries, 100 ms apart; a program never does.
        options = ("--topic", self.topic, "--message-send-max-retries", "2147483647")
        process = subprocess.Popen(
            self._tools.command("kafka-console-producer", *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        started_s = time.monotonic()
        while self._is_sending.is_set():
            for number in self._numbers_due(started_s):
                process.stdin.write(encode(number) + b"\n")
                self.sent_count = number + 1
            process.stdin.flush()
            time.sleep(TICK_S)
        _, said = process.communicate(timeout=DEADLINE_S)
        if process.returncode or b"ERROR" in said:
            self.errors.append(f"producer: {said.decode(errors='replace')}")
        else:
            self.acknowledged.update(range(self.sent_count))

    def _consume(self) -> None:
        options = ("--topic", self.topic, "--partition", "0", "--offset", "earliest")
        command = self._tools.command("kafka-console-consumer", *options)
        consumer = ConsumerProcess(command, lambda line: self.found[0].append(decode(line)))
        consumer.run_while(self._is_reading)
