"""Writes numbered records to all partitions at a steady rate, while brokers come and go."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from watched_thread import WatchedThread

Place = tuple[str, int]
"""Topic and partition."""
Series = tuple[Any, ...]
"""Records with numbers of their own: a partition, or a key of one in compacted topics."""
PRELOADED_SIZE: Final = 4096
RECORD_SIZE: Final = 1024
TICK_S: Final = 0.01
ANSWER_TIMEOUT_S: Final = 120
DIGITS: Final = 12


class Record(NamedTuple):
    """A record that is to be sent."""

    series: Series
    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] | None = None


class Delivery(NamedTuple):
    """One acknowledged record."""

    sent_s: float
    """By the monotonic clock."""
    latency_s: float


class NumberedLoad:
    """An idempotent producer with acks=all. Each partition's records are numbered from 0."""

    def __init__(self, places: Sequence[Place], rate: int, settings: dict[str, Any]) -> None:
        self._places, self._rate, self._settings = places, rate, settings
        self.sent: Counter[Series] = Counter()
        self.acknowledged: Counter[Series] = Counter()
        self.errors: list[str] = []
        self.deliveries: list[Delivery] = []

    def preload(self, each_count: int) -> None:
        """Write this number of records of 4 KiB to every partition, as fast as possible."""
        producer = self._open({"linger.ms": 50})
        for _ in range(each_count):
            for place in self._places:
                self._send(producer, place, PRELOADED_SIZE)
        self._close(producer)
        self.deliveries.clear()

    def start(self) -> None:
        self._ending = threading.Event()
        self._thread = WatchedThread(self._run)
        self._thread.start()

    def finish(self) -> None:
        """End the load; return when every record is acknowledged or has failed."""
        self._ending.set()
        self._thread.join()

    def _open(self, settings: dict[str, Any]) -> Producer:
        own = {"enable.idempotence": True, "acks": "all", "log_level": 0}
        return Producer(own | self._settings | settings)

    def _close(self, producer: Producer) -> None:
        if left := producer.flush(ANSWER_TIMEOUT_S):
            self.errors.append(f"{left} records were not answered in {ANSWER_TIMEOUT_S} s")

    def _run(self) -> None:
        producer = self._open({"linger.ms": 0})
        begun_s, count = time.monotonic(), 0
        while not self._ending.is_set():
            due_count = (time.monotonic() - begun_s) * self._rate
            while count < due_count:
                self._send(producer, self._places[count % len(self._places)], RECORD_SIZE)
                count += 1
            producer.poll(TICK_S)
        self._close(producer)

    def _send(self, producer: Producer, place: Place, size: int) -> None:
        topic, partition = place
        record = self._make(place, size)
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    on_delivery=self._delivered,
                    headers=record.headers,
                )
                break
            except BufferError:
                producer.poll(0.1)
        self.sent[record.series] += 1

    def _make(self, place: Place, size: int) -> Record:
        """Return the next record of a partition."""
        return Record(place, b"%0*d" % (DIGITS, self.sent[place]) + bytes(size - DIGITS))

    def _series_of(self, message: Any) -> Series:
        return (message.topic(), message.partition())

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(f"{message.topic()}-{message.partition()}: {error}")
            return
        self.acknowledged[self._series_of(message)] += 1
        latency_s = message.latency()
        self.deliveries.append(Delivery(time.monotonic() - latency_s, latency_s))
