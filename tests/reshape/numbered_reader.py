"""Reads the numbered records: during the run, and all of them again at the end."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition
from numbered_load import DIGITS, Place, Series
from watched_thread import WatchedThread

POLL_S: Final = 0.2
IDLE_TIMEOUT_S: Final = 120
EXAMPLES_MAX: Final = 5


class Found(NamedTuple):
    """A record's place: another record at the same offset has another leader epoch."""

    offset: int
    leader_epoch: int


class Progress:
    """What one reader has found. The numbers of each partition must be 0, 1, 2 …"""

    def __init__(self) -> None:
        self.next: Counter[Series] = Counter()
        self.count = self.missing = self.repeated = 0
        self.examples: list[str] = []

    def begin(self, at: Mapping[Series, int]) -> None:
        """Expect these numbers first."""
        self.next.update(at)

    def first_offset(self, place: Place) -> int:
        """Return where to begin: a record's offset is its number, unless something is wrong."""
        return self.next[place]

    def take(self, message: Any) -> None:
        """Check one record. A number after a higher one counts as repeated."""
        place = (message.topic(), message.partition())
        offset, number = message.offset(), int(message.value()[:DIGITS])
        expected = self.next[place]
        self.count += 1
        if number == expected:
            self.next[place] = number + 1
            return
        if len(self.examples) < EXAMPLES_MAX:
            topic, partition = place
            self.examples.append(f"{topic}-{partition}@{offset}: {number}, not {expected}")
        if number < expected:
            self.repeated += 1
        else:
            self.missing += number - expected
            self.next[place] = number + 1

    def shortfall(self, acknowledged: Mapping[Series, int]) -> int:
        """Return how many acknowledged records are missing at the ends of partitions."""
        return sum(max(count - self.next[place], 0) for place, count in acknowledged.items())


class NumberedReader:
    """A consumer of every partition from its beginning, without a group.

    librdkafka may report a truncated log although none was truncated: it asks where the epoch of
    its position ends, and compares the answer with its position when the answer arrives. So the
    reader then reads its last record again, and this must be the same one.
    """

    def __init__(self, bootstrap: str, places: Sequence[Place], progress: Progress) -> None:
        self.progress = progress
        self.errors: list[str] = []
        self.false_alarms = 0
        self._last: dict[Place, Found] = {}
        self._doubted: dict[Place, Found] = {}
        """The last records of partitions reported as truncated, until they are read again."""
        self._bootstrap, self._places = bootstrap, places
        self._ending = threading.Event()
        self._thread = WatchedThread(self._read_on)

    def start(self, begin_at: Mapping[Series, int]) -> None:
        """Begin to read in a thread, and expect these numbers first."""
        self.progress.begin(begin_at)
        self._thread.start()

    def finish(self, ends: Mapping[Series, int]) -> None:
        """Read on to these numbers, or until an error or no more records for some time."""
        seen_count, deadline = -1, 0.0
        while self.progress.shortfall(ends) or self._doubted:
            if self.progress.count != seen_count:
                seen_count, deadline = self.progress.count, time.monotonic() + IDLE_TIMEOUT_S
            if time.monotonic() > deadline or self.errors:
                break
            time.sleep(POLL_S)
        self._ending.set()
        self._thread.join()

    def _read_on(self) -> None:
        consumer: Any = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        consumer.assign(
            [TopicPartition(*place, self.progress.first_offset(place)) for place in self._places]
        )  # fmt: skip
        while not self._ending.is_set():
            self._take_all(consumer, consumer.consume(1000, timeout=POLL_S))
        consumer.close()

    def _take_all(self, consumer: Any, messages: Sequence[Any]) -> None:
        begun_anew = set()
        for message in messages:
            error, place = message.error(), (message.topic(), message.partition())
            if error is None:
                if place not in begun_anew:
                    self._take(place, message)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._doubt(consumer, place, error)
                begun_anew.add(place)
            elif not error.retriable():
                # Brokers may be away during kills.
                self.errors.append(str(error))

    def _take(self, place: Place, message: Any) -> None:
        found = Found(message.offset(), message.leader_epoch())
        doubted = self._doubted.pop(place, None)
        if doubted is None:
            self._last[place] = found
            self.progress.take(message)
        elif found == doubted:
            self.false_alarms += 1
        else:
            self.errors.append(f"{place}: {found} was {doubted} when it was first read")

    def _doubt(self, consumer: Any, place: Place, error: object) -> None:
        last = self._last.get(place)
        if last is None or place in self._doubted:
            self.errors.append(f"{place}: {error}")
            return
        self._doubted[place] = last
        consumer.incremental_unassign([TopicPartition(*place)])
        consumer.incremental_assign([TopicPartition(*place, last.offset)])
