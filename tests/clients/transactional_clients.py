"""One small face for the transactional producers of three libraries, and for their readers.

Each is used as its users do. What a broker refuses comes out as `RefusedError`, which says whether
the transaction can be aborted or the producer is finished.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

Place = tuple[str, int]
"""Topic and partition."""
ANSWER_TIMEOUT_S: Final = 60
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
FENCED: Final = ("PRODUCER_FENCED", "_FENCED", "INVALID_PRODUCER_EPOCH")
KAFKA_PYTHON_FENCED: Final = ("ProducerFencedError", "InvalidProducerEpochError", "ProducerFenced")


class RefusedError(Exception):
    """What the library raised; `is_fenced`: a newer producer has this transactional id."""

    def __init__(self, message: str, *, is_fenced: bool = False) -> None:
        super().__init__(message)
        self.is_fenced = is_fenced


class TransactionalProducer(ABC):
    """A producer with a transactional id, initialized."""

    @abstractmethod
    def begin(self) -> None: ...
    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> None: ...
    @abstractmethod
    def flush(self) -> None:
        """Wait until all that was sent lies on its brokers."""

    @abstractmethod
    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        """As an application without members in the group."""

    @abstractmethod
    def commit(self) -> None: ...
    @abstractmethod
    def abort(self) -> None: ...
    def close(self) -> None:  # noqa: B027 - not every library holds something
        """Give back what it holds; whatever is open stays so until its time is out."""


class ConfluentProducer(TransactionalProducer):
    """confluent-kafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        from confluent_kafka import Producer

        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        with self._refusals():
            self._producer.init_transactions(ANSWER_TIMEOUT_S)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            name = error.args[0].name()
            raise RefusedError(str(error), is_fenced=name in FENCED) from error

    def begin(self) -> None:
        with self._refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with self._refusals():
            self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        with self._refusals():
            assert self._producer.flush(ANSWER_TIMEOUT_S) == 0

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        # A group's metadata come from a consumer; this one has not joined.
        consumer: Any = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0}
        )
        try:
            wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
            with self._refusals():
                self._producer.send_offsets_to_transaction(
                    wanted, consumer.consumer_group_metadata(), ANSWER_TIMEOUT_S
                )
        finally:
            consumer.close()

    def commit(self) -> None:
        with self._refusals():
            self._producer.commit_transaction(ANSWER_TIMEOUT_S)

    def abort(self) -> None:
        with self._refusals():
            self._producer.abort_transaction(ANSWER_TIMEOUT_S)


class KafkaPythonProducer(TransactionalProducer):
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        from kafka import KafkaProducer

        self._sent: list[Any] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        with self._refusals():
            self._producer.init_transactions()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        from kafka.errors import KafkaError

        try:
            yield
        except KafkaError as error:
            names = {type(error).__name__, type(error.__cause__).__name__}
            is_fenced = bool(names & set(KAFKA_PYTHON_FENCED))
            raise RefusedError(repr(error), is_fenced=is_fenced) from error

    def begin(self) -> None:
        with self._refusals():
            self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        with self._refusals():
            self._sent.append(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        with self._refusals():
            for future in self._sent:
                future.get(timeout=ANSWER_TIMEOUT_S)
        self._sent.clear()

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        wanted = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        with self._refusals():
            self._producer.send_offsets_to_transaction(wanted, group)

    def commit(self) -> None:
        with self._refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._refusals():
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class AioKafkaProducer(TransactionalProducer):
    """aiokafka, on a loop that runs while something is asked of it."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()
        self._sent: list[Any] = []
        self._settings = {
            "bootstrap_servers": bootstrap,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": timeout_ms,
        }
        try:
            self._run(self._start())
        except BaseException:
            self._runner.close()
            raise

    async def _start(self) -> None:
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(**self._settings)
        try:
            await self._producer.start()
        except BaseException:
            await self._producer.stop()
            raise

    def _run(self, work: Awaitable[Any]) -> Any:
        from aiokafka.errors import KafkaError

        async def bounded() -> Any:
            return await asyncio.wait_for(work, ANSWER_TIMEOUT_S)

        try:
            return self._runner.run(bounded())
        except KafkaError as error:
            is_fenced = type(error).__name__ in KAFKA_PYTHON_FENCED
            raise RefusedError(repr(error), is_fenced=is_fenced) from error

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._sent.append(self._run(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        for future in self._sent:
            self._run(future)
        self._sent.clear()

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        from aiokafka.structs import OffsetAndMetadata, TopicPartition

        wanted = {
            TopicPartition(*place): OffsetAndMetadata(offset, "")
            for place, offset in offsets.items()
        }
        self._run(self._producer.send_offsets_to_transaction(wanted, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        async def end() -> None:
            # Its own `stop` would wait for what nobody answers any more.
            sender = self._producer._sender
            await sender.close()
            await self._producer.client.close()
            self._producer._closed = True

        with self._runner:
            self._runner.run(end())


PRODUCERS: Final[Mapping[str, Callable[[str, str, int], TransactionalProducer]]] = {
    "confluent-kafka": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
    "aiokafka": AioKafkaProducer,
}


def read_confluent(bootstrap: str, topic: str, isolation_level: str) -> list[bytes]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, ANSWER_TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
    values: list[bytes] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while len(at_end) < len(partitions):
        assert time.monotonic() < deadline, "the end was not reached"
        for message in consumer.consume(500, timeout=0.1):
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
    consumer.close()
    return values


def read_kafka_python(bootstrap: str, topic: str, isolation_level: str) -> list[bytes]:
    from kafka import KafkaConsumer, TopicPartition

    consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation_level)
    try:
        places = [TopicPartition(topic, index) for index in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        values: list[bytes] = []
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while any(consumer.position(place) < ends[place] for place in places):
            assert time.monotonic() < deadline, "the end was not reached"
            for records in consumer.poll(timeout_ms=100).values():
                values += [record.value for record in records]
        return values
    finally:
        consumer.close()


def read_aiokafka(bootstrap: str, topic: str, isolation_level: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            places = [TopicPartition(topic, i) for i in consumer.partitions_for_topic(topic)]
            ends = await consumer.end_offsets(places)
            values: list[bytes] = []
            while any([await consumer.position(place) < ends[place] for place in places]):
                found = await consumer.getmany(timeout_ms=100)
                values += [record.value for records in found.values() for record in records]
            return values
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), ANSWER_TIMEOUT_S))


READERS: Final = {
    "confluent-kafka": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}
