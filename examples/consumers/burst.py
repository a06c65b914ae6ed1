"""A burst: a storm brings ten times as many flight updates as usual, for a few seconds.

    python examples/consumers/burst.py

Only the log grows. The producer has a short queue and waits when it is full (back-pressure); the
consumer works at its own rate with little memory (bounded memory); the log keeps the rest. Latency
rises with the burst, and is normal again once the backlog is gone.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import threading
import time
from statistics import median

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TICK_S = 0.05


class Updates:
    """The producer: steady, burst, steady."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.run_id = time.time_ns()  # tells our updates from those of earlier runs
        self.stopping = threading.Event()
        self.sent = self.waits = self.longest_queue = 0
        self.failure: KafkaError | None = None
        self.producer = Producer(
            {
                "bootstrap.servers": arguments.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                # The limit: produce() raises BufferError if so many records are unacknowledged.
                "queue.buffering.max.messages": arguments.producer_queue,
            }
        )

    def on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        self.failure = self.failure or error

    def send(self) -> None:
        """Send one update as soon as there is room."""
        value = json.dumps({"run": self.run_id, "sent": time.time()})
        while True:
            try:
                self.producer.produce(self.arguments.topic, value, on_delivery=self.on_delivery)
                break
            except BufferError:  # back-pressure: be as slow as the cluster
                self.waits += 1
                self.producer.poll(0.05)
        self.sent += 1
        self.longest_queue = max(self.longest_queue, len(self.producer))

    def run(self) -> None:
        """Run in its own thread until the backlog of the burst can be gone and all is sent."""
        rate = self.arguments.rate
        backlog = max(0, (10 * rate - self.arguments.capacity) * self.arguments.burst_s)
        plan = (
            ("steady", rate, self.arguments.steady_s),
            ("burst", 10 * rate, self.arguments.burst_s),
            ("after", rate, self.arguments.steady_s + backlog / (self.arguments.capacity - rate)),
        )
        for self.phase, per_second, seconds in plan:
            due = time.monotonic()
            end = due + seconds
            while due < end and not self.stopping.is_set():
                for _ in range(round(per_second * TICK_S)):
                    self.send()
                self.producer.poll(0)
                due += TICK_S
                time.sleep(max(0.0, due - time.monotonic()))
        self.producer.flush(30)


def consume(arguments: argparse.Namespace, updates: Updates) -> None:
    """Work through all updates, and print a line a second."""
    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": "storm",
        "auto.offset.reset": "earliest",
        "queued.max.messages.kbytes": arguments.consumer_kib,  # the bound: fetched ahead
        "fetch.message.max.bytes": arguments.consumer_kib * 1024 // 2,
    }
    consumer = Consumer(settings)
    load = threading.Thread(target=updates.run, daemon=True)
    # Begin to send when the consumer has joined, so that latency does not include that time.
    consumer.subscribe([arguments.topic], on_assign=lambda *_: load.ident or load.start())
    done, latencies, ready_at = 0, [], 0.0
    report = time.monotonic() + 1
    try:
        while not load.ident or load.is_alive() or (done < updates.sent and not updates.failure):
            for message in consumer.consume(max(1, round(arguments.capacity * TICK_S)), TICK_S):
                if message.error() is not None:
                    raise KafkaException(message.error())
                update = json.loads(message.value())
                ready_at = max(ready_at, time.monotonic() - TICK_S) + 1 / arguments.capacity
                time.sleep(max(0.0, ready_at - time.monotonic()))  # the work
                if update["run"] == updates.run_id:
                    done += 1
                    latencies.append((time.time() - update["sent"]) * 1000)
            if time.monotonic() >= report and latencies:
                report = time.monotonic() + 1
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                line = f"{updates.phase:<6} sent {updates.sent:>6}  lag {updates.sent - done:>6}"
                print(f"{line}  latency {median(latencies):>6.0f} ms  {memory} MiB", flush=True)
                latencies.clear()
    finally:
        consumer.close()
    print(f"sent {updates.sent} read {done} waits {updates.waits} queue {updates.longest_queue}")
    if updates.failure is not None:
        raise KafkaException(updates.failure)


def main() -> None:
    """Create the topic, run the load and the consumer until all is read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--topic", default="flight-updates")
    for name, default, meaning in (
        ("--rate", 100, "updates a second, usually; ten times as many in the burst"),
        ("--capacity", 400, "updates a second that the consumer can work through"),
        ("--steady-s", 5, "seconds before the burst, and after it"),
        ("--burst-s", 5, "seconds of the burst"),
        ("--producer-queue", 200, "updates that may be unanswered"),
        ("--consumer-kib", 64, "what the consumer fetches ahead"),
    ):
        parser.add_argument(name, type=int, default=default, help=f"{meaning} ({default})")
    arguments = parser.parse_args()
    updates = Updates(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: updates.stopping.set())
    try:
        admin = AdminClient({"bootstrap.servers": arguments.bootstrap})
        if arguments.topic not in admin.list_topics(timeout=10).topics:
            admin.create_topics([NewTopic(arguments.topic, 3)])[arguments.topic].result()
        consume(arguments, updates)
    except KafkaException as error:
        sys.exit(f"Stopped: {error.args[0].str()}")


if __name__ == "__main__":
    main()
