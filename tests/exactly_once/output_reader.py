"""Plain consumers of the outputs: one reads during the faults, the other one at the end.

They use two libraries, confluent-kafka and kafka-python (which no application here uses), with
`read_committed` and without a group.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from checker import Found
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as Place
from kafka.errors import KafkaError
from watched_thread import WatchedThread

POLL_MS: Final = 200


class UnfinishedError(Exception):
    """The end was not reached in time; the text has the positions."""


def open_consumer(bootstrap: str, isolation_level: str = "read_committed") -> Any:
    return KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        isolation_level=isolation_level,
        auto_offset_reset="none",
        enable_auto_commit=False,
        group_id=None,
    )


def assign_all(consumer: Any, topics: Sequence[str], partitions: int) -> list[Place]:
    places = [Place(topic, index) for topic in topics for index in range(partitions)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    return places


class LiveReader:
    """Reads every output from its beginning, in a thread, as the records become stable."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int) -> None:
        self.found: dict[str, list[Found]] = {topic: [] for topic in topics}
        self.errors: list[str] = []
        self._bootstrap, self._partitions = bootstrap, partitions
        self._ending = threading.Event()
        self._thread = WatchedThread(self._read)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._ending.set()
        if self._thread.was_started:
            self._thread.join()

    def _read(self) -> None:
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        places = [(topic, index) for topic in self.found for index in range(self._partitions)]
        consumer.assign([TopicPartition(topic, index, 0) for topic, index in places])
        while not self._ending.is_set():
            for message in consumer.consume(500, timeout=POLL_MS / 1000):
                self._take(message)
        consumer.close()

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self.found[message.topic()].append(
                Found(message.partition(), message.offset(), message.key(), message.value())
            )
        elif not error.retriable():
            # Brokers may be away during faults; any other error ends the run.
            self.errors.append(str(error))
            self._ending.set()


def read_to_end(
    bootstrap: str, topics: Sequence[str], partitions: int, *, timeout_s: float
) -> dict[str, list[Found]]:
    """Return all records up to the log's end, sorted.

    UnfinishedError if the last stable offset does not reach the end in time.
    """
    found: dict[str, list[Found]] = {topic: [] for topic in topics}
    deadline = time.monotonic() + timeout_s
    whole = open_consumer(bootstrap, "read_uncommitted")
    consumer = open_consumer(bootstrap)
    try:
        places = assign_all(consumer, topics, partitions)
        ends = whole.end_offsets(places)
        while waiting := [each for each in places if consumer.position(each) < ends[each]]:
            if time.monotonic() > deadline:
                state = {each: (consumer.position(each), ends[each]) for each in waiting}
                raise UnfinishedError(f"position and end after {timeout_s} s: {state}")
            for place, records in consumer.poll(timeout_ms=POLL_MS).items():
                found[place.topic] += [
                    Found(place.partition, each.offset, each.key, each.value) for each in records
                ]
    finally:
        consumer.close()
        whole.close()
    return {topic: sorted(records) for topic, records in found.items()}


def describe_ends(bootstrap: str, topic: str, partitions: int) -> str:
    """Return the last stable offsets and ends, as brokers report them now, for an error message."""
    places = [Place(topic, index) for index in range(partitions)]
    ends = []
    for isolation_level in ("read_committed", "read_uncommitted"):
        consumer = open_consumer(bootstrap, isolation_level)
        try:
            ends.append(list(consumer.end_offsets(places).values()))
        except KafkaError as error:
            ends.append([repr(error)])
        finally:
            consumer.close()
    return f"stable ends {ends[0]}, ends {ends[1]}"
