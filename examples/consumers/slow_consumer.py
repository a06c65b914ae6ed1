"""A slow consumer: its work stalls for longer than a group waits, it falls behind, it catches up.

    python examples/consumers/slow_consumer.py --stall-s 20

One thread polls, another works, with a short queue between them. While the queue is full, the
partitions are paused: polling continues, so the group knows that the member is alive, but returns
no records. They wait in the log.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

log = logging.getLogger("slow_consumer")


def show_lag(settings: dict[str, Any], topic: str) -> None:
    """Log the lag in a thread with its own client: it waits for answers, and polling must not."""
    observer = Consumer(settings, logger=log)
    while True:
        time.sleep(1)
        try:
            lag, numbers = 0, observer.list_topics(topic, timeout=5).topics[topic].partitions
            for at in observer.committed([TopicPartition(topic, each) for each in numbers], 5):
                low, high = observer.get_watermark_offsets(at, timeout=5)
                lag += high - max(at.offset, low)  # at.offset is negative before any commit
            log.info("lag %d", lag)
        except KafkaException as error:
            log.info("lag unknown: %s", error.args[0].str())


class SlowConsumer:
    """Polls all the time, whatever the work does."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.stall_s = arguments.stall_s
        self.worker = ThreadPoolExecutor(max_workers=1)  # one: records are done in order
        self.queue: deque[tuple[Message, Future[None]]] = deque()
        self.done: dict[tuple[str, int], int] = {}  # the offset behind the last record done
        self.is_paused = False
        settings = {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": arguments.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # A member that does not poll for so long loses its partitions.
            "max.poll.interval.ms": int(arguments.max_poll_interval_s * 1000),
            "session.timeout.ms": int(min(arguments.max_poll_interval_s, 6) * 1000),
            "heartbeat.interval.ms": 500,
            "queued.max.messages.kbytes": 1024,  # fetched ahead of polling: our memory as well
            "fetch.wait.max.ms": 50,  # resumed partitions wait for the fetch under way
        }
        self.consumer = Consumer(settings, logger=log)
        Thread(target=show_lag, args=(settings, arguments.topic), daemon=True).start()

    def work(self, message: Message) -> None:
        """Work in the other thread; the first call takes long, as if a service hangs."""
        stall_s, self.stall_s = self.stall_s, 0
        time.sleep(stall_s)
        json.loads(message.value())

    def on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("given %d partitions", len(partitions))
        self.is_paused = False  # partitions come unpaused

    def on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.info("giving up %d partitions", len(partitions))
        for _, future in self.queue:
            future.cancel()  # the next owner does what we have not begun
        while self.queue and not self.queue[0][1].cancelled():
            self.take_first()  # waits for the record at work
        self.queue.clear()
        self.commit(wait=True)
        self.done.clear()

    def take_first(self) -> None:
        """Remove the oldest of the queue; an exception of its work is raised here."""
        message, future = self.queue.popleft()
        future.result()
        self.done[message.topic(), message.partition()] = message.offset() + 1

    def commit(self, *, wait: bool) -> None:
        """Commit after the work, so a crash repeats the last second and skips nothing."""
        positions = [TopicPartition(*place, offset) for place, offset in self.done.items()]
        try:
            if positions:
                self.consumer.commit(offsets=positions, asynchronous=not wait)
        except KafkaException as error:
            log.warning("Not committed, these come again: %s", error.args[0].str())

    def run(self, arguments: argparse.Namespace, stopping: Event) -> None:
        """Poll until a signal."""
        self.consumer.subscribe(
            [arguments.topic], on_assign=self.on_assign, on_revoke=self.on_revoke
        )
        next_commit = time.monotonic()
        try:
            while not stopping.is_set():
                for message in self.consumer.consume(50, timeout=0.1):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    self.queue.append((message, self.worker.submit(self.work, message)))
                while self.queue and self.queue[0][1].done():
                    self.take_first()
                limit = arguments.queue // (2 if self.is_paused else 1)
                if self.is_paused != (len(self.queue) > limit):
                    self.is_paused = not self.is_paused
                    change = self.consumer.pause if self.is_paused else self.consumer.resume
                    change(self.consumer.assignment())
                    log.info(f"{change.__name__}d, {len(self.queue)} records in hand")
                if time.monotonic() >= next_commit:
                    next_commit = time.monotonic() + 1
                    self.commit(wait=False)
        finally:
            self.consumer.close()  # calls on_revoke, which commits what is done


def main() -> None:
    """Read the arguments, run until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="flights")
    add("--group", default="slow-work")
    add("--queue", type=int, default=500, help="records polled and not yet worked on")
    add("--max-poll-interval-s", type=float, default=10)
    add("--stall-s", type=float, default=20, help="how long the first record takes")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        SlowConsumer(arguments).run(arguments, stopping)
    except KafkaException as error:
        sys.exit(f"Stopped: {error.args[0].str()}")


if __name__ == "__main__":
    main()
