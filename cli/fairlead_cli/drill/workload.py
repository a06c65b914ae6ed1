"""The application in a drill: an idempotent librdkafka producer with default settings, under load.

It runs in a thread, numbers the records of each key, and notes the outcome of each. On purpose
nothing is tuned for failures: it measures what an application would see.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from fairlead_cli.client.access import client_settings
from fairlead_cli.client.connection import kafka_error_of, quiet_logger
from fairlead_cli.drill.history import encode_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_cli.drill.history import History, KeyHistory

TICK_S = 0.005
KEYS_PER_PARTITION = 2
FULL_QUEUE_WAIT_S = 0.05
FLUSH_TIMEOUT_S = 60.0
TAKES_MAX = 3
# Most records that wait beyond librdkafka's queue; with more, the rate was too high.
BACKLOG_MAX = 10_000


class Workload:
    """Started once; `stop` waits for every outstanding answer."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        rate: int,
        record_size: int,
        history: History,
        settings: dict[str, Any] | None = None,
    ) -> None:
        from confluent_kafka import Producer

        own = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
        own |= client_settings()
        self.producer = Producer(own | (settings or {}), logger=quiet_logger())
        self.topic = topic
        self.rate = rate
        self.record_size = record_size
        self.errors: Counter[str] = Counter()
        self.keys: list[KeyHistory] = [
            history.add_key(f"w{partition}.{number}", partition)
            for number in range(KEYS_PER_PARTITION)
            for partition in range(partitions)
        ]
        self.unanswered_after_flush = 0
        self._marks: dict[str, int] = {}
        self._first_after_mark: dict[int, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill workload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until all records have an answer or the time is up."""
        self._stopping.set()
        self._thread.join()

    def mark(self) -> None:
        """From now on, note the first acknowledgement of a record that is sent later."""
        # In this order, so that an answer in between does not count for the previous mark.
        self._marks = {history.key: history.next_sequence for history in self.keys}
        self._first_after_mark = {}

    def first_after_mark(self) -> dict[int, float]:
        """Return the time of the first one by partition (monotonic seconds)."""
        return dict(self._first_after_mark)

    def _run(self) -> None:
        number, due = 0, 0.0
        last = time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            due = min(due + (now - last) * self.rate, BACKLOG_MAX)
            last = now
            while due >= 1:
                if not self._send(self.keys[number % len(self.keys)]):
                    break
                number += 1
                due -= 1
            self._take_answers(self.producer.poll, TICK_S)
        self.unanswered_after_flush = self._take_answers(self.producer.flush, FLUSH_TIMEOUT_S)

    def _take_answers(self, take: Callable[[float], int], timeout_s: float) -> int:
        """Return the result of the client's `poll` or `flush`; count a fatal error that it raises.

        It raises the error once, and takes further answers when it is called again.
        """
        from confluent_kafka import KafkaException

        for _ in range(TAKES_MAX):
            try:
                return take(timeout_s)
            except (KafkaException, SystemError) as exception:
                self.errors[str(kafka_error_of(exception).name())] += 1
        return len(self.producer)

    def _send(self, history: KeyHistory) -> bool:
        """Send a record. False if the client does not accept it; its number is then not used.

        The client's queue is full, or it refuses all records after a fatal error.
        """
        from confluent_kafka import KafkaException

        sequence = history.next_sequence
        try:
            self.producer.produce(
                self.topic,
                encode_value(history.key, sequence, self.record_size),
                history.key,
                partition=history.partition,
                on_delivery=partial(self._on_delivery, history, sequence),
            )
        except BufferError:
            self._take_answers(self.producer.poll, FULL_QUEUE_WAIT_S)
            return False
        except KafkaException as error:
            self.errors[str(error.args[0].name())] += 1
            return False
        history.note_sent()
        return True

    def _on_delivery(self, history: KeyHistory, sequence: int, error: Any, record: Any) -> None:
        if error is not None:
            history.note_refused(sequence)
            self.errors[str(error.name())] += 1
            return
        history.note_acknowledged(sequence, record.offset())
        marked = self._marks.get(history.key)
        if marked is not None and sequence >= marked:
            self._first_after_mark.setdefault(history.partition, time.monotonic())
