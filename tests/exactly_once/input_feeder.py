"""Writes the input at a steady rate, each record once, during all faults."""

import threading
import time
from typing import Any, Final

from confluent_kafka import Producer
from watched_thread import WatchedThread
from workload import Input, make_inputs

RATE: Final = 150
COUNT_MAX: Final = 6000
"""Limit of the backlog if the cluster takes long to heal."""
TICK_S: Final = 0.01
ANSWER_TIMEOUT_S: Final = 120


class InputFeeder:
    """An idempotent producer in a thread; `inputs` are the records it has sent, in order."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self.inputs: list[Input] = []
        self.errors: list[str] = []
        self._topic, self._source = topic, make_inputs(seed)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        self._ending = threading.Event()
        self._thread = WatchedThread(self._feed)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """End it and wait until every record is acknowledged."""
        self._ending.set()
        if self._thread.was_started:
            self._thread.join()

    def _feed(self) -> None:
        started_s = time.monotonic()
        while not self._ending.is_set():
            due_count = min((time.monotonic() - started_s) * RATE, COUNT_MAX)
            while len(self.inputs) < due_count:
                record = next(self._source)
                self.inputs.append(record)
                self._producer.produce(
                    self._topic, record.value, record.key, on_delivery=self._delivered
                )
            self._producer.poll(TICK_S)
        if self._producer.flush(ANSWER_TIMEOUT_S):
            self.errors.append("not everything was acknowledged in time")

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
